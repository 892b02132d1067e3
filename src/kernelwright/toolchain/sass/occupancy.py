"""How many blocks a multiprocessor holds, and what stops the next one.

The limits are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (CUDA 13),
and the rounding is that of CUDA's own cuda_occupancy.h: registers go to each of four schedulers in 256s a warp, shared
memory to a block in 128s after 1024 reserved bytes. On an H200 cudaOccupancyMaxActiveBlocksPerMultiprocessor was not
asked yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.core.errors import UsageError
from kernelwright.core.machine_code import Limiter, Occupancy

WARP_SIZE, SCHEDULERS = 32, 4
REGISTERS_PER_SM, REGISTER_ALLOCATION_UNIT, MAX_REGISTERS_PER_THREAD = 65536, 256, 255
SMEM_ALLOCATION_UNIT_BYTES, RESERVED_BYTES = 128, 1024
MAX_THREADS_PER_BLOCK = 1024
"""Of a block."""


@dataclass(frozen=True)
class SmLimits:
    """Of one multiprocessor; `fma_lanes` says how many FP32 multiply-adds each scheduler begins in a cycle."""

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
    """The share of its warps that a multiprocessor can hold at once.

    Args:
        compute: such as 90; one of LIMITS.
        registers: of a thread.
        shared_bytes: static, of a block, without the reserved ones.
        threads: of a block; None where nobody knows.
        dynamic: bytes of shared memory that the launch adds.
    Raises:
        UsageError: no block can have so many threads.
    """
    limits = LIMITS[compute]
    if threads is None:
        warps = min(limits.warps, _warps_by_registers(registers))
        return Occupancy(
            blocks_per_sm=None, warps_per_sm=warps, fraction=warps / limits.warps, dynamic_shared_bytes=dynamic
        )
    if not 1 <= threads <= MAX_THREADS_PER_BLOCK:
        raise UsageError(f"a block cannot have {threads:,} threads", next=f"1 to {MAX_THREADS_PER_BLOCK}")
    each = -(-threads // WARP_SIZE)
    by: dict[Limiter, int] = {
        "threads": limits.warps // each,
        "blocks": limits.blocks,
        "registers": _blocks_by_registers(registers, each),
        "shared memory": _blocks_by_shared(limits, shared_bytes + dynamic),
    }
    limiter = min(by, key=lambda name: by[name])
    blocks = by[limiter]
    return Occupancy(
        blocks_per_sm=blocks,
        warps_per_sm=blocks * each,
        fraction=blocks * each / limits.warps,
        limiter=limiter,
        threads_per_block=threads,
        dynamic_shared_bytes=dynamic,
    )


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _warps_by_registers(registers: int) -> int:
    each = max(_round_up(registers * WARP_SIZE, REGISTER_ALLOCATION_UNIT), REGISTER_ALLOCATION_UNIT)
    return REGISTERS_PER_SM // SCHEDULERS // each * SCHEDULERS


def _blocks_by_registers(registers: int, warps: int) -> int:
    return 0 if registers > MAX_REGISTERS_PER_THREAD else _warps_by_registers(registers) // warps


def _blocks_by_shared(limits: SmLimits, shared_bytes: int) -> int:
    return limits.shared_bytes // _round_up(shared_bytes + RESERVED_BYTES, SMEM_ALLOCATION_UNIT_BYTES)
