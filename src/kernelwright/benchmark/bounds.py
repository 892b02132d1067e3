"""Lower bounds of a program's time on a machine: the floor, which is reported, and the datasheet bound, below which a
time is implausible."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.core.machine import Machine
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
        """The datasheet bound. CPUs have no datasheet: theirs is at twice the best measured DRAM bandwidth."""
        if self.machine.spec:
            return datasheet_bound_us(self.work.fused, self.machine.spec) or 0.0
        memory = self.machine.levels[-1]
        best_gb_s = max(filter(None, (memory.read_gb_s, memory.write_gb_s, memory.copy_gb_s, memory.triad_gb_s)))
        beyond_bytes = max(0, self.work.fused.total_bytes - last_cache_bytes(self.machine))
        return beyond_bytes / (2 * best_gb_s) / 1e3

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
