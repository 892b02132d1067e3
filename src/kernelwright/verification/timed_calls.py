"""Timed calls of a candidate; the outputs of randomly chosen ones are checked, which the candidate cannot predict."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from kernelwright.core.units import time_text
from kernelwright.core.verdict import Reason
from kernelwright.measure.clock import wall_s
from kernelwright.measure.clock_agreement import (
    MIN_OBSERVED_CALLS,
    MIN_TIME_US,
    ClockComparison,
    TimedCall,
    trusted_time_us,
)
from kernelwright.problems.problem import Args
from kernelwright.sandbox.process_memory import pause
from kernelwright.verification.accuracy.near_limit import DrawResult
from kernelwright.verification.accuracy.prescreen import prescreen_distance
from kernelwright.verification.attacks.idle_work import find_computing, find_touched_memory
from kernelwright.verification.call_series import CheckedSeries, SeriesPlan
from kernelwright.verification.execution import ObservedCall
from kernelwright.verification.input_set import InputSet
from kernelwright.verification.output_checker import OutputChecker
from kernelwright.verification.reference import IDLE_START_INDEX, REDRAW_START_INDEX, Reference
from kernelwright.verification.transport.client import CallResult
from kernelwright.verification.transport.runners import InspectedRunner

NUM_CALLS, NUM_CHECKED = 12, 3
QUICK_NUM_CALLS, QUICK_NUM_CHECKED = 6, 2
MAX_INTERLEAVED = 6
MAX_DISAGREEMENTS, MIN_FALSE_TIMES, RETRY_DELAY_S = 3, 2, 0.3
"""If the clocks disagree, calls are repeated with fresh values after a delay, since other processes may have
interfered. A false time must be seen more than once."""
MAX_BATCHES = {"cpu": 4, "cuda": 12}
"""Including batches during which other processes used the device, or the host so much that no call was observed while
it ran: short ones are timed in series."""

IDLE_CALLS, IDLE_CALLS_S = 48, 2.0
"""More calls of a candidate that seems to compute between its calls, and the time after which there are none: Linux
counts computing time at its ticks, every 4 ms, which looks like work in a few calls."""
NUM_SERIES, SERIES_US, MAX_SERIES_CALLS = 3, 10_000.0, 16
"""Series that are checked, the time of the reference that the calls of one take, and their largest number of calls."""


class InterleavedCalls(Protocol):
    """Makes its own calls between the timed ones, so that the candidate cannot know which calls are timed."""

    @property
    def is_complete(self) -> bool: ...
    def sample(self) -> None: ...


@dataclass
class TimedVerification:
    """A batch of calls with fresh inputs of the problem's own.

    Args:
        first_index: index of the first input set.
        quick: fewer calls, for a slow program.
        interleaved: makes calls between the timed ones; batches continue until it is complete.
    """

    runner: InspectedRunner
    reference: Reference
    first_index: int
    quick: bool = False
    interleaved: InterleavedCalls | None = None
    _timed_calls: list[TimedCall] = field(default_factory=list)
    _false_times: list[ClockComparison] = field(default_factory=list)

    def run(self) -> Iterator[tuple[ObservedCall, InputSet | None]]:
        """Make all calls; yields their results, with the expected values for those to be checked."""
        if state := self.reference.reset_state():
            self.runner.client.set_state(state)
        num_calls, num_checked = (QUICK_NUM_CALLS, QUICK_NUM_CHECKED) if self.quick else (NUM_CALLS, NUM_CHECKED)
        num_disagreements = 0
        for batch in itertools.count():
            if not self._device_is_shared:
                self._timed_calls = []
            yield from self._run_batch(
                range(self.first_index + batch * num_calls, self.first_index + (batch + 1) * num_calls), num_checked
            )
            clocks = self.clock_comparison
            if clocks.agrees:
                self._false_times = []
            elif clocks.underreports and num_disagreements < MAX_DISAGREEMENTS:
                self._false_times.append(clocks)
            num_disagreements += (
                clocks.is_exclusive and clocks.observed_calls >= MIN_OBSERVED_CALLS and not clocks.agrees
            )
            is_decided = (
                clocks.agrees or num_disagreements >= MAX_DISAGREEMENTS or batch >= MAX_BATCHES[self.runner.device]
            )
            if is_decided and (not self.interleaved or self.interleaved.is_complete):
                break
            if not is_decided:
                pause(RETRY_DELAY_S)

    def _run_batch(self, numbers: range, num_checked: int) -> Iterator[tuple[ObservedCall, InputSet | None]]:
        # A separate RNG for this choice: the number of interleaved calls depends on their time.
        chosen = self.reference.make_rng(f"judged from {numbers.start}").sample(numbers, num_checked)
        rng = random.SystemRandom()
        for at in numbers:
            for _ in range(rng.randrange(MAX_INTERLEAVED)):
                if self.interleaved and not self.interleaved.is_complete:
                    self.interleaved.sample()
            (inputs,), seed = self.reference.make_timed_inputs(at), self.reference.call_seed(at)
            result = self.runner.client.call(inputs, read_outputs=True, seed=seed)
            self._timed_calls.append(result.timed_call)
            assert result.observed
            check = at in chosen or prescreen_distance(result.observed, inputs, self.reference.run(inputs, seed)) > 1
            yield result.observed, self.reference.make_timed_set(inputs, seed) if check else None

    def decide_near_limit(self, checker: OutputChecker) -> Reason | None:
        """Repeat calls that were near the limit of accuracy until they decide; the reason to reject, or None."""

        def draw(number: int) -> DrawResult:
            result, inputs, seed = self._redraw(REDRAW_START_INDEX + number)
            assert result.observed
            input_set = self.reference.make_timed_set(inputs, seed)
            return DrawResult(checker.check(result.observed, input_set), checker.limit_ratio)

        reasons = (checker.near_limits.decide(kind, draw) for kind in list(checker.near_limits.pending))
        return next(filter(None, reasons), None)

    def _redraw(self, index: int) -> tuple[CallResult, Args, int]:
        """One more call, its inputs and its seed."""
        (inputs,), seed = self.reference.make_timed_inputs(index), self.reference.call_seed(index)
        return self.runner.client.call(inputs, read_outputs=True, seed=seed), inputs, seed

    @property
    def _device_is_shared(self) -> bool:
        """Whether other processes may use the processor of the calls: a device has time slices."""
        return self.runner.client.memory.device != "cpu"

    @property
    def clock_comparison(self) -> ClockComparison:
        return ClockComparison.from_calls(self._timed_calls, self.runner.null_calls, disturbed=self._device_is_shared)

    def find_false_time(self) -> Reason | None:
        """The reason to reject a time that is not all of the work: work between the calls, or a self-reported time
        that contradicts the external timer; else None."""
        null_calls, num_state = self.runner.null_calls, len(self.runner.state_kinds)
        output_bytes = sum(self.runner.client.output_sizes_bytes)
        if reason := find_touched_memory(self._timed_calls, null_calls, output_bytes):
            return reason
        if find_computing(self._timed_calls, null_calls, num_state):
            end_s, repeated = wall_s() + IDLE_CALLS_S, []
            while len(repeated) < IDLE_CALLS and wall_s() < end_s:
                repeated.append(self._redraw(IDLE_START_INDEX + len(repeated))[0].timed_call)
            if reason := find_computing(self._timed_calls, null_calls, num_state, repeated=repeated):
                return reason
        if len(self._false_times) < MIN_FALSE_TIMES:
            return None
        clocks = self._false_times[-1]
        reported, external = time_text(clocks.observed_claim_us), time_text(clocks.external_min_us)
        return Reason(code="false-time", detail=f"self-reported {reported} for a call that took at least {external}")


@dataclass
class SeriesVerification:
    """Series of calls with fresh inputs of the problem's own, timed and checked as in a benchmark.

    Attributes:
        num_calls: in each series; does not depend on the candidate.
        call_us: median time of a call of these series on the external clock.
    """

    series: CheckedSeries
    num_calls: int
    call_us: float | None = None

    @classmethod
    def plan(
        cls, runner: InspectedRunner, reference: Reference, template: ObservedCall, checker: OutputChecker
    ) -> SeriesVerification | None:
        """The series for a runner that has not loaded its candidate yet; None where the program allows none."""
        plan = SeriesPlan.of(reference, template, runner.device)
        count = min(plan.max_calls, MAX_SERIES_CALLS, max(2, int(SERIES_US / max(reference.time_us(), MIN_TIME_US))))
        if count < 2:
            return None
        runner.input_series, runner.chained = reference.make_input_series(0, count), plan.chained
        return cls(CheckedSeries(runner, reference, plan, checker, reference.make_rng("series")), count)

    def run(self, first_index: int) -> Reason | None:
        """Make all series; the reason to reject the candidate, or None.

        Args:
            first_index: index of the first input set.
        Raises:
            LimitError, TaskError, TamperingError: the candidate failed.
        """
        series, client = self.series, self.series.runner.client
        times_us, thorough = [], series.rng.randrange(NUM_SERIES)
        client.copies_outputs = client.kept.are_reused
        for number, (inputs, seed) in enumerate(itertools.islice(self._draw_inputs(first_index), NUM_SERIES)):
            made = series.run(inputs, seed, read_outputs=True)
            times_us.append(trusted_time_us(made.timed_call, series.runner.null_series) / self.num_calls)
            reason = series.check(made.observed, inputs, seed, thorough=number == thorough)
            if reason := reason or series.decide_near_limit(self._draw_inputs(first_index + NUM_SERIES)):
                return reason
        client.copies_outputs = False
        self.call_us = median(times_us)
        return series.find_false_time(self.call_us, self.num_calls)

    def _draw_inputs(self, first_index: int) -> Iterator[tuple[list[Args], int]]:
        reference = self.series.reference
        for index in itertools.count(first_index):
            yield reference.make_timed_inputs(index, self.num_calls), reference.call_seed(index)
