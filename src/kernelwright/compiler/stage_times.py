"""Time of the stages that an optimisation reports."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from kernelwright.core.optimization import StageTime
from kernelwright.core.progress import observe_stages
from kernelwright.measure.clock import wall_s

MIN_STAGE_S = 0.5
"""Shorter stages are not listed."""
_REGION = re.compile(r"^\w*region_\d+\b.*")
_DETAIL = re.compile(r"[:,] .*|\b\d+ (of \d+ )?")


class StageTimes:
    """Adds up the seconds of stages: all of the regions together, the others by what precedes a colon or comma."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._name, self._since_s = "starting", wall_s()

    def start(self, description: str, limit_s: float | None = None) -> None:
        """End the stage that runs, and start the next one."""
        now_s = wall_s()
        self._seconds[self._name] += now_s - self._since_s
        name = "tuning the regions" if _REGION.match(description) else _DETAIL.sub("", description)
        self._name, self._since_s = name, now_s

    def longest(self) -> tuple[StageTime, ...]:
        """The stages of at least `MIN_STAGE_S`, the longest first."""
        self.start(self._name)
        times = [StageTime(name=name, time_s=round(time_s, 2)) for name, time_s in self._seconds.items()]
        return tuple(sorted((one for one in times if one.time_s >= MIN_STAGE_S), key=lambda one: -one.time_s))


@contextmanager
def stage_times() -> Iterator[StageTimes]:
    """Add up the stages that are reported within a block."""
    times = StageTimes()
    with observe_stages(times.start):
        yield times
