"""From a problem and a candidate to a verdict."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from kernelwright.core import progress
from kernelwright.core.errors import DeviceError, KernelwrightError, UsageError
from kernelwright.core.records import Device, Machine, Reason, Verdict
from kernelwright.core.units import time_text
from kernelwright.machines import machine
from kernelwright.machines.floor import floor
from kernelwright.measure.clock import wall_s
from kernelwright.measure.clock_agreement import ClockComparison
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
from kernelwright.verification.attacks.kernel_attribution import KernelAttribution
from kernelwright.verification.output_checker import OutputChecker, to_reason
from kernelwright.verification.reference import Reference
from kernelwright.verification.timed_calls import TimedVerification
from kernelwright.verification.transport.runners import InProcessRunner, InspectedRunner, Runner, make_sandboxed_runner
from kernelwright.work import count_work

DEFAULT_SETS = len(DISTRIBUTIONS)
MIN_SETS = 4
ATTRIBUTION_START_INDEX = 100_000
"""The index of the first input set that is drawn to see whose code does the work."""
SEED_BITS = 53
"""What a reader of JSON that knows floating-point numbers alone takes as it is."""
REPLAYED_NOTE = "replayed: its seed was known before, so the candidate may have been made for these inputs"
EXTRA_SETS_START = 1000
"""From this number on sets are drawn again of a kind of which one is too little; near a limit they are from 1 on."""
SETS_TIMEOUT_S = 10.0
"""After this long no further set begins, once there are four."""


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
    check_problem: bool = False,
    check_timed_calls: bool = True,
) -> Verdict:
    """See `kernelwright.verification.verify`.

    Args:
        check_timed_calls: judge timed calls, too; not needed where a bench follows, which does so itself.
    """
    start = wall_s()
    absent = machine(spec=spec) if spec else None
    if device == "cuda" and not torch.cuda.is_available():
        raise DeviceError("no CUDA device here", next="--device cpu")
    if sets is not None and sets < 1:
        raise UsageError(f"{sets} input sets prove nothing", next="give 1 or more, or leave it out for 12")
    policy = format_policy(tolerance)
    budget.parse_policy(policy)
    limits = Limits(call_timeout_s, memory_bytes, build_timeout_s)
    if isinstance(problem, str):
        progress.report_stage("loading the problem", call_timeout_s)
        problem = load_problem(problem)
    runner = _make_runner(problem, candidate, device, limits, fork_server)
    replayed, seed = seed is not None, secrets.randbits(SEED_BITS) if seed is None else seed
    with runner:
        asked = own_kernels, check_problem, check_timed_calls, replayed
        examination = Verification(problem, runner, device, policy, seed, *asked)
        reason = examination.run(sets, call_timeout_s, start)
    answers = examination.checker
    return Verdict(
        accepted=reason is None,
        reason=reason,
        problem=problem.name,
        candidate=runner.name,
        device=cast(Device, device),
        input_sets=examination.sets,
        held_out_sets=examination.held_out,
        golden=answers.golden if answers else "",
        accuracy=answers.accuracy if answers else None,
        sandbox=runner.protections,
        own_kernel_share=examination.own_share,
        problem_warnings=examination.degenerate,
        near_limit=answers.near_limits.summary if answers else None,
        seed=seed,
        call_us=examination.clock_comparison.time_us if examination.clock_comparison else None,
        notes=(
            *runner.notes,
            *examination.notes,
            *(answers.notes if answers else ()),
            *(_predict_for_machine(problem, absent) if absent else ()),
        ),
        time_s=wall_s() - start,
    )


def _predict_for_machine(problem: Problem, target: Machine) -> tuple[str, ...]:
    """What a verdict can say of a machine that is not there: how long the work takes at least."""
    least = floor(count_work(problem.program_on("cpu"), *problem.inputs("cpu", seed=0)).fused, target)
    return (f"judged here; on {target.name} the work takes {time_text(least.time_us)} at least (predicted)",)


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
    """One candidate before one problem: set after set until one rejects it or there are enough."""

    problem: Problem
    runner: Runner
    device: str
    policy: str
    seed: int
    own_kernels: bool = False
    check_problem: bool = False
    check_timed_calls: bool = True
    replayed: bool = False
    sets_tried: int = 0
    """How many kinds of input were drawn; the reference cannot take each."""
    sets: int = 0
    held_out: int = 0
    checker: OutputChecker | None = None
    clock_comparison: ClockComparison | None = None
    own_share: float | None = None
    degenerate: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    def run(self, sets: int | None, call_timeout_s: float, start_s: float) -> Reason | None:
        """Why the candidate is rejected, or None.

        Raises:
            ProblemError: the reference is at fault.
            KernelwrightError: whatever is not the candidate's doing.
        """
        # Three runs of it (own precision, FP64, rounded inputs) stand under one stage.
        reference_s = 3 * call_timeout_s
        progress.report_stage("running the reference", reference_s)
        reference = Reference(self.problem, self.device, self.seed, perturb_parameters=self.runner.accepts_state)
        model = reference.probe()
        if model.second_leaves is not None:
            self.notes.append("the reference itself gives other bits when it is run twice")
        self.checker = OutputChecker(
            self.runner, model, reference.state_names, self.policy, self.problem.deterministic, notes=self.notes
        )
        self.checker.near_limits.deterministic = self.replayed
        if self.replayed:
            self.notes.append(REPLAYED_NOTE)
        try:
            progress.report_stage("loading the candidate")
            self.runner.load(reference.make_inputs(0), model)
        except KernelwrightError as fault:
            return to_reason(fault)
        for index in range(sets or DEFAULT_SETS):
            in_time = sets is not None or self.replayed or self.sets < MIN_SETS
            if not in_time and wall_s() - start_s > SETS_TIMEOUT_S:
                break
            self.sets_tried = index + 1
            reason = self._check_set(index, reference, self.checker, reference_s)
            if reason := reason or self._decide_near_limit(reference, self.checker, reference_s):
                return reason
        if reason := self._decide_near_limit(
            reference, self.checker, reference_s, *self.checker.near_limits.undecided_kinds()
        ):
            return reason
        if self.check_problem and self.sets_tried >= DEFAULT_SETS:  # else it takes too long to ask more of it
            self.degenerate = find_degeneracies(reference)
        if isinstance(self.runner, InspectedRunner) and (self.check_timed_calls or self.own_kernels):
            progress.report_stage("timing the candidate", reference_s)
            ownership = self._make_attribution(self.runner, reference)
            timed = TimedVerification(
                self.runner, reference, sets or DEFAULT_SETS, self.sets_tried < DEFAULT_SETS, ownership
            )
            return self._run_timed_calls(timed, self.checker) or self._check_own_kernels(ownership)
        if self.own_kernels:
            self.notes.append("whose kernels did the work is unknown: it cannot be seen here")
        return None

    def _make_attribution(
        self, runner: InspectedRunner, reference: Reference
    ) -> CodeAttribution | KernelAttribution | None:
        """What asks whose code does the work, where that is wanted."""
        if not self.own_kernels:
            return None

        def draw(at: int) -> Args:
            return reference.make_inputs(ATTRIBUTION_START_INDEX + at)

        if self.device == "cpu":
            return CodeAttribution(runner.client, runner.own_folders, draw)
        return KernelAttribution(runner.client, draw)

    def _check_own_kernels(self, attribution: CodeAttribution | KernelAttribution | None) -> Reason | None:
        """Whether its own code did the work, where that is asked for."""
        if not attribution:
            return None
        self.own_share = attribution.own_share
        if self.own_share is None:
            self.notes.append("whose code did the work is unknown: too little of it could be seen")
        elif self.own_share < MIN_OWN_SHARE:
            share = (
                f"{self.own_share:.0%} of the work was done by its own code, the rest by {attribution.library_names}"
            )
            return Reason(code="not-own-kernels", detail=share)
        return None

    def _check_set(
        self, index: int, reference: Reference, checker: OutputChecker, stage_limit_s: float
    ) -> Reason | None:
        """Of one set, which is gone before the next is drawn: a large program fits its device once, not twice."""
        progress.report_stage(f"checking, input set {index + 1}", stage_limit_s)
        drawn = reference.draw_set(index)
        if drawn is None:
            return None
        self.sets += 1
        progress.report_stage(f"running the candidate, inputs {drawn.distribution.name}")
        reason = checker.check_set(drawn)
        for number in range(1, drawn.distribution.count_sets(drawn.inputs)):
            more = None if reason else reference.redraw_set(drawn.kind, EXTRA_SETS_START + number)
            reason = checker.check_set(more) if more else reason
        if reason or self.sets > 1:
            return reason
        del drawn  # with the given shape before and after other shapes: what is kept for one is wrong for the next
        progress.report_stage("checking, other shapes", stage_limit_s)
        self.held_out, reason = checker.check_held_out(reference)
        return reason

    def _decide_near_limit(
        self, reference: Reference, checker: OutputChecker, stage_limit_s: float, *extra_kinds: InputKind
    ) -> Reason | None:
        """Of kinds of sets of which one was over the limit by little, and more."""
        if not (kinds := [*checker.near_limits.pending, *extra_kinds]):
            return None
        progress.report_stage("checking, accuracy near its limit", MAX_DRAWS * stage_limit_s)
        return checker.decide_near_limit(reference, kinds)

    def _run_timed_calls(self, timed: TimedVerification, checker: OutputChecker) -> Reason | None:
        """Calls of which only the judge knows which are judged."""
        try:
            for observed, drawn in timed.run():
                if drawn is None:
                    checker.remember_outputs(observed)
                elif reason := checker.check(observed, drawn):
                    return mark_timed_call(reason)
                elif checker.limit_ratio is not None:
                    checker.near_limits.add(drawn.kind, checker.limit_ratio)
                del observed, drawn  # before the next
                if reason := timed.decide_near_limit(checker):
                    return mark_timed_call(reason)
        except KernelwrightError as fault:
            return to_reason(fault)
        self.clock_comparison = timed.clock_comparison
        return timed.find_false_time()


def mark_timed_call(reason: Reason) -> Reason:
    return Reason(code=reason.code, detail=f"in a timed call: {reason.detail}")
