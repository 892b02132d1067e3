"""Theoretical occupancy of a kernel, and its limiter.

Limits: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (CUDA 13). Rounding as in CUDA's
cuda_occupancy.h: registers are allocated per warp in units of 256 from one of four schedulers, shared memory per block
in units of 128 bytes after 1024 reserved bytes. Not yet compared with cudaOccupancyMaxActiveBlocksPerMultiprocessor on
an H200.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.core.errors import UsageError
from kernelwright.core.machine_code import Limiter, Occupancy

WARP_SIZE, SCHEDULERS = 32, 4
REGISTERS_PER_SM, REGISTER_ALLOCATION_UNIT, MAX_REGISTERS_PER_THREAD = 65536, 256, 255
SMEM_ALLOCATION_UNIT_BYTES, RESERVED_BYTES = 128, 1024
MAX_THREADS_PER_BLOCK = 1024


@dataclass(frozen=True)
class SmLimits:
    """Limits of one SM; `fma_lanes` is the number of FP32 multiply-adds that each scheduler starts per cycle."""

    warps: int
    blocks: int
    shared_bytes: int
    fma_lanes: int


LIMITS = {
    80: SmLimits(warps=64, blocks=32, shared_bytes=164 * 1024, fma_lanes=16),
    86: SmLimits(warps=48, blocks=16, shared_bytes=100 * 1024, fma_lanes=32),
    89: SmLimits(warps=48, blocks=24, shared_bytes=100 * 1024, fma_lanes=32),
    90: SmLimits(warps=64, blocks=32, shared_bytes=228 * 1024, fma_lanes=32),
    100: SmLimits(warps=64, blocks=32, shared_bytes=228 * 1024, fma_lanes=32),
    120: SmLimits(warps=48, blocks=24, shared_bytes=100 * 1024, fma_lanes=32),
}
"""By compute capability, 90 for 9.0."""


def compute_occupancy(
    compute: int, registers: int, shared_bytes: int, threads: int | None, dynamic: int = 0
) -> Occupancy:
    """Compute the theoretical occupancy: resident warps over the maximum of an SM.

    Args:
        compute: compute capability, 90 for 9.0; one of LIMITS.
        registers: per thread.
        shared_bytes: static shared memory per block, without the reserved bytes.
        threads: per block; None if unknown.
        dynamic: dynamic shared memory per block, in bytes.
    Raises:
        UsageError: more threads than a block can have.
    """
    limits = LIMITS[compute]
    if threads is None:
        warps = min(limits.warps, _warps_by_registers(registers))
        return Occupancy(
            blocks_per_sm=None, warps_per_sm=warps, fraction=warps / limits.warps, dynamic_shared_bytes=dynamic
        )
    if not 1 <= threads <= MAX_THREADS_PER_BLOCK:
        raise UsageError(f"a block cannot have {threads:,} threads", next=f"use 1 to {MAX_THREADS_PER_BLOCK}")
    warps_per_block = -(-threads // WARP_SIZE)
    blocks_by: dict[Limiter, int] = {
        "threads": limits.warps // warps_per_block,
        "blocks": limits.blocks,
        "registers": _blocks_by_registers(registers, warps_per_block),
        "shared memory": _blocks_by_shared(limits, shared_bytes + dynamic),
    }
    limiter = min(blocks_by, key=lambda name: blocks_by[name])
    blocks = blocks_by[limiter]
    return Occupancy(
        blocks_per_sm=blocks,
        warps_per_sm=blocks * warps_per_block,
        fraction=blocks * warps_per_block / limits.warps,
        limiter=limiter,
        threads_per_block=threads,
        dynamic_shared_bytes=dynamic,
    )


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _warps_by_registers(registers: int) -> int:
    per_warp = max(_round_up(registers * WARP_SIZE, REGISTER_ALLOCATION_UNIT), REGISTER_ALLOCATION_UNIT)
    return REGISTERS_PER_SM // SCHEDULERS // per_warp * SCHEDULERS


def _blocks_by_registers(registers: int, warps: int) -> int:
    return 0 if registers > MAX_REGISTERS_PER_THREAD else _warps_by_registers(registers) // warps


def _blocks_by_shared(limits: SmLimits, shared_bytes: int) -> int:
    return limits.shared_bytes // _round_up(shared_bytes + RESERVED_BYTES, SMEM_ALLOCATION_UNIT_BYTES)
