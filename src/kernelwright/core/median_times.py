"""Median times of several forms of one program, interleaved in one process."""

from __future__ import annotations

import msgspec

from kernelwright.core.record import Record

OURS, EAGER, TORCH_COMPILE = "kernelwright", "eager", "torch.compile"


class MedianTime(Record, frozen=True, kw_only=True):
    """The median time of a variant; `low_us` and `high_us` bound it at 95 %."""

    time_us: float
    low_us: float
    high_us: float


class MedianTimes(Record, frozen=True, kw_only=True):
    """Base of results with the times of `kernelwright`, `eager` and `torch.compile`, without those that failed."""

    times: dict[str, MedianTime] = msgspec.field(default_factory=dict)

    def speedup_over(self, *others: str) -> float | None:
        """The least time of other variants over ours; None if ours was not timed or none of them was."""
        known = [self.times[other].time_us for other in others if other in self.times]
        return min(known) / self.times[OURS].time_us if known and OURS in self.times else None
