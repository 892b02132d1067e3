"""Lower bounds of a program's time on a machine: the floor, which is reported, and the datasheet bound, below which a
time is implausible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.core.machine import Machine, MemoryLevel
from kernelwright.core.units import time_text
from kernelwright.machines.floor import datasheet_bound_us, floor, last_cache_bytes
from kernelwright.work import first_read_bytes
from kernelwright.work.counting import ProgramWork


@dataclass(frozen=True)
class LowerBounds:
    """Lower bounds of the time that a program's work takes on a machine."""

    machine: Machine
    work: ProgramWork

    @property
    def datasheet_bound_us(self) -> float:
        """The datasheet bound. CPUs have no datasheet: theirs is the larger of two, at twice the best measured
        bandwidth: all bytes from the caches, if they fit there, and what they do not hold from DRAM."""
        if self.machine.spec:
            return datasheet_bound_us(self.work.fused, self.machine.spec) or 0.0
        num_bytes, levels = self.work.fused.total_bytes, self.machine.levels
        beyond_bytes = max(0, num_bytes - last_cache_bytes(self.machine))
        # An unsteady measurement can show a cache as slower than it is, so the fastest level counts for all of them.
        return max(num_bytes / best_gb_s(levels), beyond_bytes / best_gb_s(levels[-1:])) / 2 / 1e3

    def floor_us(self, *, cold: bool) -> float:
        """Roofline bound from measured ceilings; `cold` counts the first read of the inputs as DRAM traffic."""
        cold_bytes = sum(first_read_bytes(self.work).values()) if cold else 0
        return floor(self.work.fused, self.machine, cold_bytes=cold_bytes).time_us

    @property
    def datasheet_bound_text(self) -> str:
        """The datasheet bound with its reason, as text."""
        return f"the {time_text(self.datasheet_bound_us)} in which the compulsory bytes can cross the peak bandwidth"

    def is_implausible(self, time_us: float) -> bool:
        """Whether a time is below the datasheet bound."""
        return time_us < self.datasheet_bound_us


def best_gb_s(levels: Sequence[MemoryLevel]) -> float:
    """The best measured bandwidth of these levels."""
    rates = (rate for one in levels for rate in (one.read_gb_s, one.write_gb_s, one.copy_gb_s, one.triad_gb_s))
    return max(filter(None, rates), default=math.inf)
