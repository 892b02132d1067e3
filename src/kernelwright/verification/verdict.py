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
from kernelwright.measure.clock_agreement import TwoSided
from kernelwright.problems.loading import load_problem
from kernelwright.problems.problem import Args, Candidate, Problem
from kernelwright.sandbox import Limits, Nursery
from kernelwright.verification import BUILD_S
from kernelwright.verification.accuracy import budget
from kernelwright.verification.accuracy.comparison import policy_of
from kernelwright.verification.accuracy.degenerate import degeneracies
from kernelwright.verification.accuracy.distributions import DISTRIBUTIONS
from kernelwright.verification.accuracy.near_limit import MOST_DRAWS, Kind
from kernelwright.verification.attacks.code_attribution import LEAST_OWN, Ownership
from kernelwright.verification.attacks.kernel_attribution import DeviceOwnership
from kernelwright.verification.output_checker import Answers, as_reason
from kernelwright.verification.reference import Reference
from kernelwright.verification.timed_calls import TimedCalls
from kernelwright.verification.transport.runners import ByMemory, Live, Runner, sandboxed
from kernelwright.work import count

SETS = len(DISTRIBUTIONS)
LEAST_SETS = 4
OWNED_FROM = 100_000
"""The index of the first input set that is drawn to see whose code does the work."""
SEED_BITS = 53
"""What a reader of JSON that knows floating-point numbers alone takes as it is."""
REPLAYED = "replayed: its seed was known before, so the candidate may have been made for these inputs"
MORE_FROM = 1000
"""From this number on sets are drawn again of a kind of which one is too little; near a limit they are from 1 on."""
SETS_BUDGET_S = 10.0
"""After this long no further set begins, once there are four."""


def verify(
    problem: Problem | str,
    candidate: Candidate | Callable[..., Any] | str,
    *,
    device: str = "cpu",
    tolerance: tuple[float, float] | None = None,
    time_s: float = 60.0,
    build_s: float = BUILD_S,
    memory_bytes: int | None = None,
    seed: int | None = None,
    sets: int | None = None,
    nursery: Nursery | None = None,
    spec: str | None = None,
    own_kernels: bool = False,
    question: bool = False,
    timed: bool = True,
) -> Verdict:
    """See `kernelwright.verification.verify`.

    Args:
        timed: judge timed calls, too; not needed where a bench follows, which does so itself.
    """
    start = wall_s()
    absent = machine(spec=spec) if spec else None
    if device == "cuda" and not torch.cuda.is_available():
        raise DeviceError("no CUDA device here", next="--device cpu")
    if sets is not None and sets < 1:
        raise UsageError(f"{sets} input sets prove nothing", next="give 1 or more, or leave it out for 12")
    policy = policy_of(tolerance)
    budget.parse_policy(policy)
    limits = Limits(time_s, memory_bytes, build_s)
    if isinstance(problem, str):
        progress.stage("loading the problem", time_s)
        problem = load_problem(problem)
    runner = _runner(problem, candidate, device, limits, nursery)
    replayed, seed = seed is not None, secrets.randbits(SEED_BITS) if seed is None else seed
    with runner:
        asked = own_kernels, question, timed, replayed
        examination = Examination(problem, runner, device, policy, seed, *asked)
        reason = examination.reason(sets, time_s, start)
    answers = examination.answers
    return Verdict(
        accepted=reason is None,
        reason=reason,
        problem=problem.name,
        candidate=runner.name,
        device=cast(Device, device),
        sets=examination.sets,
        held_out=examination.held_out,
        golden=answers.golden if answers else "",
        accuracy=answers.accuracy if answers else None,
        sandbox=runner.protections,
        own_share=examination.own_share,
        degenerate=examination.degenerate,
        near_limit=answers.near.record if answers else None,
        seed=seed,
        call_us=examination.clocks.time_us if examination.clocks else None,
        notes=(
            *runner.notes,
            *examination.notes,
            *(answers.notes if answers else ()),
            *(_elsewhere(problem, absent) if absent else ()),
        ),
        time_s=wall_s() - start,
    )


def _elsewhere(problem: Problem, absent: Machine) -> tuple[str, ...]:
    """What a verdict can say of a machine that is not there: how long the work takes at least."""
    least = floor(count(problem.on("cpu"), *problem.inputs("cpu", seed=0)).fused, absent)
    return (f"judged here; on {absent.name} the work takes {time_text(least.time_us)} at least (predicted)",)


def _runner(
    problem: Problem,
    candidate: Candidate | Callable[..., Any] | str,
    device: str,
    limits: Limits,
    nursery: Nursery | None,
) -> Runner:
    if isinstance(candidate, str):
        return sandboxed(problem, candidate, device, limits, nursery)
    return Live(candidate, device)


