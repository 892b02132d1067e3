"""External timing: each variant runs in its own process and is timed by the judge's clock. Every call has new values at
a new address, and any call may be checked.

Caching earlier inputs or detecting the timing gains a candidate nothing, because the checked calls are the timed calls.
Variants are interleaved; each process is stopped while another runs. Calls of microseconds are timed in a series that
is long enough for the judge to poll only at its end.
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
from kernelwright.verification.accuracy.chained_inputs import chained_leaves
from kernelwright.verification.accuracy.comparison import format_policy
from kernelwright.verification.accuracy.near_limit import MIN_DRAWS, DrawResult
from kernelwright.verification.accuracy.prescreen import prescreen_distance
from kernelwright.verification.attacks.idle_work import find_idle_work
from kernelwright.verification.execution import ObservedCall
from kernelwright.verification.output_checker import OutputChecker, to_reason
from kernelwright.verification.reference import Reference
from kernelwright.verification.transport.call_chain import compiled_library
from kernelwright.verification.transport.client import CandidateClient
from kernelwright.verification.transport.control_block import MAX_EXTENTS
from kernelwright.verification.transport.runners import PRELOAD_MODULES, InspectedRunner
from kernelwright.verification.verdict import SEED_BITS, mark_timed_call

TARGET_SERIES_US = 5_000.0
"""Target length of a series, if enough calls fit. Start and end of a series are known to some tens of us."""
MAX_CALLS_PER_SERIES = 1024
MAX_INPUT_BYTES, MAX_OUTPUT_BYTES = 64 << 20, {"cpu": 8 << 20, "cuda": 256 << 20}
"""Limits for a series: outputs of all calls stay allocated until the series ends and they are read."""
HOST_LAUNCH_US = 60.0
"""Host time to launch one call. The device is kept busy before the first call of a series so that the host gets ahead;
a call that needs more host time than this is timed including its host time."""
COLD_INPUT_BYTES = 1 << 20
"""From this input size a call reads its inputs from DRAM; smaller inputs stay in a cache in real use too."""
WARMUP_ROUNDS, MIN_ROUNDS, MAX_ROUNDS = 2, 5, 15
MAX_OUTLIERS_CHECKED = 8
"""Maximum number of outlier calls checked per series: with a legitimate candidate all calls may be outliers."""
OUTPUT_CHECK_PROBABILITY = 0.5
"""Share of rounds whose outputs are read; chosen at random, so the candidate cannot predict them."""
PAIR_BUDGET_S = 2.5
"""No new round starts after this time, once `MIN_ROUNDS` are done."""
MAX_UNCERTAINTY = 0.1
"""Share of the external time up to which the worker's own clock may correct it."""
REUSE_CALLS = 3
"""Calls that show whether a candidate writes all outputs to one buffer."""
MIN_TIME_US = 0.001
"""Smallest time that is reported."""


class CandidateRejectedError(Exception):
    """A candidate was rejected during timing."""

    def __init__(self, name: str, reason: Reason) -> None:
        super().__init__(f"{name}: {reason.code}")
        self.name, self.reason = name, reason


@dataclass
class _Variant:
    name: str
    fork_server: ForkServer
    target: str
    baseline: str = ""
    """Name of the baseline; empty for a candidate."""
    runner: InspectedRunner = field(init=False)
    output_checker: OutputChecker = field(init=False)
    timed_calls: list[TimedCall] = field(default_factory=list)

    def close(self) -> None:
        """End the variant's processes."""
        if hasattr(self, "runner"):
            self.runner.__exit__()
        self.fork_server.close()


