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
from statistics import median
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
from kernelwright.measure.clock_agreement import MIN_TIME_US, ClockComparison, TimedCall, trusted_time_us
from kernelwright.measure.conditions import allocation_policy
from kernelwright.measure.statistics import median_interval
from kernelwright.problems.problem import Args, Problem
from kernelwright.sandbox import ForkServer, Limits
from kernelwright.verification.accuracy.comparison import format_policy
from kernelwright.verification.attacks.idle_work import find_computing, find_touched_memory
from kernelwright.verification.call_series import CheckedSeries, SeriesPlan
from kernelwright.verification.output_checker import OutputChecker, to_reason
from kernelwright.verification.reference import Reference
from kernelwright.verification.transport.client import CandidateClient
from kernelwright.verification.transport.runners import PRELOAD_MODULES, InspectedRunner
from kernelwright.verification.verdict import SEED_BITS, mark_timed_call

TARGET_SERIES_US = 5_000.0
"""Target length of a series, if enough calls fit. Start and end of a series are known to some tens of us."""
HOST_LAUNCH_US = 60.0
"""Host time to launch one call. The device is kept busy before the first call of a series so that the host gets ahead;
a call that needs more host time than this is timed including its host time."""
COLD_INPUT_BYTES = 1 << 20
"""From this input size a call reads its inputs from DRAM; smaller inputs stay in a cache in real use too."""
WARMUP_ROUNDS, MIN_ROUNDS, MAX_ROUNDS = 2, 5, 15
OUTPUT_CHECK_PROBABILITY = 0.5
"""Share of rounds whose outputs are read; chosen at random, so the candidate cannot predict them."""
PAIR_BUDGET_S = 2.5
"""No new round starts after this time, once `MIN_ROUNDS` are done."""
REUSE_CALLS = 3
"""Calls that show whether a candidate writes all outputs to one buffer."""


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
    series: CheckedSeries = field(init=False)
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
        self._plan = SeriesPlan.of(self._reference, self._model, device)
        self._cold_inputs = self._plan.input_bytes >= COLD_INPUT_BYTES or device == "cuda"
        self._num_calls = self._calls_per_series(expected_call_us or self._reference.time_us())
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
        shapes, reason = variant.series.checker.check_held_out(self._reference)
        if reason := reason or variant.series.checker.decide_near_limit(
            self._reference, list(variant.series.checker.near_limits.pending)
        ):
            raise CandidateRejectedError(variant.name, reason)
        if shapes:
            yield f"{number_text(shapes, 'other shape')} passed"
        if self._device == "cuda":
            (inputs, *_), seed = self._draw_inputs()
            with _reject_on_error(variant):
                traced = variant.runner.client.call(inputs, read_outputs=True, trace=True, seed=seed)
                assert traced.observed
                reason = variant.series.checker.check(
                    traced.observed, self._reference.make_timed_set(inputs, seed)
                ) or variant.series.decide_near_limit(self._more_inputs())
            if reason:
                raise CandidateRejectedError(variant.name, reason)
            took = time_text(sum(one.time_us for one in traced.kernels))
            yield f"its {number_text(len(traced.kernels), 'kernel')} took {took} in one traced call"

    def _time_rounds(self) -> dict[str, Timing]:
        start = wall_s()
        thorough = {self._rng.randrange(MIN_ROUNDS), self._rng.randrange(MAX_ROUNDS)}
        for number in range(MAX_ROUNDS):
            if number >= MIN_ROUNDS and wall_s() - start > PAIR_BUDGET_S:
                break
            self._run_round(thorough=number in thorough)
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
        runner.input_series, runner.chained = self._draw_inputs()[0], self._plan.chained
        runner.launch_ahead_us = TARGET_SERIES_US
        if variant.baseline:
            runner.load_task = "kernelwright.benchmark.baselines:load_baseline", {"which": variant.baseline}
        runner.load(runner.input_series[0], self._model)
        if self._device == "cpu":
            runner.client.timer.cache_flush_bytes = self._cache_bytes if self._cold_inputs else 0
        runner.client.requires_grad = self._problem.needs_grad(runner.input_series[0])
        state_names, deterministic = self._reference.state_names, self._problem.deterministic
        checker = OutputChecker(runner, self._model, state_names, self._policy, deterministic)
        variant.series = CheckedSeries(runner, self._reference, self._plan, checker, self._rng)
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
        made = variant.series.run(inputs, seed, read_outputs=check_outputs)
        variant.timed_calls.append(made.timed_call)
        if check_outputs and (
            reason := variant.series.check(made.observed, inputs, seed, thorough=thorough)
            or variant.series.decide_near_limit(self._more_inputs())
        ):
            raise CandidateRejectedError(variant.name, mark_timed_call(reason))
        variant.runner.client.child.stop()

    def _summarize(self, variant: _Variant) -> Timing:
        timed_calls = variant.timed_calls[WARMUP_ROUNDS:]
        on_device = self._device == "cuda"
        self._reject_false_clock(variant, timed_calls)
        if not variant.baseline and variant.runner.client.kept.find_overwritten() is not None:
            detail = "an output that a caller kept was overwritten by a later call"
            raise CandidateRejectedError(variant.name, Reason(code="aliased-output", detail=detail))
        samples = [trusted_time_us(one, variant.runner.null_series) / self._num_calls for one in timed_calls]
        if not variant.baseline and (reason := variant.series.find_false_time(median(samples), self._num_calls)):
            raise CandidateRejectedError(variant.name, reason)
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
        clocks = ClockComparison.from_calls(timed_calls, variant.runner.null_series, disturbed=self._device == "cuda")
        if variant.baseline:
            return
        output_bytes = sum(variant.runner.client.output_sizes_bytes) * self._num_calls
        num_state = len(variant.runner.state_kinds)
        null_series = variant.runner.null_series
        reason = find_touched_memory(timed_calls, null_series, output_bytes)
        if reason := reason or find_computing(timed_calls, null_series, num_state):
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

    def _more_inputs(self) -> Iterator[tuple[list[Args], int]]:
        while True:
            yield self._draw_inputs()

    def _calls_per_series(self, call_us: float) -> int:
        """Number of calls that fill `TARGET_SERIES_US`."""
        min_us = HOST_LAUNCH_US if self._device == "cuda" else MIN_TIME_US
        return max(1, min(self._plan.max_calls, int(TARGET_SERIES_US / max(call_us, min_us))))


@contextlib.contextmanager
def _reject_on_error(variant: _Variant) -> Iterator[None]:
    """Turn an error in the block into a rejection of the candidate; errors of a baseline propagate."""
    try:
        yield
    except KernelwrightError as error:
        if variant.baseline:
            raise
        raise CandidateRejectedError(variant.name, to_reason(error)) from error