@dataclass
class Examination:
    """One candidate before one problem: set after set until one rejects it or there are enough."""

    problem: Problem
    runner: Runner
    device: str
    policy: str
    seed: int
    own_kernels: bool = False
    question: bool = False
    timed: bool = True
    replayed: bool = False
    tried: int = 0
    """How many kinds of input were drawn; the reference cannot take each."""
    sets: int = 0
    held_out: int = 0
    answers: Answers | None = None
    clocks: TwoSided | None = None
    own_share: float | None = None
    degenerate: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    def reason(self, sets: int | None, time_s: float, start_s: float) -> Reason | None:
        """Why the candidate is rejected, or None.

        Raises:
            ProblemError: the reference is at fault.
            KernelwrightError: whatever is not the candidate's doing.
        """
        # Three runs of it (own precision, FP64, rounded inputs) stand under one stage.
        reference_s = 3 * time_s
        progress.stage("running the reference", reference_s)
        reference = Reference(self.problem, self.device, self.seed, change_parameters=self.runner.takes_state)
        model = reference.probe()
        if model.again is not None:
            self.notes.append("the reference itself gives other bits when it is run twice")
        self.answers = Answers(
            self.runner, model, reference.keeps, self.policy, self.problem.deterministic, notes=self.notes
        )
        self.answers.near.repeatable = self.replayed
        if self.replayed:
            self.notes.append(REPLAYED)
        try:
            progress.stage("loading the candidate")
            self.runner.load(reference.inputs(0), model)
        except KernelwrightError as fault:
            return as_reason(fault)
        for index in range(sets or SETS):
            in_time = sets is not None or self.replayed or self.sets < LEAST_SETS
            if not in_time and wall_s() - start_s > SETS_BUDGET_S:
                break
            self.tried = index + 1
            reason = self._asked_of_set(index, reference, self.answers, reference_s)
            if reason := reason or self._decided(reference, self.answers, reference_s):
                return reason
        if reason := self._decided(reference, self.answers, reference_s, *self.answers.near.undecided()):
            return reason
        if self.question and self.tried >= SETS:  # else it takes too long to ask more of it
            self.degenerate = degeneracies(reference)
        if isinstance(self.runner, ByMemory) and (self.timed or self.own_kernels):
            progress.stage("timing the candidate", reference_s)
            ownership = self._ownership(self.runner, reference)
            timed = TimedCalls(self.runner, reference, sets or SETS, self.tried < SETS, ownership)
            return self._timed(timed, self.answers) or self._owned(ownership)
        if self.own_kernels:
            self.notes.append("whose kernels did the work is unknown: it cannot be seen here")
        return None

    def _ownership(self, runner: ByMemory, reference: Reference) -> Ownership | DeviceOwnership | None:
        """What asks whose code does the work, where that is wanted."""
        if not self.own_kernels:
            return None

        def draw(at: int) -> Args:
            return reference.inputs(OWNED_FROM + at)

        if self.device == "cpu":
            return Ownership(runner.line, runner.own_folders, draw)
        return DeviceOwnership(runner.line, draw)

    def _owned(self, ownership: Ownership | DeviceOwnership | None) -> Reason | None:
        """Whether its own code did the work, where that is asked for."""
        if not ownership:
            return None
        self.own_share = ownership.share
        if self.own_share is None:
            self.notes.append("whose code did the work is unknown: too little of it could be seen")
        elif self.own_share < LEAST_OWN:
            share = f"{self.own_share:.0%} of the work was done by its own code, the rest by {ownership.libraries}"
            return Reason(code="not-own-kernels", detail=share)
        return None

    def _asked_of_set(self, index: int, reference: Reference, answers: Answers, reference_s: float) -> Reason | None:
        """Of one set, which is gone before the next is drawn: a large program fits its device once, not twice."""
        progress.stage(f"checking, input set {index + 1}", reference_s)
        drawn = reference.draw(index)
        if drawn is None:
            return None
        self.sets += 1
        progress.stage(f"running the candidate, inputs {drawn.distribution.name}")
        reason = answers.asked(drawn)
        for number in range(1, drawn.distribution.draws(drawn.inputs)):
            more = None if reason else reference.again(drawn.kind, MORE_FROM + number)
            reason = answers.asked(more) if more else reason
        if reason or self.sets > 1:
            return reason
        del drawn  # with the given shape before and after other shapes: what is kept for one is wrong for the next
        progress.stage("checking, other shapes", reference_s)
        self.held_out, reason = answers.asked_of_held_out(reference)
        return reason

    def _decided(self, reference: Reference, answers: Answers, reference_s: float, *more: Kind) -> Reason | None:
        """Of kinds of sets of which one was over the limit by little, and more."""
        if not (kinds := [*answers.near.pending, *more]):
            return None
        progress.stage("checking, accuracy near its limit", MOST_DRAWS * reference_s)
        return answers.decided(reference, kinds)

    def _timed(self, calls: TimedCalls, answers: Answers) -> Reason | None:
        """Calls of which only the judge knows which are judged."""
        try:
            for observed, drawn in calls.seen():
                if drawn is None:
                    answers.remember(observed)
                elif reason := answers.rejection(observed, drawn):
                    return in_a_timed_call(reason)
                elif answers.share is not None:
                    answers.near.add(drawn.kind, answers.share)
                del observed, drawn  # before the next
                if reason := calls.decided(answers):
                    return in_a_timed_call(reason)
        except KernelwrightError as fault:
            return as_reason(fault)
        self.clocks = calls.clocks
        return calls.lie()


def in_a_timed_call(reason: Reason) -> Reason:
    return Reason(code=reason.code, detail=f"in a timed call: {reason.detail}")
