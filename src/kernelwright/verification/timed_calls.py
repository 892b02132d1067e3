"""Timed calls of a candidate, some of which are looked at, at places that nobody can know beforehand."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from kernelwright.core.records import Reason
from kernelwright.core.units import time_text
from kernelwright.measure.clock_agreement import MIN_OBSERVED_CALLS, ClockComparison, TimedCall
from kernelwright.sandbox.process_memory import pause
from kernelwright.verification.accuracy.near_limit import DrawResult
from kernelwright.verification.accuracy.prescreen import prescreen_distance
from kernelwright.verification.execution import ObservedCall
from kernelwright.verification.output_checker import OutputChecker
from kernelwright.verification.reference import REDRAW_START_INDEX, InputSet, Reference
from kernelwright.verification.transport.runners import InspectedRunner

NUM_CALLS, NUM_CHECKED = 12, 3
QUICK_NUM_CALLS, QUICK_NUM_CHECKED = 6, 2
MAX_INTERLEAVED = 6
MAX_DISAGREEMENTS, MIN_FALSE_TIMES, RETRY_DELAY_S = 3, 2, 0.3
"""Where clocks disagree, calls are made again, with fresh values and after a while: others may have had the processor.
A liar lies more than once."""
MAX_BATCHES = 12
"""With those for which others had the device."""


class InterleavedCalls(Protocol):
    """Who makes calls of its own, among which nobody can tell those that are timed."""

    @property
    def is_complete(self) -> bool: ...
    def sample(self) -> None: ...


@dataclass
class TimedVerification:
    """So many calls with fresh inputs of the problem's own.

    Args:
        first_index: the index of their first input set.
        quick: few calls, where each takes long.
        interleaved: as long as it is not over, calls go on, some of its own before each.
    """

    runner: InspectedRunner
    reference: Reference
    first_index: int
    quick: bool = False
    interleaved: InterleavedCalls | None = None
    _timed_calls: list[TimedCall] = field(default_factory=list)
    _false_times: list[ClockComparison] = field(default_factory=list)

    def run(self) -> Iterator[tuple[ObservedCall, InputSet | None]]:
        """Makes all calls; gives what they gave, and for those that are to be judged with what is right."""
        if state := self.reference.reset_state():
            self.runner.client.set_state(state)
        calls, judged = (QUICK_NUM_CALLS, QUICK_NUM_CHECKED) if self.quick else (NUM_CALLS, NUM_CHECKED)
        disagreed = 0
        for batch in itertools.count():
            if not self._device_is_shared:
                self._timed_calls = []
            yield from self._run_batch(
                range(self.first_index + batch * calls, self.first_index + (batch + 1) * calls), judged
            )
            clocks = self.clock_comparison
            if clocks.agrees:
                self._false_times = []
            elif clocks.underreports and disagreed < MAX_DISAGREEMENTS:
                self._false_times.append(clocks)
            disagreed += clocks.is_exclusive and clocks.observed_calls >= MIN_OBSERVED_CALLS and not clocks.agrees
            settled = clocks.agrees or disagreed >= MAX_DISAGREEMENTS or batch >= MAX_BATCHES
            if settled and (not self.interleaved or self.interleaved.is_complete):
                break
            if not settled:
                pause(RETRY_DELAY_S)

    def _run_batch(self, numbers: range, num_checked: int) -> Iterator[tuple[ObservedCall, InputSet | None]]:
        # One for the choice alone: how many calls of others come between depends on how long they take.
        chosen = self.reference.make_rng(f"judged from {numbers.start}").sample(numbers, num_checked)
        chance = random.SystemRandom()
        for at in numbers:
            for _ in range(chance.randrange(MAX_INTERLEAVED)):
                if self.interleaved and not self.interleaved.is_complete:
                    self.interleaved.sample()
            inputs = self.reference.make_inputs(at)
            answer = self.runner.client.call(inputs, read_outputs=True)
            self._timed_calls.append(answer.timed_call)
            assert answer.observed
            judge = at in chosen or prescreen_distance(answer.observed, inputs, self.reference.run(inputs)) > 1
            yield answer.observed, self.reference.make_set(inputs) if judge else None

    def decide_near_limit(self, checker: OutputChecker) -> Reason | None:
        """What more calls like the timed ones say of those that were over the limit of accuracy by little."""

        def draw(number: int) -> DrawResult:
            inputs = self.reference.make_inputs(
                REDRAW_START_INDEX + number
            )  # of the kind that timed calls are, unlike other sets
            answer = self.runner.client.call(inputs, read_outputs=True)
            assert answer.observed
            return DrawResult(checker.check(answer.observed, self.reference.make_set(inputs)), checker.limit_ratio)

        found = (checker.near_limits.decide(kind, draw) for kind in list(checker.near_limits.pending))
        return next(filter(None, found), None)

    @property
    def _device_is_shared(self) -> bool:
        """Whether others may use what it computes on meanwhile: a device takes all its processes in turns."""
        return self.runner.client.memory.device != "cpu"

    @property
    def clock_comparison(self) -> ClockComparison:
        return ClockComparison.from_calls(self._timed_calls, self.runner.null_calls, disturbed=self._device_is_shared)

    def find_false_time(self) -> Reason | None:
        """What the clocks say of each other, where one lies."""
        if len(self._false_times) < MIN_FALSE_TIMES:
            return None
        said, seen = (
            time_text(self._false_times[-1].observed_claim_us),
            time_text(self._false_times[-1].external_min_us),
        )
        return Reason(code="false-time", detail=f"its own clock says {said} for a call that took {seen} at least")
