"""Timings with the conditions they were taken under."""

from __future__ import annotations

from typing import Literal

from kernelwright.core.record import Record, require

Device = Literal["cpu", "cuda", "emulated"]


class Conditions(Record, frozen=True, kw_only=True):
    """Conditions of a measurement; the clock `external` is that of a process other than the one that runs the code."""

    device: Device
    clock: Literal["host", "events", "graph", "external"]
    cache: Literal["cold", "warm"]
    allocation: str
    threads: int | None
    processes: int = 1


class Timing(Record, frozen=True, kw_only=True):
    """Samples of one variant. `low_us` and `high_us` bound the median at 95 %.

    `disturbed` counts samples during which another process used the processor or the clock was throttled. They are in
    `samples_us` but excluded from the median, unless too few would remain.
    """

    name: str
    time_us: float
    low_us: float
    high_us: float
    samples_us: tuple[float, ...]
    repetitions: int
    conditions: Conditions
    disturbed: int = 0
    page_faults_per_call: float | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(self.low_us <= self.time_us <= self.high_us, f"{self.name}: the median is outside its interval")
        require(self.repetitions >= 1, f"{self.name}: {self.repetitions} repetitions")
