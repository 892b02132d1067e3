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

WARP, SCHEDULERS = 32, 4
REGISTERS, REGISTERS_TOGETHER, MOST_REGISTERS = 65536, 256, 255
SHARED_TOGETHER, RESERVED_BYTES = 128, 1024
MOST_THREADS = 1024
"""Of a block."""


@dataclass(frozen=True)
class Limits:
    """Of one multiprocessor; `fma_lanes` says how many FP32 multiply-adds each scheduler begins in a cycle."""

    warps: int
    blocks: int
    shared_bytes: int
    fma_lanes: int


LIMITS = {
    80: Limits(warps=64, blocks=32, shared_bytes=164 * 1024, fma_lanes=16),
    86: Limits(warps=48, blocks=16, shared_bytes=100 * 1024, fma_lanes=32),
    89: Limits(warps=48, blocks=24, shared_bytes=100 * 1024, fma_lanes=32),
    90: Limits(warps=64, blocks=32, shared_bytes=228 * 1024, fma_lanes=32),
    100: Limits(warps=64, blocks=32, shared_bytes=228 * 1024, fma_lanes=32),
    120: Limits(warps=48, blocks=24, shared_bytes=100 * 1024, fma_lanes=32),
}
"""By compute capability, 90 for 9.0."""


def occupancy(compute: int, registers: int, shared_bytes: int, threads: int | None, dynamic: int = 0) -> Occupancy:
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
        return Occupancy(blocks=None, warps=warps, share=warps / limits.warps, dynamic_shared_bytes=dynamic)
    if not 1 <= threads <= MOST_THREADS:
        raise UsageError(f"a block cannot have {threads:,} threads", next=f"1 to {MOST_THREADS}")
    each = -(-threads // WARP)
    by: dict[Limiter, int] = {
        "threads": limits.warps // each,
        "blocks": limits.blocks,
        "registers": _blocks_by_registers(registers, each),
        "shared memory": _blocks_by_shared(limits, shared_bytes + dynamic),
    }
    limiter = min(by, key=lambda name: by[name])
    blocks = by[limiter]
    return Occupancy(
        blocks=blocks,
        warps=blocks * each,
        share=blocks * each / limits.warps,
        limiter=limiter,
        threads=threads,
        dynamic_shared_bytes=dynamic,
    )


def _rounded(value: int, step: int) -> int:
    return -(-value // step) * step


def _warps_by_registers(registers: int) -> int:
    each = max(_rounded(registers * WARP, REGISTERS_TOGETHER), REGISTERS_TOGETHER)
    return REGISTERS // SCHEDULERS // each * SCHEDULERS


def _blocks_by_registers(registers: int, warps: int) -> int:
    return 0 if registers > MOST_REGISTERS else _warps_by_registers(registers) // warps


def _blocks_by_shared(limits: Limits, shared_bytes: int) -> int:
    return limits.shared_bytes // _rounded(shared_bytes + RESERVED_BYTES, SHARED_TOGETHER)
