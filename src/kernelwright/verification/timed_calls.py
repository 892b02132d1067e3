"""Timed calls of a candidate, some of which are looked at, at places that nobody can know beforehand."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from kernelwright.core.records import Reason
from kernelwright.core.units import time_text
from kernelwright.measure.clock_agreement import LEAST_SEEN, TwoSided, Window
from kernelwright.sandbox.process_memory import pause
from kernelwright.verification.accuracy.near_limit import Drawn
from kernelwright.verification.accuracy.prescreen import distance
from kernelwright.verification.execution import Observed
from kernelwright.verification.output_checker import Answers
from kernelwright.verification.reference import AGAIN_FROM, InputSet, Reference
from kernelwright.verification.transport.runners import ByMemory

CALLS, JUDGED = 12, 3
HASTY_CALLS, HASTY_JUDGED = 6, 2
MOST_BESIDE = 6
ATTEMPTS, LIES, ATTEMPT_PAUSE_S = 3, 2, 0.3
"""Where clocks disagree, calls are made again, with fresh values and after a while: others may have had the processor.
A liar lies more than once."""
MOST_ATTEMPTS = 12
"""With those for which others had the device."""


class Beside(Protocol):
    """Who makes calls of its own, among which nobody can tell those that are timed."""

    @property
    def is_over(self) -> bool: ...
    def look(self) -> None: ...


@dataclass
class TimedCalls:
    """So many calls with fresh inputs of the problem's own.

    Args:
        first: the index of their first input set.
        hasty: few calls, where each takes long.
        beside: as long as it is not over, calls go on, some of its own before each.
    """

    runner: ByMemory
    reference: Reference
    first: int
    hasty: bool = False
    beside: Beside | None = None
    _windows: list[Window] = field(default_factory=list)
    _lies: list[TwoSided] = field(default_factory=list)

    def seen(self) -> Iterator[tuple[Observed, InputSet | None]]:
        """Makes all calls; gives what they gave, and for those that are to be judged with what is right."""
        if state := self.reference.own_state():
            self.runner.line.set_state(state)
        calls, judged = (HASTY_CALLS, HASTY_JUDGED) if self.hasty else (CALLS, JUDGED)
        disagreed = 0
        for batch in itertools.count():
            if not self._disturbed:
                self._windows = []
            yield from self._seen(range(self.first + batch * calls, self.first + (batch + 1) * calls), judged)
            clocks = self.clocks
            if clocks.agrees:
                self._lies = []
            elif clocks.lies and disagreed < ATTEMPTS:
                self._lies.append(clocks)
            disagreed += clocks.calm and clocks.seen >= LEAST_SEEN and not clocks.agrees
            settled = clocks.agrees or disagreed >= ATTEMPTS or batch >= MOST_ATTEMPTS
            if settled and (not self.beside or self.beside.is_over):
                break
            if not settled:
                pause(ATTEMPT_PAUSE_S)

    def _seen(self, numbers: range, judged: int) -> Iterator[tuple[Observed, InputSet | None]]:
        # One for the choice alone: how many calls of others come between depends on how long they take.
        chosen = self.reference.chance(f"judged from {numbers.start}").sample(numbers, judged)
        chance = random.SystemRandom()
        for at in numbers:
            for _ in range(chance.randrange(MOST_BESIDE)):
                if self.beside and not self.beside.is_over:
                    self.beside.look()
            inputs = self.reference.inputs(at)
            answer = self.runner.line.call(inputs, look=True)
            self._windows.append(answer.window)
            assert answer.observed
            judge = at in chosen or distance(answer.observed, inputs, self.reference.outcome(inputs)) > 1
            yield answer.observed, self.reference.set_of(inputs) if judge else None

    def decided(self, answers: Answers) -> Reason | None:
        """What more calls like the timed ones say of those that were over the limit of accuracy by little."""

        def draw(number: int) -> Drawn:
            inputs = self.reference.inputs(AGAIN_FROM + number)  # of the kind that timed calls are, unlike other sets
            answer = self.runner.line.call(inputs, look=True)
            assert answer.observed
            return Drawn(answers.rejection(answer.observed, self.reference.set_of(inputs)), answers.share)

        found = (answers.near.decide(kind, draw) for kind in list(answers.near.pending))
        return next(filter(None, found), None)

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
        said, seen = time_text(self._lies[-1].said_us), time_text(self._lies[-1].least_us)
        return Reason(code="false-time", detail=f"its own clock says {said} for a call that took {seen} at least")
