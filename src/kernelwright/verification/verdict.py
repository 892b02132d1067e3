"""Verification of a candidate: from a problem and a candidate to a verdict."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from kernelwright.core import progress
from kernelwright.core.errors import DeviceError, KernelwrightError, UsageError
from kernelwright.core.machine import Machine
from kernelwright.core.timing import Device
from kernelwright.core.units import time_text
from kernelwright.core.verdict import Reason, Verdict
from kernelwright.machines import machine
from kernelwright.machines.floor import floor
from kernelwright.measure.clock import wall_s
from kernelwright.problems.loading import load_problem
from kernelwright.problems.problem import Args, Candidate, Problem
from kernelwright.sandbox import ForkServer, Limits
from kernelwright.verification import BUILD_TIMEOUT_S
from kernelwright.verification.accuracy import budget
from kernelwright.verification.accuracy.comparison import format_policy
from kernelwright.verification.accuracy.degenerate import find_degeneracies
from kernelwright.verification.accuracy.distributions import DISTRIBUTIONS
from kernelwright.verification.accuracy.near_limit import MAX_DRAWS, InputKind
from kernelwright.verification.attacks.code_attribution import MIN_OWN_SHARE, CodeAttribution
from kernelwright.verification.attacks.judge_reference import find_judge_reference
from kernelwright.verification.attacks.kernel_attribution import KernelAttribution
from kernelwright.verification.execution import ObservedCall
from kernelwright.verification.outcome import AS_TORCH_IS_SET, operand_precision
from kernelwright.verification.output_checker import OutputChecker, to_reason
from kernelwright.verification.reference import Reference
from kernelwright.verification.set_plan import PlannedSet
from kernelwright.verification.timed_calls import SeriesVerification, TimedVerification
from kernelwright.verification.transport.runners import (
    InProcessRunner,
    InspectedRunner,
    RpcRunner,
    Runner,
    make_sandboxed_runner,
)
from kernelwright.work import count_work

DEFAULT_SETS = len(DISTRIBUTIONS)
MIN_SETS = 4
TIMED_START_INDEX = 10_000
"""Index of the first input set that is drawn for a timed call."""
SERIES_START_INDEX = 50_000
"""Index of the first input set that is drawn for a series."""
ATTRIBUTION_START_INDEX = 100_000
"""Index of the first input set that is drawn for code attribution."""
SEED_BITS = 53
"""Seeds up to this size survive JSON readers that parse numbers as FP64."""
REUSED_NOTE = "an output is valid until the next call, which overwrites it; --fresh-outputs rejects that"
REPLAYED_NOTE = "replayed: the seed was public, so the candidate may be fitted to these inputs"
PRECISION_NOTES = {
    "torch": "convolutions and recurrences of the reference may use TF32, as torch is set to",
    "tf32": "operands of products may be rounded to TF32, as the user permits",
    "bf16": "operands of products may be rounded to BF16, as the user permits",
}
EXTRA_SETS_START = 1000
"""Numbers of redrawn sets for distributions that need several sets; those for sets near the limit start at 1."""
REFERENCE_SETS_S = 10.0
"""As many sets are planned as the reference computes in this time, at least `MIN_SETS`. The plan is made before the
candidate is loaded: a slow candidate does not avoid a set."""
SHORT_CALL_US = 200.0
"""The time of a single call below this is known less well than that of a series."""
CANDIDATE_LIMIT = 4.0
"""Times the limit of one call: what all calls of a candidate on the planned sets may take together."""


def verify(
    problem: Problem | str,
    candidate: Candidate | Callable[..., Any] | str,
    *,
    device: str = "cpu",
    tolerance: tuple[float, float] | None = None,
    call_timeout_s: float = 60.0,
    build_timeout_s: float = BUILD_TIMEOUT_S,
    memory_bytes: int | None = None,
    seed: int | None = None,
    sets: int | None = None,
    fork_server: ForkServer | None = None,
    spec: str | None = None,
    own_kernels: bool = False,
    fresh_outputs: bool = False,
    check_problem: bool = False,
    check_timed_calls: bool = True,
) -> Verdict:
    """See `kernelwright.verification.verify`.

    Args:
        check_timed_calls: also check timed calls; not needed before a benchmark, which does so itself.
    Raises:
        UsageError: `sets` is below 1, or the tolerance is invalid.
    """
    start = wall_s()
    target = machine(spec=spec) if spec else None
    if device == "cuda" and not torch.cuda.is_available():
        raise DeviceError("no CUDA device here", next="--device cpu")
    if sets is not None and sets < 1:
        raise UsageError(f"sets must be at least 1, got {sets}", next="pass 1 or more, or omit it for the default")
    policy = format_policy(tolerance)
    budget.parse_policy(policy)
    limits = Limits(call_timeout_s, memory_bytes, build_timeout_s)
    if isinstance(problem, str):
        progress.report_stage("loading the problem", call_timeout_s)
        problem = load_problem(problem)
    runner = _make_runner(problem, candidate, device, limits, fork_server)
    replayed, seed = seed is not None, secrets.randbits(SEED_BITS) if seed is None else seed
    with runner:
        verification = Verification(
            problem,
            runner,
            device,
            policy,
            seed,
            own_kernels,
            fresh_outputs,
            check_problem,
            check_timed_calls,
            replayed,
        )
        reason = verification.run(sets, call_timeout_s)
    if reason is None and isinstance(candidate, str):
        reason = find_judge_reference(candidate)
    checker = verification.checker
    return Verdict(
        accepted=reason is None,
        reason=reason,
        problem=problem.name,
        candidate=runner.name,
        device=cast(Device, device),
        input_sets=verification.sets,
        held_out_sets=verification.held_out,
        golden=checker.golden if checker else "",
        accuracy=checker.accuracy if checker else None,
        sandbox=runner.protections,
        own_kernel_share=verification.own_share,
        problem_warnings=verification.degenerate,
        near_limit=checker.near_limits.summary if checker else None,
        seed=seed,
        call_us=verification.call_us,
        notes=(
            *runner.notes,
            *_precision_notes(device),
            *verification.notes,
            *(_predict_for_machine(problem, target) if target else ()),
        ),
        time_s=wall_s() - start,
    )


def _precision_notes(device: str) -> list[str]:
    """What the precision of the operands of products is, where that is less than FP32."""
    precision, cudnn = operand_precision(), cast(Any, torch.backends.cudnn)
    if precision == AS_TORCH_IS_SET and not (device == "cuda" and cudnn.allow_tf32):
        return []
    return [PRECISION_NOTES[precision]] if precision in PRECISION_NOTES else []


def _predict_for_machine(problem: Problem, target: Machine) -> tuple[str, ...]:
    """Lower bound on the work's time on another machine, as a note."""
    bound = floor(count_work(problem.program_on("cpu"), *problem.inputs("cpu", seed=0)).fused, target)
    return (f"verified on this machine; lower bound on {target.name}: {time_text(bound.time_us)} (predicted)",)


