"""From a problem and a candidate to a verdict."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from kernelwright.core import progress
from kernelwright.core.errors import CandidateError, DeviceError, KernelwrightError, NotFoundError, UsageError
from kernelwright.core.records import REJECTIONS, Accuracy, Device, Machine, Reason, Verdict
from kernelwright.core.units import time_text
from kernelwright.machine import machine
from kernelwright.machine.floor import floor
from kernelwright.measure.clock import wall_s
from kernelwright.measure.two_sided import TwoSided
from kernelwright.problems.loading import load_problem
from kernelwright.problems.problem import Candidate, Problem, tensors
from kernelwright.sandbox import Limits, Nursery
from kernelwright.verify import budget
from kernelwright.verify.execution import Observed
from kernelwright.verify.golden import Right
from kernelwright.verify.outcome import as_tensor
from kernelwright.verify.ownership import LEAST_OWN, Ownership
from kernelwright.verify.reference import InputSet, Reference
from kernelwright.verify.runners import ByMemory, Live, Runner, sandboxed
from kernelwright.verify.staleness import Memory
from kernelwright.verify.timed import TimedCalls
from kernelwright.work import count

SETS = 12
LEAST_SETS = 4
OWNED_FROM = 1000
"""The index of the first input set that is drawn to see whose code does the work."""
SETS_BUDGET_S = 10.0
"""After this long no further set begins, once there are four."""


def verify(
    problem: Problem | str,
    candidate: Candidate | Callable[..., Any] | str,
    *,
    device: str = "cpu",
    tolerance: tuple[float, float] | None = None,
    time_s: float = 60.0,
    memory_bytes: int | None = None,
    seed: int | None = None,
    sets: int | None = None,
    nursery: Nursery | None = None,
    spec: str | None = None,
    own_kernels: bool = False,
) -> Verdict:
    """See `kernelwright.verify.verify`."""
    start = wall_s()
    absent = machine(spec=spec) if spec else None
    if device == "cuda" and not torch.cuda.is_available():
        raise DeviceError("no CUDA device here", next="--device cpu")
    if sets is not None and sets < 1:
        raise UsageError(f"{sets} input sets prove nothing", next="give 1 or more, or leave it out for 12")
    policy = "reference" if tolerance is None else f"{tolerance[0]!r},{tolerance[1]!r}"
    budget.parse_policy(policy)
    limits = Limits(time_s, memory_bytes)
    if isinstance(problem, str):
        progress.stage("loading the problem", time_s)
        problem = load_problem(problem)
    runner = _runner(problem, candidate, device, limits, nursery)
    seed = secrets.randbits(62) if seed is None else seed
    with runner:
        examination = Examination(problem, runner, device, policy, seed, own_kernels)
        reason = examination.reason(sets, time_s, start)
    return Verdict(
        accepted=reason is None,
        reason=reason,
        problem=problem.name,
        candidate=runner.name,
        device=cast(Device, device),
        sets=examination.sets,
        golden=examination.golden,
        accuracy=examination.accuracy,
        sandbox=runner.protections,
        own_share=examination.own_share,
        call_us=examination.clocks.time_us if examination.clocks else None,
        notes=(*runner.notes, *examination.notes, *(_elsewhere(problem, absent) if absent else ())),
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
    sets: int = 0
    golden: str = ""
    accuracy: Accuracy | None = None
    clocks: TwoSided | None = None
    own_share: float | None = None
    notes: list[str] = field(default_factory=list)
    _keeps: frozenset[str] = frozenset()
    _earlier: Memory = field(default_factory=Memory)

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
        model, self._keeps = reference.probe(), reference.keeps
        if model.again is not None:
            self.notes.append("the reference itself gives other bits when it is run twice")
        try:
            progress.stage("loading the candidate")
            self.runner.load(reference.inputs(0), [leaf for leaf in model.leaves.values() if isinstance(leaf, Tensor)])
        except KernelwrightError as fault:
            return _as_reason(fault)
        for index in range(sets or SETS):
            if sets is None and self.sets >= LEAST_SETS and wall_s() - start_s > SETS_BUDGET_S:
                break
            progress.stage(f"checking, input set {index + 1}", reference_s)
            drawn = reference.draw(index)
            if drawn is None:
                continue
            if reason := self._examine(drawn, model):
                return reason
        if isinstance(self.runner, ByMemory):
            progress.stage("timing the candidate", reference_s)
            timed = TimedCalls(self.runner, reference, sets or SETS, self.sets < SETS)
            return self._timed(timed, model) or self._owned(self.runner, reference)
        if self.own_kernels:
            self.notes.append("whose kernels did the work is unknown: it cannot be seen here")
        return None

    def _owned(self, runner: ByMemory, reference: Reference) -> Reason | None:
        """Whether its own code did the work, where that is asked for."""
        if not self.own_kernels:
            return None
        progress.stage("asking whose code does the work")
        ownership = Ownership(runner.line, runner.own_folders)
        try:
            self.own_share = ownership.measure(lambda at: reference.inputs(OWNED_FROM + at))
        except KernelwrightError as fault:
            return _as_reason(fault)
        if self.own_share is None:
            self.notes.append("whose code did the work is unknown: too little of it could be seen")
        elif self.own_share < LEAST_OWN:
            share = f"{self.own_share:.0%} of the work was done by its own code, the rest by {ownership.libraries}"
            return Reason(code="not-own-kernels", detail=share)
        return None

    def _examine(self, drawn: InputSet, model: Observed) -> Reason | None:
        progress.stage(f"running the candidate, inputs {drawn.distribution.name}")
        self.sets += 1
        if not self.golden or drawn.right.how != "FP64":
            self.golden = drawn.right.how
        try:
            observed = self.runner.run(drawn.inputs, drawn.state, drawn.sizes_bytes, twice=True)
            return self._rejected(observed, drawn, model)
        except KernelwrightError as fault:
            return _as_reason(fault)

    def _timed(self, calls: TimedCalls, model: Observed) -> Reason | None:
        """Calls of which only the judge knows which are looked at."""
        try:
            for observed, drawn in calls.looked_at():
                if reason := self._rejected(observed, drawn, model):
                    return Reason(code=reason.code, detail=f"in a timed call: {reason.detail}")
        except KernelwrightError as fault:
            return _as_reason(fault)
        self.clocks = calls.clocks
        return calls.lie()

    def _rejected(self, observed: Observed, drawn: InputSet, model: Observed) -> Reason | None:
        """Why what was observed rejects the candidate, or None."""
        if reason := _shape_of_result(observed, model):
            return reason
        if not observed.finished:
            return Reason(code="late-work", detail="an output changed after the call had returned")
        reason = self._judge(observed.leaves, observed, drawn)
        if reason and reason.code in ("inaccurate", "not-finite"):
            reason = self._excuse(observed, drawn) or reason
        self._earlier.keep(observed.leaves)
        reason = reason or _untouched(observed, drawn) or self._state_untouched(observed, drawn.right)
        if reason is None and observed.again is not None:
            reason = self._twice(observed, drawn)
        if reason and drawn.perturbed and reason.code == "inaccurate":
            return Reason(code=reason.code, detail=f"{reason.detail}; the parameters had been changed before this call")
        return reason

    def _excuse(self, observed: Observed, drawn: InputSet) -> Reason | None:
        """How an output became wrong, where that can be seen: it comes late, or it came before."""
        if isinstance(self.runner, ByMemory):
            later = self.runner.look_again()
            if self._judge(later, observed, drawn, keep=False) is None:
                return Reason(code="late-work", detail="the output was right only a while after the call had returned")
        names = [name.removeprefix("output") for name in drawn.right.names]
        if self._earlier.repeats(observed.leaves, dict(zip(names, drawn.right.reference, strict=True))):
            return Reason(code="stale-output", detail="the output is the answer to an earlier call, with other inputs")
        return None

    def _judge(
        self, leaves: dict[str, Any], observed: Observed, drawn: InputSet, *, keep: bool = True
    ) -> Reason | None:
        """Holds values against the budget, and keeps the worst accuracy unless told not to."""
        before, right = tensors(drawn.inputs), drawn.right
        names = right.names[: len(right.names) - len(right.mutated) - len(right.state)]
        got = [as_tensor(leaves[name.removeprefix("output")]) for name in names]
        got += [observed.mutated.get(at, before[at].detach()) for at in right.mutated]
        got += self._state_after(observed, right)
        reason, accuracy = budget.check(got, right, distribution=drawn.distribution, policy=self.policy)
        if keep and accuracy and (reason or self.accuracy is None or accuracy.times_limit > self.accuracy.times_limit):
            self.accuracy = accuracy
        return reason

    def _state_untouched(self, observed: Observed, right: Right) -> Reason | None:
        """Parameters, and the buffers that the reference has too, are as before, but for those that it changes."""
        for name in observed.state:
            kind = self.runner.state.get(name, "buffer")
            if name not in right.state and (kind == "parameter" or name in self._keeps):
                return Reason(code="input-mutated", detail=f"{kind} {name} was changed")
        return None

    def _state_after(self, observed: Observed, right: Right) -> list[torch.Tensor]:
        """What the candidate left in the state that the reference changes; nothing is asked of what it does not have,
        which only a live object, or a buffer that is not persistent, may lack."""
        states, reference = right.state, right.reference[len(right.reference) - len(right.state) :]
        if lacking := [name for name in states if name not in self.runner.state]:
            self._note(f"not compared, as the candidate does not keep it: {', '.join(lacking)}")
        return [
            observed.state.get(name, before) if name in self.runner.state else own
            for (name, before), own in zip(states.items(), reference, strict=True)
        ]

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _twice(self, observed: Observed, drawn: InputSet) -> Reason | None:
        assert observed.again is not None
        if self.problem.deterministic:
            detail = f"two calls with equal inputs ({drawn.distribution.name}) gave different bits"
            return Reason(code="nondeterministic", detail=detail)
        self._note("not deterministic: two calls with equal inputs gave different bits")
        if reason := self._judge(observed.again, observed, drawn):
            return Reason(code=reason.code, detail=f"in a second call with equal inputs: {reason.detail}")
        return None


def _shape_of_result(observed: Observed, model: Observed) -> Reason | None:
    if observed.outline != model.outline:
        return Reason(code="wrong-structure", detail=f"returns {observed.outline} instead of {model.outline}")
    if observed.leaves.keys() != model.leaves.keys():
        return Reason(code="forged-answer", detail=f"says that it returns {observed.outline}, and describes another")
    for path, right in model.devices.items():
        if (got := observed.devices.get(path)) != right:
            return Reason(code="wrong-device", detail=f"output{path} is on {got} instead of {right}")
    for path, right in model.leaves.items():
        if _kind(got := observed.leaves[path]) is not _kind(right):
            detail = f"output{path} is said to be {_kind(right).__name__}, and is {type(got).__name__}"
            return Reason(code="forged-answer", detail=detail)
    return None


def _kind(leaf: Any) -> type:
    return Tensor if isinstance(leaf, Tensor) else type(leaf)


def _untouched(observed: Observed, drawn: InputSet) -> Reason | None:
    """Inputs are as before, but for those that the reference changes too."""
    before = tensors(drawn.inputs)
    for at, after in observed.mutated.items():
        if at not in drawn.right.mutated:
            return Reason(code="input-mutated", detail=_first_change(at, before[at].detach(), after))
    for at in observed.outside:
        return Reason(code="input-mutated", detail=f"input {at}: something was written between or around its elements")
    return None


def _first_change(at: int, before: torch.Tensor, after: torch.Tensor) -> str:
    same = (before == after) | ((before != before) & (after != after))
    changed = (~same).nonzero()
    if not len(changed):
        return f"input {at}: bits changed, such as the sign of a zero"
    where = tuple(changed[0].tolist())
    values = f"was {before[where].item()}, is {after[where].item()}"
    return f"input {at}{list(where)} {values}; {len(changed):,} elements differ"


def _as_reason(fault: KernelwrightError) -> Reason:
    """The rejection that an error of the candidate amounts to; any other error is raised again."""
    code = "runtime-error" if type(fault) is CandidateError else fault.code
    if isinstance(fault, NotFoundError) or code not in REJECTIONS:
        raise fault
    where = f" ({fault.where})" if fault.where and fault.where not in fault.message else ""
    return Reason(code=code, detail=fault.message + where)
