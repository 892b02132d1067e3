"""Timed calls of a candidate, some of which are looked at, at places that nobody can know beforehand."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernelwright.core.records import Reason
from kernelwright.core.units import time_text
from kernelwright.measure.two_sided import TwoSided, Window
from kernelwright.verify.distributions import DISTRIBUTIONS
from kernelwright.verify.execution import Observed
from kernelwright.verify.reference import InputSet, Reference
from kernelwright.verify.runners import ByMemory

CALLS, JUDGED = 12, 6
HASTY_CALLS, HASTY_JUDGED = 6, 3
AS_GIVEN = DISTRIBUTIONS[0]


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
    _claimed_us: list[float] = field(default_factory=list)
    _windows: list[Window] = field(default_factory=list)

    def seen(self) -> Iterator[tuple[Observed, InputSet | None]]:
        """Makes all calls; gives what was looked at, and for those that are to be judged with what is right."""
        calls, judged = (HASTY_CALLS, HASTY_JUDGED) if self.hasty else (CALLS, JUDGED)
        chosen = random.SystemRandom().sample(range(calls), judged)
        for at in range(calls):
            drawn = self.reference.draw(self.first + at, AS_GIVEN) if at in chosen else None
            if drawn and drawn.state:
                self.runner.line.set_state(drawn.state)
            inputs = drawn.inputs if drawn else self.reference.inputs(self.first + at)
            answer = self.runner.line.call(inputs, look=drawn is not None or not self.hasty)
            self._claimed_us.append(answer.claimed_us)
            self._windows.append(answer.window)
            if answer.observed:
                yield answer.observed, drawn

    @property
    def clocks(self) -> TwoSided:
        return TwoSided.of(self._claimed_us, self._windows, self.runner.empty)

    def lie(self) -> Reason | None:
        """What the clocks say of each other, where one lies."""
        clocks = self.clocks
        if not clocks.lies:
            return None
        said, seen = time_text(clocks.claimed_us), time_text(clocks.least_us)
        return Reason(code="false-time", detail=f"its own clock says {said} for a call that took {seen} at least")