def _make_runner(
    problem: Problem,
    candidate: Candidate | Callable[..., Any] | str,
    device: str,
    limits: Limits,
    fork_server: ForkServer | None,
) -> Runner:
    if isinstance(candidate, str):
        return make_sandboxed_runner(problem, candidate, device, limits, fork_server)
    return InProcessRunner(candidate, device)


@dataclass
class Verification:
    """Verification of one candidate on one problem: sets are run until one rejects it or there are enough."""

    problem: Problem
    runner: Runner
    device: str
    policy: str
    seed: int
    own_kernels: bool = False
    fresh_outputs: bool = False
    check_problem: bool = False
    check_timed_calls: bool = True
    replayed: bool = False
    sets_tried: int = 0
    """Number of sets tried; the reference cannot take every distribution."""
    sets: int = 0
    held_out: int = 0
    checker: OutputChecker | None = None
    call_us: float | None = None
    own_share: float | None = None
    degenerate: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    def run(self, sets: int | None, call_timeout_s: float) -> Reason | None:
        """The reason to reject the candidate, or None.

        Raises:
            ProblemError: the reference is at fault.
            KernelwrightError: an error that is not the candidate's.
        """
        # A stage has up to three runs of the reference: native precision, FP64, rounded inputs.
        reference_s = 3 * call_timeout_s
        progress.report_stage("running the reference", reference_s)
        reference = Reference(self.problem, self.device, self.seed, perturb_parameters=self.runner.accepts_state)
        template = reference.probe()
        if template.second_leaves is not None:
            self.notes.append("the reference is not bitwise reproducible")
        self.checker = OutputChecker(
            self.runner, template, reference.state_names, self.policy, self.problem.deterministic, notes=self.notes
        )
        self.checker.near_limits.deterministic = self.replayed
        if self.replayed:
            self.notes.append(REPLAYED_NOTE)
        planned_sets = self._plan_sets(reference, sets)
        series = self._plan_series(reference, template, self.checker)
        try:
            progress.report_stage("loading the candidate")
            self.runner.load(reference.make_inputs(0), template)
        except KernelwrightError as error:
            return to_reason(error)
        limit_s = CANDIDATE_LIMIT * call_timeout_s
        for number, planned in enumerate(planned_sets, 1):
            if self.checker.candidate_s > limit_s:
                ran = f"{number - 1} of {len(planned_sets)} input sets ran"
                detail = f"{ran} in {self.checker.candidate_s:.0f} s of the candidate; a longer --time allows more"
                return Reason(code="undetermined", detail=detail)
            self.sets_tried = number
            reason = self._check_set(planned.index, reference, self.checker, reference_s)
            if reason := reason or self._decide_near_limit(reference, self.checker, reference_s):
                return reason
        if reason := self._decide_near_limit(
            reference, self.checker, reference_s, *self.checker.near_limits.undecided_kinds()
        ):
            return reason
        if reason := self._check_kept_outputs():
            return reason
        if self.check_problem and self.sets_tried >= DEFAULT_SETS:  # else the problem is too slow for more runs
            self.degenerate = find_degeneracies(reference)
        if isinstance(self.runner, InspectedRunner) and (self.check_timed_calls or self.own_kernels):
            progress.report_stage("timing the candidate", reference_s)
            attribution = self._make_attribution(self.runner, reference)
            timed = TimedVerification(
                self.runner, reference, TIMED_START_INDEX, self.sets_tried < DEFAULT_SETS, attribution
            )
            reason = self._run_timed_calls(timed, self.checker) or (series and self._run_series(series))
            reason = reason or self._check_kept_outputs()
            reason = reason or self._check_own_kernels(attribution)
            return reason or self._check_reloaded(reference, template, self.checker)
        if self.own_kernels:
            self.notes.append("attribution unknown: not available here")
        return self._check_reloaded(reference, template, self.checker)

    def _check_reloaded(self, reference: Reference, template: ObservedCall, checker: OutputChecker) -> Reason | None:
        """Load a random candidate that does not follow the seed again: it must not draw the same random numbers."""
        if not checker.must_reload or not isinstance(self.runner, RpcRunner):
            return None
        progress.report_stage("loading the candidate again")
        try:
            self.runner.reload(reference.make_inputs(0), template)
        except KernelwrightError as error:
            return to_reason(error)
        return checker.check_reloaded()

    def _plan_sets(self, reference: Reference, sets: int | None) -> list[PlannedSet]:
        """The sets that are run: as many as the user wants, else by the time of the reference alone."""
        if sets is not None or self.replayed:
            return reference.planned_sets(sets)
        progress.report_stage("planning the input sets")
        start_s = wall_s()
        reference.make_set(reference.make_inputs(0), reference.call_seed(0))
        affordable = int(REFERENCE_SETS_S / max(wall_s() - start_s, 1e-6))
        return reference.planned_sets(max(MIN_SETS, affordable) if affordable < len(reference.plan) else None)

    def _plan_series(
        self, reference: Reference, template: ObservedCall, checker: OutputChecker
    ) -> SeriesVerification | None:
        if not self.check_timed_calls or self.device != "cpu" or not isinstance(self.runner, InspectedRunner):
            return None
        return SeriesVerification.plan(self.runner, reference, template, checker)

    def _run_series(self, series: SeriesVerification) -> Reason | None:
        """Check calls back to back, as a benchmark times them; their time is that of a call where one is short."""
        progress.report_stage("timing the candidate in series")
        try:
            reason = series.run(SERIES_START_INDEX)
        except KernelwrightError as error:
            return to_reason(error)
        if series.call_us is not None and self.call_us is not None and self.call_us < SHORT_CALL_US:
            self.call_us = series.call_us
        return reason and mark_timed_call(reason)

    def _check_kept_outputs(self) -> Reason | None:
        """The reason to reject a candidate that overwrote an output which the caller had kept."""
        if not isinstance(self.runner, InspectedRunner):
            return None
        kept = self.runner.client.kept
        if (call := kept.find_overwritten()) is not None:
            return Reason(code="aliased-output", detail=f"a later call overwrote the output of call {call}")
        if kept.are_reused and self.fresh_outputs:
            return Reason(code="aliased-output", detail="every call overwrites the output of the call before it")
        if kept.are_reused and REUSED_NOTE not in self.notes:
            self.notes.append(REUSED_NOTE)
        return None

    def _make_attribution(
        self, runner: InspectedRunner, reference: Reference
    ) -> CodeAttribution | KernelAttribution | None:
        """The attribution of the work to code or kernels, if `own_kernels` is set."""
        if not self.own_kernels:
            return None

        def draw(at: int) -> Args:
            return reference.make_inputs(ATTRIBUTION_START_INDEX + at)

        if self.device == "cpu":
            return CodeAttribution(runner.client, runner.own_folders, draw)
        return KernelAttribution(runner.client, draw)

    def _check_own_kernels(self, attribution: CodeAttribution | KernelAttribution | None) -> Reason | None:
        """The reason to reject a candidate whose own code did too little of the work, or None."""
        if not attribution:
            return None
        self.own_share = attribution.own_share
        if self.own_share is None:
            self.notes.append("attribution unknown: too few samples")
        elif self.own_share < MIN_OWN_SHARE:
            detail = (
                f"{self.own_share:.0%} of the time in the candidate's code, the rest in {attribution.library_names}"
            )
            return Reason(code="not-own-kernels", detail=detail)
        return None

    def _check_set(
        self, index: int, reference: Reference, checker: OutputChecker, stage_limit_s: float
    ) -> Reason | None:
        """Check one set. It is freed before the next one is drawn, so that a large program needs device memory for
        one set only."""
        progress.report_stage(f"checking, input set {index + 1}", stage_limit_s)
        input_set = reference.draw_set(index)
        if input_set is None:
            return None
        self.sets += 1
        progress.report_stage(f"running the candidate, inputs {input_set.distribution.name}")
        reason = checker.check_set(input_set)
        for number in range(1, input_set.distribution.count_sets(input_set.inputs)):
            extra_set = None if reason else reference.redraw_set(input_set.kind, EXTRA_SETS_START + number)
            reason = checker.check_set(extra_set) if extra_set else reason
        if reason or self.sets > 1:
            return reason
        # Other shapes run between sets of the given shape: results cached for one shape are wrong for the next.
        del input_set
        progress.report_stage("checking, other shapes", stage_limit_s)
        self.held_out, reason = checker.check_held_out(reference)
        return reason

    def _decide_near_limit(
        self, reference: Reference, checker: OutputChecker, stage_limit_s: float, *extra_kinds: InputKind
    ) -> Reason | None:
        """Draw more sets of the pending kinds and of `extra_kinds` until they decide."""
        if not (kinds := [*checker.near_limits.pending, *extra_kinds]):
            return None
        progress.report_stage("checking, accuracy near its limit", MAX_DRAWS * stage_limit_s)
        return checker.decide_near_limit(reference, kinds)

    def _run_timed_calls(self, timed: TimedVerification, checker: OutputChecker) -> Reason | None:
        """Run the timed calls and check those that were chosen."""
        try:
            for observed, input_set in timed.run():
                if input_set is None:
                    checker.remember_outputs(observed)
                elif reason := checker.check(observed, input_set):
                    return mark_timed_call(reason)
                elif checker.limit_ratio is not None:
                    checker.near_limits.add(input_set.kind, checker.limit_ratio)
                del observed, input_set  # freed before the next call
                if reason := timed.decide_near_limit(checker):
                    return mark_timed_call(reason)
        except KernelwrightError as error:
            return to_reason(error)
        self.call_us = timed.clock_comparison.time_us
        return timed.find_false_time()


def mark_timed_call(reason: Reason) -> Reason:
    """The reason with a note that it was found in a timed call."""
    return Reason(code=reason.code, detail=f"in a timed call: {reason.detail}")
