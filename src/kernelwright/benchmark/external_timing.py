"""Arms in processes of their own, timed from outside: by the judge's clock, in calls of which every one has fresh
values at a fresh address, and of which any one may be judged.

An arm that remembers what it was given gains nothing here, nor does one that knows when it is timed: what is judged and
what is timed are the same calls. Arms take turns, each stopped while another runs. A call of microseconds is timed in a
series, long enough that the judge need not look before it is over.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any, Self

import torch

from kernelwright.benchmark.variants import BASELINE_NAMES
from kernelwright.core.cache import digest
from kernelwright.core.errors import KernelwrightError
from kernelwright.core.progress import report_stage
from kernelwright.core.timing import Conditions, Timing
from kernelwright.core.units import number_text, time_text
from kernelwright.core.verdict import Reason
from kernelwright.measure.clock import wall_s
from kernelwright.measure.clock_agreement import ClockComparison, TimedCall
from kernelwright.measure.conditions import allocation_policy
from kernelwright.measure.statistics import median_interval
from kernelwright.problems.problem import Args, Problem, tensor_leaves
from kernelwright.sandbox import ForkServer, Limits
from kernelwright.verification.accuracy.comparison import format_policy
from kernelwright.verification.accuracy.near_limit import MIN_DRAWS, DrawResult
from kernelwright.verification.accuracy.prescreen import prescreen_distance
from kernelwright.verification.execution import ObservedCall
from kernelwright.verification.output_checker import OutputChecker, to_reason
from kernelwright.verification.reference import Reference
from kernelwright.verification.transport.runners import PRELOAD_MODULES, InspectedRunner
from kernelwright.verification.verdict import SEED_BITS, mark_timed_call

TARGET_SERIES_US = 5_000.0
"""Of a series, if so many calls fit: what it costs to begin and end one is known to some tens."""
MAX_CALLS_PER_SERIES = 1024
MAX_INPUT_BYTES, MAX_OUTPUT_BYTES = 64 << 20, {"cpu": 8 << 20, "cuda": 256 << 20}
"""Of a series: outputs of all its calls are held until it is over, and read."""
HOST_LAUNCH_US = 60.0
"""A call on a device that the host needs longer for is timed with what the host needs: during a series' window before
the first call, it gets that far ahead."""
COLD_INPUT_BYTES = 1 << 20
"""Inputs of a call from here on come from memory: what is smaller lies in a cache wherever it is used."""
WARMUP_ROUNDS, MIN_ROUNDS, MAX_ROUNDS = 2, 5, 15
MAX_OUTLIERS_CHECKED = 8
"""So many calls of a series that are far from the reference are judged: honest candidates may be so in all of them."""
OUTPUT_CHECK_PROBABILITY = 0.5
"""The share of rounds whose outputs are read: which ones, nobody knows beforehand."""
PAIR_BUDGET_S = 2.5
"""After this long no further round begins, once there are enough."""
UNOBSERVED_TIME_SHARE = 0.8
"""The judge comes so much late at most, as it sleeps for what a series took before."""
MIN_TIME_US = 0.001
"""Nothing takes less, whatever a clock says."""


class CandidateRejectedError(Exception):
    """A candidate that was caught in a timed call."""

    def __init__(self, name: str, reason: Reason) -> None:
        super().__init__(f"{name}: {reason.code}")
        self.name, self.reason = name, reason


@dataclass
class _Variant:
    name: str
    nursery: ForkServer
    target: str
    baseline: str = ""
    """The baseline that it is."""
    runner: InspectedRunner = field(init=False)
    output_checker: OutputChecker = field(init=False)
    timed_calls: list[TimedCall] = field(default_factory=list)

    def close(self) -> None:
        """Ends its processes."""
        if hasattr(self, "runner"):
            self.runner.__exit__()
        self.nursery.close()


class ExternalBenchmark:
    """Pairs of fresh processes, one for each arm. A context manager: its nurseries stay warm from one to the next.

    Args:
        problem: from a file.
        candidates: files by the names of their arms.
        baselines: any of `arms.BASELINES`.
        device: on which they compute.
        cache_bytes: of the last level of cache, which no call finds its inputs in.
        expected_call_us: what a call of the fastest candidate takes, as far as it is known.
        tolerance: as `verify` takes it.
        seed: of values and turns; None is a secret one.
    Attributes:
        rejections: by the names of their arms, why candidates were rejected in timed calls. They have no arm from then
            on; the others keep theirs, and every time that was taken of them.
    """

    def __init__(
        self,
        problem: Problem,
        candidates: dict[str, str],
        baselines: Sequence[str],
        *,
        device: str,
        cache_bytes: int,
        limits: Limits,
        expected_call_us: float | None = None,
        tolerance: tuple[float, float] | None = None,
        seed: int | None = None,
    ) -> None:
        assert problem.source
        self._problem, self._device, self._cache_bytes, self._limits = problem, device, cache_bytes, limits
        self._candidates, self._baselines, self._policy = candidates, baselines, format_policy(tolerance)
        seed = secrets.randbits(SEED_BITS) if seed is None else seed
        # Not the values of `verify`, which may have been given the same seed.
        self._reference = Reference(problem, device, int(digest(str(seed), "bench")[:15], 16), perturb_parameters=False)
        self._rng = self._reference.make_rng("turns")
        self._series_index = 0
        self.rejections: dict[str, Reason] = {}
        self._variants: list[_Variant] = []
        self._model = self._reference.probe()
        self._max_calls, self._cold_inputs = self._series_limits()
        self._num_calls = self._calls_per_series(expected_call_us or self._time_reference())
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        def warm(*more: str) -> ForkServer:
            return self._stack.enter_context(ForkServer((*PRELOAD_MODULES, *more)))

        source = self._problem.source or ""
        self._variants = [_Variant(name, warm(), target) for name, target in self._candidates.items()]
        self._variants += [
            _Variant(BASELINE_NAMES[which], warm("kernelwright.benchmark.baselines"), source, which)
            for which in self._baselines
        ]
        return self

    def __exit__(self, *fault: Any) -> None:
        self._stack.close()

    def time_pair(self, what: str) -> dict[str, Timing]:
        """The times of every arm in a fresh process; nothing where there were candidates and all are caught.

        Args:
            what: it is, for whoever waits.
        """
        with contextlib.ExitStack() as opened:
            for arm in list(self._variants):
                report_stage(f"{what}: loading {arm.name}")
                with self._drop_if_rejected(arm), _reject_on_error(arm):
                    self._load_variant(arm, opened)
            report_stage(f"{what}: timing {', '.join(arm.name for arm in self._variants)}")
            for _ in range(WARMUP_ROUNDS):
                self._run_round(thorough=False)
            if self._all_rejected:
                return {}
            shortest_us = min(arm.timed_calls[-1].claimed_us for arm in self._variants)
            calls = self._calls_per_series(shortest_us / self._num_calls)
            if calls < 2 * self._num_calls:
                return self._time_rounds()
        self._num_calls = calls  # the fastest is over too soon
        return self.time_pair(what)

    @property
    def _all_rejected(self) -> bool:
        """Whether no candidate is left of those that there were: then there is nothing to compare."""
        return bool(self._candidates) and all(arm.baseline for arm in self._variants)

    @contextlib.contextmanager
    def _drop_if_rejected(self, arm: _Variant) -> Iterator[None]:
        """A candidate that is caught meanwhile is gone from the arms, and its processes with it."""
        try:
            yield
        except CandidateRejectedError as found:
            self.rejections[arm.name] = found.reason
            self._variants.remove(arm)
            arm.close()

    def recheck(self, names: Collection[str]) -> dict[str, str]:
        """Asks of candidates whose times are less than can be: fresh processes and fresh values, in series of which
        every call is held against the reference; the other shapes that the problem declares; the device's kernels.

        Returns:
            What was found of each, in words; those that are rejected by it are in `rejections`.
        """
        found = {}
        for arm in [arm for arm in self._variants if arm.name in names]:
            report_stage(f"asking {arm.name} again, whose time is less than can be")
            with self._drop_if_rejected(arm), contextlib.ExitStack() as opened:
                with _reject_on_error(arm):
                    self._load_variant(arm, opened)
                found[arm.name] = ", ".join(self._recheck_variant(arm))
        return found

    def _recheck_variant(self, arm: _Variant) -> Iterator[str]:
        for _ in range(MIN_ROUNDS):
            inputs = self._draw_inputs()
            with _reject_on_error(arm):
                self._run_series(arm, inputs, check_outputs=True, thorough=True)
        self._reject_false_clock(arm, arm.timed_calls)
        calls = number_text(MIN_ROUNDS * self._num_calls, "call")
        yield f"{calls} with fresh values were right at a glance, {MIN_ROUNDS} of them as strictly as any"
        shapes, reason = arm.output_checker.check_held_out(self._reference)
        if reason := reason or arm.output_checker.decide_near_limit(
            self._reference, list(arm.output_checker.near_limits.pending)
        ):
            raise CandidateRejectedError(arm.name, reason)
        if shapes:
            yield f"as were {number_text(shapes, 'other shape')}"
        if self._device == "cuda":
            inputs = self._draw_inputs()[0]
            with _reject_on_error(arm):
                traced = arm.runner.client.call(inputs, read_outputs=True, trace=True)
                assert traced.observed
                reason = arm.output_checker.check(
                    traced.observed, self._reference.make_set(inputs)
                ) or self._resample_near_limit(arm)
            if reason:
                raise CandidateRejectedError(arm.name, reason)
            took = time_text(sum(one.time_us for one in traced.kernels))
            yield f"its {number_text(len(traced.kernels), 'kernel')} took {took} in a call by themselves"

    def _time_rounds(self) -> dict[str, Timing]:
        start = wall_s()
        thorough = self._rng.randrange(MIN_ROUNDS)
        for number in range(MAX_ROUNDS):
            if number >= MIN_ROUNDS and wall_s() - start > PAIR_BUDGET_S:
                break
            self._run_round(thorough=number == thorough)
            if self._all_rejected:
                return {}
        found = {}
        for arm in list(self._variants):
            with self._drop_if_rejected(arm):
                found[arm.name] = self._summarize(arm)
        return {} if self._all_rejected else found

    def _run_round(self, *, thorough: bool) -> None:
        """A series of every arm, all with the same values."""
        inputs = self._draw_inputs()
        for arm in self._rng.sample(self._variants, len(self._variants)):
            look = not arm.baseline and (thorough or self._rng.random() < OUTPUT_CHECK_PROBABILITY)
            with self._drop_if_rejected(arm), _reject_on_error(arm):
                self._run_series(arm, inputs, check_outputs=look, thorough=thorough)

    def _load_variant(self, arm: _Variant, opened: contextlib.ExitStack) -> None:
        arm.timed_calls = []
        source = self._problem.source or ""
        arm.runner = runner = opened.enter_context(
            InspectedRunner(source, arm.target, self._device, self._limits, arm.nursery)
        )
        runner.input_series, runner.launch_ahead_us = self._draw_inputs(), TARGET_SERIES_US
        if arm.baseline:
            runner.load_task = "kernelwright.benchmark.baselines:load_baseline", {"which": arm.baseline}
        runner.load(runner.input_series[0], self._model)
        if self._device == "cpu":
            runner.client.timer.cache_flush_bytes = self._cache_bytes if self._cold_inputs else 0
        runner.client.requires_grad = self._problem.needs_grad(runner.input_series[0])
        keeps, deterministic = self._reference.state_names, self._problem.deterministic
        arm.output_checker = OutputChecker(runner, self._model, keeps, self._policy, deterministic)
        runner.client.child.stop()

    def _run_series(self, arm: _Variant, inputs: list[Args], *, check_outputs: bool, thorough: bool) -> None:
        """One series of an arm, which stands still afterwards until its next turn."""
        line = arm.runner.client
        made = line.call_series(inputs, read_outputs=check_outputs, structure=self._model.structure)
        arm.timed_calls.append(made.timed_call)
        if check_outputs and (
            reason := self._find_rejection(arm.output_checker, made.observed, inputs, thorough)
            or self._resample_near_limit(arm)
        ):
            raise CandidateRejectedError(arm.name, mark_timed_call(reason))
        line.child.stop()

    def _find_rejection(
        self, answers: OutputChecker, observed: list[ObservedCall], inputs: list[Args], thorough: bool
    ) -> Reason | None:
        """What is wrong with a call. Judged are those that show something, and the farthest of those far from the
        reference, which is asked of any one or, thoroughly, of each; then one more is judged. No call can draw the
        judge away from the others."""
        any_one = self._rng.randrange(len(observed))
        odd = {at for at, one in enumerate(observed) if self._has_side_effects(one)}
        asked = set(range(len(observed))) - odd if thorough else {any_one} - odd
        away = [(prescreen_distance(observed[at], inputs[at], self._reference.run(inputs[at])), at) for at in asked]
        far = [at for apart, at in sorted(away, reverse=True)[:MAX_OUTLIERS_CHECKED] if apart > 1]
        more = [any_one] if thorough else []
        for at in sorted({*odd, *far, *more}):
            drawn = self._reference.make_set(inputs[at])
            if reason := answers.check(observed[at], drawn):
                return reason
            if at == any_one and answers.limit_ratio is not None:
                answers.near_limits.add(drawn.kind, answers.limit_ratio)
        return None

    def _has_side_effects(self, one: ObservedCall) -> bool:
        """Whether a call shows more than its outputs that the reference's does not."""
        more = one.mutated_inputs.keys() - self._mutated | one.changed_state.keys() - self._state
        return bool(more or one.out_of_bounds_inputs or not one.complete_on_return)

    def _resample_near_limit(self, arm: _Variant) -> Reason | None:
        """What calls drawn by chance out of more such series say, where one was over the limit of accuracy by little:
        those that were judged were among the farthest, which says nothing of the rest."""
        answers = arm.output_checker

        def calls() -> Iterator[tuple[ObservedCall, Args]]:
            while True:
                inputs = self._draw_inputs()
                made = arm.runner.client.call_series(inputs, read_outputs=True, structure=self._model.structure)
                for at in self._rng.sample(range(len(inputs)), min(len(inputs), MIN_DRAWS)):
                    yield made.observed[at], inputs[at]

        more = calls()

        def draw(number: int) -> DrawResult:
            observed, inputs = next(more)
            return DrawResult(answers.check(observed, self._reference.make_set(inputs)), answers.limit_ratio)

        found = (answers.near_limits.decide(kind, draw) for kind in list(answers.near_limits.pending))
        return next(filter(None, found), None)

    def _summarize(self, arm: _Variant) -> Timing:
        windows = arm.timed_calls[WARMUP_ROUNDS:]
        on_device = self._device == "cuda"
        self._reject_false_clock(arm, windows)
        samples = [_trusted_time_us(one, arm.runner.null_calls) / self._num_calls for one in windows]
        low, high = median_interval(samples)
        return Timing(
            name=arm.name,
            time_us=median(samples),
            low_us=low,
            high_us=high,
            samples_us=tuple(samples),
            repetitions=self._num_calls,
            conditions=Conditions(
                device="cuda" if on_device else "cpu",
                clock="external",
                cache="cold" if self._cold_inputs else "warm",
                allocation="caching allocator" if on_device else allocation_policy(),
                threads=None if on_device else torch.get_num_threads(),
            ),
        )

    def _reject_false_clock(self, arm: _Variant, windows: list[TimedCall]) -> None:
        clocks = ClockComparison.from_calls(windows, arm.runner.null_calls, disturbed=self._device == "cuda")
        if not arm.baseline and clocks.underreports:
            detail = (
                f"its own clock says {clocks.observed_claim_us:.0f} us for what took "
                f"{clocks.external_min_us:.0f} us at least"
            )
            raise CandidateRejectedError(arm.name, Reason(code="false-time", detail=detail))

    def _draw_inputs(self) -> list[Args]:
        """Fresh values for a series."""
        self._series_index += 1
        return self._reference.make_input_series(self._series_index, self._num_calls)

    def _series_limits(self) -> tuple[int, bool]:
        """How many calls are timed at once at most, one alone where it depends on those before it; and whether each
        finds its inputs in memory."""
        inputs = self._reference.make_inputs(0)
        right = self._reference.make_set(inputs).expected
        self._mutated, self._state = set(right.mutated_inputs), set(right.initial_state)
        read, written = sum(one.nbytes for one in tensor_leaves(inputs)), sum(one.nbytes for one in right.reference)
        alone = right.mutated_inputs or right.initial_state or self._reference.uses_random_numbers(inputs)
        fits = MAX_CALLS_PER_SERIES, MAX_INPUT_BYTES // max(1, read), MAX_OUTPUT_BYTES[self._device] // max(1, written)
        return 1 if alone else max(1, min(fits)), read >= COLD_INPUT_BYTES or self._device == "cuda"

    def _calls_per_series(self, call_us: float) -> int:
        """So many calls as fill a window."""
        least_us = HOST_LAUNCH_US if self._device == "cuda" else MIN_TIME_US
        return max(1, min(self._max_calls, int(TARGET_SERIES_US / max(call_us, least_us))))

    def _time_reference(self) -> float:
        inputs, took_us = self._reference.make_inputs(0), []
        for _ in range(3):
            start = wall_s()
            self._reference.run_values(inputs)
            took_us.append((wall_s() - start) * 1e6)
        return min(took_us)


