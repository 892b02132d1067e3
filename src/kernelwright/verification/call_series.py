"""Calls back to back in one timed interval: how many a program allows, and the check of their outputs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch.utils import _pytree as pytree

from kernelwright.core.units import time_text
from kernelwright.core.verdict import Reason
from kernelwright.measure.clock_agreement import ClockComparison
from kernelwright.problems.problem import Args, tensor_leaves
from kernelwright.sandbox.process_memory import pause
from kernelwright.verification.accuracy.chained_inputs import find_changes
from kernelwright.verification.accuracy.near_limit import MIN_DRAWS, DrawResult
from kernelwright.verification.accuracy.prescreen import prescreen_distance
from kernelwright.verification.execution import ObservedCall
from kernelwright.verification.output_checker import OutputChecker
from kernelwright.verification.reference import Reference
from kernelwright.verification.transport.call_chain import ChainedLeaf, compiled_library
from kernelwright.verification.transport.client import SeriesResult
from kernelwright.verification.transport.control_block import MAX_EXTENTS
from kernelwright.verification.transport.runners import InspectedRunner

MAX_CALLS = 1024
MAX_INPUT_BYTES, MAX_OUTPUT_BYTES = 64 << 20, {"cpu": 8 << 20, "cuda": 256 << 20}
"""Limits for a series: outputs of all calls stay allocated until the series ends and they are read."""
MAX_OUTLIERS_CHECKED = 8
"""Maximum number of outlier calls checked per series: with a legitimate candidate all calls may be outliers."""
NUM_SINGLE_CALLS, NUM_COMPARISONS, RETRY_DELAY_S = 5, 3, 0.1
MAX_GAIN, MAX_GAIN_US = 8.0, 200.0
"""A single call may take this many times as long as one of a series, and this much longer."""


@dataclass(frozen=True)
class SeriesPlan:
    """What a program allows in a series.

    Attributes:
        max_calls: 1 if a call depends on the state that an earlier one leaves, or if nothing can make the inputs of a
            call on the host depend on the outputs of the one before.
        chained: as in `CandidateClient.call_series`; empty on a device.
        input_bytes: of one call.
        structure: of one result.
        mutated, state: the inputs and the state that the reference changes.
    """

    max_calls: int
    chained: tuple[ChainedLeaf, ...]
    input_bytes: int
    structure: str
    mutated: frozenset[int]
    state: frozenset[str]

    @classmethod
    def of(cls, reference: Reference, template: ObservedCall, device: str) -> SeriesPlan:
        """The plan for a reference and its result for the problem's own inputs."""
        inputs = reference.make_inputs(0)
        expected = reference.make_set(inputs, reference.call_seed(0)).expected
        chained = ()
        if device == "cpu" and compiled_library():
            chained = _chain_leaves(inputs, reference, expected.mutated_inputs)
        is_alone = bool(expected.initial_state) or expected.draws_random
        if device == "cpu":
            is_alone = is_alone or not any(one.change for one in chained)
        else:
            is_alone = is_alone or bool(expected.mutated_inputs)
        input_bytes = sum(one.nbytes for one in tensor_leaves(inputs))
        output_bytes = sum(one.nbytes for one in expected.reference)
        max_calls = min(
            MAX_CALLS,
            MAX_INPUT_BYTES // max(1, input_bytes),
            MAX_OUTPUT_BYTES[device] // max(1, output_bytes),
            MAX_EXTENTS // max(1, len(template.tensors)),
        )
        return cls(
            1 if is_alone else max(1, max_calls),
            chained,
            input_bytes,
            template.structure,
            frozenset(expected.mutated_inputs),
            frozenset(expected.initial_state),
        )


def _chain_leaves(inputs: Args, reference: Reference, mutated: Sequence[int]) -> tuple[ChainedLeaf, ...]:
    """What the chain does with each leaf of the arguments.

    Args:
        mutated: indices of the input tensors that the reference changes.
    """
    leaves, written = pytree.tree_leaves(inputs), {id(tensor_leaves(inputs)[at]) for at in mutated}
    changes = find_changes(inputs, lambda changed: reference.run(changed) is not None)
    return tuple(ChainedLeaf(change, id(leaf) in written) for leaf, change in zip(leaves, changes, strict=True))


