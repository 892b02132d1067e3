"""Timed calls of a candidate, some of which are looked at, at places that nobody can know beforehand."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernelwright.core.records import Reason
from kernelwright.core.units import time_text
from kernelwright.measure.two_sided import TwoSided, Window
from kernelwright.sandbox.inspection import pause
from kernelwright.verify.execution import Observed
from kernelwright.verify.nearness import distance
from kernelwright.verify.reference import InputSet, Reference
from kernelwright.verify.runners import ByMemory

CALLS, JUDGED = 12, 3
HASTY_CALLS, HASTY_JUDGED = 6, 2
ATTEMPTS, LIES, ATTEMPT_PAUSE_S = 3, 2, 0.3
"""Where clocks disagree, calls are made again, with fresh values and after a while: others may have had the processor,
or the device. A liar lies more than once."""


@dataclass
class TimedCalls:
    """So many calls with fresh inputs of the problem's own.

    Args:
        first: the index of their first input set.
        hasty: few calls, where each takes long.
    """

    runner: ByMemory
    reference: Reference
    first: int
    hasty: bool = False
    _windows: list[Window] = field(default_factory=list)
    _lies: list[TwoSided] = field(default_factory=list)

    def seen(self) -> Iterator[tuple[Observed, InputSet | None]]:
        """Makes all calls; gives what they gave, and for those that are to be judged with what is right."""
        if state := self.reference.own_state():
            self.runner.line.set_state(state)
        calls, judged = (HASTY_CALLS, HASTY_JUDGED) if self.hasty else (CALLS, JUDGED)
        for attempt in range(ATTEMPTS):
            if not self._disturbed:
                self._windows = []
            yield from self._seen(range(self.first + attempt * calls, self.first + (attempt + 1) * calls), judged)
            clocks = self.clocks
            if clocks.agrees:
                self._lies = []
                break
            self._lies += [clocks] if clocks.lies else []
            pause(ATTEMPT_PAUSE_S)

    def _seen(self, numbers: range, judged: int) -> Iterator[tuple[Observed, InputSet | None]]:
        chosen = random.SystemRandom().sample(numbers, judged)
        for at in numbers:
            inputs = self.reference.inputs(at)
            answer = self.runner.line.call(inputs, look=True)
            self._windows.append(answer.window)
            assert answer.observed
            judge = at in chosen or distance(answer.observed, inputs, self.reference.outcome(inputs)) > 1
            yield answer.observed, self.reference.set_of(inputs) if judge else None

    @property
    def _disturbed(self) -> bool:
        """Whether others may use what it computes on meanwhile: a device takes all its processes in turns."""
        return self.runner.line.reach.device != "cpu"

    @property
    def clocks(self) -> TwoSided:
        return TwoSided.of(self._windows, self.runner.empty, disturbed=self._disturbed)

    def lie(self) -> Reason | None:
        """What the clocks say of each other, where one lies."""
        if len(self._lies) < LIES:
            return None
        said, seen = time_text(self._lies[-1].claimed_us), time_text(self._lies[-1].least_us)
        return Reason(code="false-time", detail=f"its own clock says {said} for a call that took {seen} at least")