def _trusted_time_us(window: TimedCall, empty: Sequence[TimedCall]) -> float:
    """What the worker claims, where the judge's clock leaves it room; else the nearest to it that is left. Of a series
    that it never saw unfinished the judge knows only when it was over."""
    low, nothing_us, high = quantiles(map(_midpoint_us, empty), n=4)
    judged_us = max(MIN_TIME_US, _midpoint_us(window) - nothing_us)
    unsure_us = max(high - low, (window.completed_us - window.last_running_us) / 2)
    claimed_us = window.claimed_us - median(one.claimed_us for one in empty)
    least_us = max(judged_us - unsure_us, judged_us / 2)
    if not window.last_running_us:
        least_us = UNOBSERVED_TIME_SHARE * (window.completed_us - median(one.completed_us for one in empty)) - (
            high - low
        )
    return min(max(claimed_us, least_us, MIN_TIME_US), max(judged_us + unsure_us, least_us))


def _midpoint_us(window: TimedCall) -> float:
    """Of when it was last seen unfinished and first seen done."""
    return (window.last_running_us + window.completed_us) / 2


@contextlib.contextmanager
def _reject_on_error(arm: _Variant) -> Iterator[None]:
    """What a candidate does wrong rejects it; of a baseline it is an error."""
    try:
        yield
    except KernelwrightError as fault:
        if arm.baseline:
            raise
        raise CandidateRejectedError(arm.name, to_reason(fault)) from fault