@dataclass
class CheckedSeries:
    """Makes the series of one candidate and checks their outputs.

    Args:
        rng: chooses the calls that are checked.
    """

    runner: InspectedRunner
    reference: Reference
    plan: SeriesPlan
    checker: OutputChecker
    rng: random.Random

    def run(self, inputs: list[Args], seed: int, *, read_outputs: bool) -> SeriesResult:
        """Make one series.

        Raises:
            LimitError, TaskError, TamperingError: as `CandidateClient.call_series`.
        """
        return self.runner.client.call_series(
            inputs, read_outputs=read_outputs, structure=self.plan.structure, seed=seed, chained=self.plan.chained
        )

    def check(self, observed: list[ObservedCall], inputs: list[Args], seed: int, *, thorough: bool) -> Reason | None:
        """The reason to reject a series, if any.

        Fully checks all calls with unexpected side effects and the prescreened calls that are farthest from the
        reference: one random call is prescreened, or every call if `thorough`. A thorough check always includes the
        random call, so that no outlier can divert the judge from the other calls.
        """
        random_call = self.rng.randrange(len(observed))
        with_side_effects = {i for i, call in enumerate(observed) if self._has_side_effects(call)}
        screened = set(range(len(observed))) - with_side_effects if thorough else {random_call} - with_side_effects
        distances = [
            (prescreen_distance(observed[i], inputs[i], self.reference.run(inputs[i], seed)), i) for i in screened
        ]
        outliers = [i for distance, i in sorted(distances, reverse=True)[:MAX_OUTLIERS_CHECKED] if distance > 1]
        extra = [random_call] if thorough else []
        for i in sorted({*with_side_effects, *outliers, *extra}):
            input_set = self.reference.make_timed_set(inputs[i], seed)
            if reason := self.checker.check(observed[i], input_set):
                return reason
            if i == random_call and self.checker.limit_ratio is not None:
                self.checker.near_limits.add(input_set.kind, self.checker.limit_ratio)
        return None

    def decide_near_limit(self, draw_inputs: Iterator[tuple[list[Args], int]]) -> Reason | None:
        """Decide calls that exceeded the accuracy limit slightly by checking random calls of more series.

        The calls checked before were the farthest from the reference, a biased sample.

        Args:
            draw_inputs: inputs of the calls of further series, each with its seed.
        """

        def calls() -> Iterator[tuple[ObservedCall, Args, int]]:
            for inputs, seed in draw_inputs:
                series = self.run(inputs, seed, read_outputs=True)
                for i in self.rng.sample(range(len(inputs)), min(len(inputs), MIN_DRAWS)):
                    yield series.observed[i], inputs[i], seed

        random_calls = calls()

        def draw(number: int) -> DrawResult:
            observed, inputs, seed = next(random_calls)
            checked = self.checker.check(observed, self.reference.make_timed_set(inputs, seed))
            return DrawResult(checked, self.checker.limit_ratio)

        near_limits = self.checker.near_limits
        return next(filter(None, (near_limits.decide(kind, draw) for kind in list(near_limits.pending))), None)

    def find_false_time(self, series_us: float, num_calls: int) -> Reason | None:
        """The reason to reject a time per call of a series of this many calls, which single calls contradict.

        A correct program gains from warm caches and threads that are awake; one that gains more than `MAX_GAIN` and
        `MAX_GAIN_US` in every comparison did the work of several calls at once.
        """
        if num_calls < 2:
            return None
        single_us = 0.0
        for number in range(NUM_COMPARISONS):
            single_us = self._time_single_calls(number)
            if single_us <= MAX_GAIN * series_us + MAX_GAIN_US:
                return None
            pause(RETRY_DELAY_S)
        detail = f"{time_text(series_us)} a call in a series, but at least {time_text(single_us)} in a single call"
        return Reason(code="false-time", detail=detail)

    def _time_single_calls(self, number: int) -> float:
        """Lower bound of the external time of a single call."""
        inputs = self.reference.make_input_series(number, NUM_SINGLE_CALLS, purpose="single calls")
        calls = [self.runner.client.call(one, read_outputs=False).timed_call for one in inputs]
        return ClockComparison.from_calls(calls, self.runner.null_calls).external_min_us

    def _has_side_effects(self, call: ObservedCall) -> bool:
        """Whether a call has side effects that the reference does not have."""
        unexpected = call.mutated_inputs.keys() - self.plan.mutated | call.changed_state.keys() - self.plan.state
        return bool(unexpected or call.out_of_bounds_inputs or not call.complete_on_return)
