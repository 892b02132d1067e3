"""The GPU that kernels are generated for."""

from __future__ import annotations

from functools import cache

import torch

from kernelwright.core.record import Record
from kernelwright.core.units import DTYPE_BYTES


class Target(Record, frozen=True, kw_only=True):
    """What the search space depends on, from `torch.cuda.get_device_properties`.

    Attributes:
        capability: compute capability.
        registers: 32-bit registers of a multiprocessor.
        shared_bytes: maximum shared memory of one block.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    registers: int
    shared_bytes: int
    l2_bytes: int

    @property
    def min_programs(self) -> int:
        """Fewer programs leave multiprocessors without enough loads in flight."""
        return 2 * self.multiprocessors

    @property
    def max_tile_elements(self) -> int:
        """Elements of a float32 tile in half of the registers: 32 for each of 1024 threads."""
        return self.registers // 2

    @property
    def max_synced_splits(self) -> int:
        """Splits of a row with grid sync: with a multiprocessor for each, four streams can run at once. On an H100,
        four times as many would gain a group norm 5 % of a copy, rows of 4 million elements 13 %."""
        return power_of_2_below(self.multiprocessors // 4)

    @property
    def max_grid_sync_elements(self) -> int:
        """A longer row of float32, in `max_synced_splits` splits, has left the L2 when it is reloaded."""
        rows_at_once = self.multiprocessors // self.max_synced_splits
        return power_of_2_below(self.l2_bytes // (rows_at_once * DTYPE_BYTES["float32"]))


HOPPER = Target(
    name="NVIDIA H100",
    capability=(9, 0),
    multiprocessors=132,
    registers=65536,
    shared_bytes=232_448,
    l2_bytes=50 << 20,
)
"""Where no GPU is present."""


def current_target() -> Target:
    """The current CUDA device, or `HOPPER` without one."""
    return _target_of(torch.cuda.current_device()) if torch.cuda.is_available() else HOPPER


@cache
def _target_of(device: int) -> Target:
    properties = torch.cuda.get_device_properties(device)
    return Target(
        name=properties.name,
        capability=(properties.major, properties.minor),
        multiprocessors=properties.multi_processor_count,
        registers=properties.regs_per_multiprocessor,
        shared_bytes=properties.shared_memory_per_block_optin,
        l2_bytes=properties.L2_cache_size,
    )


def power_of_2_below(number: int) -> int:
    """The largest power of two that is not above a number; at least 1."""
    return 1 << max(number.bit_length() - 1, 0)