class ExternalBenchmark:
    """Times pairs of new processes, one per variant. Context manager that keeps its fork servers from pair to pair.

    Args:
        problem: must be loaded from a file.
        candidates: files by variant name.
        baselines: any of `variants.BASELINES`.
        device: `cpu` or `cuda`.
        cache_bytes: size of the last-level cache, flushed so that no call finds its inputs there.
        expected_call_us: time of one call of the fastest candidate, if known.
        tolerance: as in `verify`.
        seed: of input values and variant order; None draws a secret one.
    Attributes:
        rejections: by variant name, why candidates were rejected during timing. A rejected candidate is no longer
            timed; the other variants keep all their times.
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
        # Other values than in `verify`, even with the same seed.
        self._reference = Reference(problem, device, int(digest(str(seed), "bench")[:15], 16), perturb_parameters=False)
        self._rng = self._reference.make_rng("turns")
        self._series_index = 0
        self.rejections: dict[str, Reason] = {}
        self._variants: list[_Variant] = []
        self._model = self._reference.probe()
        self._chained = chained_leaves(self._reference.make_inputs(0)) if device == "cpu" else []
        self._max_calls, self._cold_inputs = self._series_limits()
        self._num_calls = self._calls_per_series(expected_call_us or self._time_reference())
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        def fork_server(*more: str) -> ForkServer:
            return self._stack.enter_context(ForkServer((*PRELOAD_MODULES, *more)))

        source = self._problem.source or ""
        self._variants = [_Variant(name, fork_server(), target) for name, target in self._candidates.items()]
        self._variants += [
            _Variant(BASELINE_NAMES[which], fork_server("kernelwright.benchmark.baselines"), source, which)
            for which in self._baselines
        ]
        return self

    def __exit__(self, *_: Any) -> None:
        self._stack.close()

    def time_pair(self, stage: str) -> dict[str, Timing]:
        """Time every variant in a new process; empty if there were candidates and all are rejected.

        Args:
            stage: progress text.
        """
        with contextlib.ExitStack() as opened:
            for variant in list(self._variants):
                report_stage(f"{stage}: loading {variant.name}")
                with self._drop_if_rejected(variant), _reject_on_error(variant):
                    self._load_variant(variant, opened)
            report_stage(f"{stage}: timing {', '.join(variant.name for variant in self._variants)}")
            for _ in range(WARMUP_ROUNDS):
                self._run_round(thorough=False)
            if self._all_rejected:
                return {}
            shortest_us = min(variant.timed_calls[-1].completed_us for variant in self._variants)
            calls = self._calls_per_series(shortest_us / self._num_calls)
            if calls < 2 * self._num_calls:
                return self._time_rounds()
        self._num_calls = calls  # the fastest variant's series is too short
        return self.time_pair(stage)

    @property
    def _all_rejected(self) -> bool:
        """Whether there were candidates and all of them are rejected, so that nothing is left to compare."""
        return bool(self._candidates) and all(variant.baseline for variant in self._variants)

    @contextlib.contextmanager
    def _drop_if_rejected(self, variant: _Variant) -> Iterator[None]:
        """Record a rejection raised in the block, remove the variant and end its processes."""
        try:
            yield
        except CandidateRejectedError as error:
            self.rejections[variant.name] = error.reason
            self._variants.remove(variant)
            variant.close()

    def recheck(self, names: Collection[str]) -> dict[str, str]:
        """Check candidates with implausible times again in new processes.

        Checks every call of series with new values against the reference, the problem's other declared shapes, and on
        a GPU the kernels of one traced call.

        Returns:
            A summary by variant name; candidates rejected here are in `rejections`.
        """
        summaries = {}
        for variant in [variant for variant in self._variants if variant.name in names]:
            report_stage(f"checking {variant.name} again: its time is below the datasheet bound")
            with self._drop_if_rejected(variant), contextlib.ExitStack() as opened:
                with _reject_on_error(variant):
                    self._load_variant(variant, opened)
                summaries[variant.name] = ", ".join(self._recheck_variant(variant))
        return summaries

    def _recheck_variant(self, variant: _Variant) -> Iterator[str]:
        for _ in range(MIN_ROUNDS):
            inputs, seed = self._draw_inputs()
            with _reject_on_error(variant):
                self._run_series(variant, inputs, seed, check_outputs=True, thorough=True)
        self._reject_false_clock(variant, variant.timed_calls)
        calls = number_text(MIN_ROUNDS * self._num_calls, "call")
        yield f"{calls} with new values passed the quick check, {MIN_ROUNDS} of them the full check"
        shapes, reason = variant.output_checker.check_held_out(self._reference)
        if reason := reason or variant.output_checker.decide_near_limit(
            self._reference, list(variant.output_checker.near_limits.pending)
        ):
            raise CandidateRejectedError(variant.name, reason)
        if shapes:
            yield f"{number_text(shapes, 'other shape')} passed"
        if self._device == "cuda":
            (inputs, *_), seed = self._draw_inputs()
            with _reject_on_error(variant):
                traced = variant.runner.client.call(inputs, read_outputs=True, trace=True, seed=seed)
                assert traced.observed
                reason = variant.output_checker.check(
                    traced.observed, self._reference.make_timed_set(inputs, seed)
                ) or self._resample_near_limit(variant)
            if reason:
                raise CandidateRejectedError(variant.name, reason)
            took = time_text(sum(one.time_us for one in traced.kernels))
            yield f"its {number_text(len(traced.kernels), 'kernel')} took {took} in one traced call"

    def _time_rounds(self) -> dict[str, Timing]:
        start = wall_s()
        thorough = self._rng.randrange(MIN_ROUNDS)
        for number in range(MAX_ROUNDS):
            if number >= MIN_ROUNDS and wall_s() - start > PAIR_BUDGET_S:
                break
            self._run_round(thorough=number == thorough)
            if self._all_rejected:
                return {}
        timings = {}
        for variant in list(self._variants):
            with self._drop_if_rejected(variant):
                timings[variant.name] = self._summarize(variant)
        return {} if self._all_rejected else timings

    def _run_round(self, *, thorough: bool) -> None:
        """Run one series of every variant in random order, all with the same values."""
        inputs, seed = self._draw_inputs()
        for variant in self._rng.sample(self._variants, len(self._variants)):
            check_outputs = not variant.baseline and (thorough or self._rng.random() < OUTPUT_CHECK_PROBABILITY)
            with self._drop_if_rejected(variant), _reject_on_error(variant):
                self._run_series(variant, inputs, seed, check_outputs=check_outputs, thorough=thorough)

    def _load_variant(self, variant: _Variant, opened: contextlib.ExitStack) -> None:
        variant.timed_calls = []
        source = self._problem.source or ""
        variant.runner = runner = opened.enter_context(
            InspectedRunner(source, variant.target, self._device, self._limits, variant.fork_server)
        )
        runner.input_series, runner.chained = self._draw_inputs()[0], self._chained
        runner.launch_ahead_us = TARGET_SERIES_US
        if variant.baseline:
            runner.load_task = "kernelwright.benchmark.baselines:load_baseline", {"which": variant.baseline}
        runner.load(runner.input_series[0], self._model)
        if self._device == "cpu":
            runner.client.timer.cache_flush_bytes = self._cache_bytes if self._cold_inputs else 0
        runner.client.requires_grad = self._problem.needs_grad(runner.input_series[0])
        state_names, deterministic = self._reference.state_names, self._problem.deterministic
        variant.output_checker = OutputChecker(runner, self._model, state_names, self._policy, deterministic)
        if not variant.baseline:
            self._find_reused_outputs(runner.client)
        runner.client.child.stop()

    def _find_reused_outputs(self, client: CandidateClient) -> None:
        """Copy every result in the timed calls of a candidate whose calls overwrite the output of the call before."""
        for inputs in self._reference.make_input_series(0, REUSE_CALLS):
            client.call(inputs, read_outputs=True, seed=self._reference.call_seed(0))
        client.copies_outputs = client.kept.are_reused

    def _run_series(
        self, variant: _Variant, inputs: list[Args], seed: int, *, check_outputs: bool, thorough: bool
    ) -> None:
        """Run one series of a variant and stop its process until the next round."""
        client = variant.runner.client
        series = client.call_series(
            inputs, read_outputs=check_outputs, structure=self._model.structure, seed=seed, chained=self._chained
        )
        variant.timed_calls.append(series.timed_call)
        if check_outputs and (
            reason := self._find_rejection(variant.output_checker, series.observed, inputs, seed, thorough)
            or self._resample_near_limit(variant)
        ):
            raise CandidateRejectedError(variant.name, mark_timed_call(reason))
        client.child.stop()

    def _find_rejection(
        self, checker: OutputChecker, observed: list[ObservedCall], inputs: list[Args], seed: int, thorough: bool
    ) -> Reason | None:
        """The reason to reject a series, if any.

        Fully checks all calls with unexpected side effects and the prescreened calls that are farthest from the
        reference: one random call is prescreened, or every call if `thorough`. A thorough check always includes the
        random call, so that no outlier can divert the judge from the other calls.
        """
        random_call = self._rng.randrange(len(observed))
        with_side_effects = {i for i, call in enumerate(observed) if self._has_side_effects(call)}
        screened = set(range(len(observed))) - with_side_effects if thorough else {random_call} - with_side_effects
        distances = [
            (prescreen_distance(observed[i], inputs[i], self._reference.run(inputs[i], seed)), i) for i in screened
        ]
        outliers = [i for distance, i in sorted(distances, reverse=True)[:MAX_OUTLIERS_CHECKED] if distance > 1]
        extra = [random_call] if thorough else []
        for i in sorted({*with_side_effects, *outliers, *extra}):
            input_set = self._reference.make_timed_set(inputs[i], seed)
            if reason := checker.check(observed[i], input_set):
                return reason
            if i == random_call and checker.limit_ratio is not None:
                checker.near_limits.add(input_set.kind, checker.limit_ratio)
        return None

    def _has_side_effects(self, call: ObservedCall) -> bool:
        """Whether a call has side effects that the reference does not have."""
        unexpected = call.mutated_inputs.keys() - self._mutated | call.changed_state.keys() - self._state
        return bool(unexpected or call.out_of_bounds_inputs or not call.complete_on_return)

    def _resample_near_limit(self, variant: _Variant) -> Reason | None:
        """Decide calls that exceeded the accuracy limit slightly by checking random calls of more series.

        The calls checked before were the farthest from the reference, a biased sample.
        """
        checker = variant.output_checker

        def calls() -> Iterator[tuple[ObservedCall, Args, int]]:
            while True:
                inputs, seed = self._draw_inputs()
                series = variant.runner.client.call_series(
                    inputs, read_outputs=True, structure=self._model.structure, seed=seed, chained=self._chained
                )
                for i in self._rng.sample(range(len(inputs)), min(len(inputs), MIN_DRAWS)):
                    yield series.observed[i], inputs[i], seed

        random_calls = calls()

        def draw(number: int) -> DrawResult:
            observed, inputs, seed = next(random_calls)
            checked = checker.check(observed, self._reference.make_timed_set(inputs, seed))
            return DrawResult(checked, checker.limit_ratio)

        reasons = (checker.near_limits.decide(kind, draw) for kind in list(checker.near_limits.pending))
        return next(filter(None, reasons), None)

    def _summarize(self, variant: _Variant) -> Timing:
        timed_calls = variant.timed_calls[WARMUP_ROUNDS:]
        on_device = self._device == "cuda"
        self._reject_false_clock(variant, timed_calls)
        samples = [_trusted_time_us(one, variant.runner.null_calls) / self._num_calls for one in timed_calls]
        low, high = median_interval(samples)
        return Timing(
            name=variant.name,
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

    def _reject_false_clock(self, variant: _Variant, timed_calls: list[TimedCall]) -> None:
        clocks = ClockComparison.from_calls(timed_calls, variant.runner.null_calls, disturbed=self._device == "cuda")
        if variant.baseline:
            return
        output_bytes = sum(variant.runner.client.output_sizes_bytes) * self._num_calls
        if reason := find_idle_work(timed_calls, variant.runner.null_calls, output_bytes):
            raise CandidateRejectedError(variant.name, reason)
        if clocks.underreports:
            detail = (
                f"its own clock reports {clocks.observed_claim_us:.0f} us for calls that took "
                f"at least {clocks.external_min_us:.0f} us"
            )
            raise CandidateRejectedError(variant.name, Reason(code="false-time", detail=detail))

    def _draw_inputs(self) -> tuple[list[Args], int]:
        """New input values for every call of one series, and the seed of the random number generators before the
        first call."""
        self._series_index += 1
        inputs = self._reference.make_timed_inputs(self._series_index, self._num_calls)
        return inputs, self._reference.call_seed(self._series_index)

    def _series_limits(self) -> tuple[int, bool]:
        """The maximum number of calls per series, and whether inputs are cold.

        It is 1 if a call depends on the state that an earlier one leaves, or if nothing can make the inputs of a call
        on the host depend on the outputs of the one before.
        """
        inputs = self._reference.make_inputs(0)
        expected = self._reference.make_set(inputs, self._reference.call_seed(0)).expected
        self._mutated, self._state = set(expected.mutated_inputs), set(expected.initial_state)
        input_bytes = sum(one.nbytes for one in tensor_leaves(inputs))
        output_bytes = sum(one.nbytes for one in expected.reference)
        stateful = expected.initial_state or expected.draws_random
        if self._device == "cpu":
            stateful = stateful or not (any(self._chained) and compiled_library())
        else:
            stateful = stateful or expected.mutated_inputs
        max_calls = min(
            MAX_CALLS_PER_SERIES,
            MAX_INPUT_BYTES // max(1, input_bytes),
            MAX_OUTPUT_BYTES[self._device] // max(1, output_bytes),
            MAX_EXTENTS // max(1, len(self._model.tensors)),
        )
        return 1 if stateful else max(1, max_calls), input_bytes >= COLD_INPUT_BYTES or self._device == "cuda"

    def _calls_per_series(self, call_us: float) -> int:
        """Number of calls that fill `TARGET_SERIES_US`."""
        min_us = HOST_LAUNCH_US if self._device == "cuda" else MIN_TIME_US
        return max(1, min(self._max_calls, int(TARGET_SERIES_US / max(call_us, min_us))))

    def _time_reference(self) -> float:
        inputs, times_us = self._reference.make_inputs(0), []
        for _ in range(3):
            start = wall_s()
            self._reference.run_values(inputs)
            times_us.append((wall_s() - start) * 1e6)
        return min(times_us)


def _trusted_time_us(timed_call: TimedCall, null_calls: Sequence[TimedCall]) -> float:
    """The time by the external clock. The worker's own, which is finer, counts within the uncertainty of the external
    one, and only where that is a small share of it.

    Of a series that was never seen running only the end is known: then the whole time until it was seen counts.
    """
    low, null_us, high = quantiles(map(_midpoint_us, null_calls), n=4)
    external_us, uncertainty_us = _midpoint_us(timed_call) - null_us, high - low
    if timed_call.last_running_us:
        uncertainty_us = max(uncertainty_us, (timed_call.completed_us - timed_call.last_running_us) / 2)
    else:
        external_us = timed_call.completed_us - median(one.completed_us for one in null_calls)
    external_us = max(MIN_TIME_US, external_us)
    if uncertainty_us > MAX_UNCERTAINTY * external_us:
        return external_us
    claimed_us = timed_call.claimed_us - median(one.claimed_us for one in null_calls)
    return min(max(claimed_us, external_us - uncertainty_us), external_us + uncertainty_us)


def _midpoint_us(timed_call: TimedCall) -> float:
    """Midpoint between the last poll that saw the call running and the first that saw it complete."""
    return (timed_call.last_running_us + timed_call.completed_us) / 2


@contextlib.contextmanager
def _reject_on_error(variant: _Variant) -> Iterator[None]:
    """Turn an error in the block into a rejection of the candidate; errors of a baseline propagate."""
    try:
        yield
    except KernelwrightError as error:
        if variant.baseline:
            raise
        raise CandidateRejectedError(variant.name, to_reason(error)) from error
