"""Holds what a candidate gave against what is right, and names what is wrong with it."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kernelwright.core.errors import CandidateError, ForgedError, KernelwrightError, NotFoundError
from kernelwright.core.records import REJECTIONS, Accuracy, Reason
from kernelwright.problems.problem import tensors
from kernelwright.verification.accuracy import budget
from kernelwright.verification.accuracy.expected import FP64, Right
from kernelwright.verification.accuracy.near_limit import Drawn, Kind, NearLimits
from kernelwright.verification.attacks.stale_output import Memory
from kernelwright.verification.execution import Observed, same_results
from kernelwright.verification.outcome import as_tensor
from kernelwright.verification.reference import InputSet, Reference
from kernelwright.verification.transport.runners import Runner


@dataclass
class Answers:
    """Of one candidate, one after the other.

    Attributes:
        model: what the reference returns for the problem's own inputs.
        keeps: parameters and buffers that the reference has too.
        policy: of accuracy, as `budget.check` takes it.
        deterministic: equal inputs must give equal bits.
        golden: how the right answers were made.
        accuracy: the worst so far.
        near: draws that came near the limit of accuracy: one that is over it by little is not rejected for it, but
            pending there.
        share: the largest share of a limit in what `rejection` was last asked about; None where nothing floats.
    """

    runner: Runner
    model: Observed
    keeps: frozenset[str]
    policy: str
    deterministic: bool = False
    golden: str = ""
    accuracy: Accuracy | None = None
    notes: list[str] = field(default_factory=list)
    near: NearLimits = field(default_factory=NearLimits)
    share: float | None = None
    _is_near: bool = False
    _earlier: Memory = field(default_factory=Memory)

    def asked(self, drawn: InputSet) -> Reason | None:
        """Runs the candidate on a set; why what comes of it rejects the candidate, or None."""
        reason = self._asked(drawn)
        if reason is None and self.share is not None:
            self.near.add(drawn.kind, self.share)
        return reason

    def _asked(self, drawn: InputSet) -> Reason | None:
        self.share = None
        try:
            return self.rejection(self.runner.run(drawn.inputs, drawn.state, drawn.sizes_bytes, twice=True), drawn)
        except KernelwrightError as fault:
            return as_reason(fault)

    def decided(self, reference: Reference, kinds: Iterable[Kind]) -> Reason | None:
        """Draws more sets of these kinds, until it is known whether they reject; why they do, or None."""

        def draw(kind: Kind, number: int) -> Drawn:
            drawn = reference.again(kind, number)
            return Drawn(self._asked(drawn), self.share) if drawn else Drawn(None, None)

        found = (self.near.decide(kind, functools.partial(draw, kind)) for kind in kinds)
        return next(filter(None, found), None)

    def asked_of_held_out(self, reference: Reference) -> tuple[int, Reason | None]:
        """The same of the other shapes that the problem declares; how many were run."""
        count = 0
        for count, drawn in enumerate(reference.held_out(), 1):
            if reason := self.asked(drawn):
                shapes = ", ".join(str(tuple(one.shape)) for one in tensors(drawn.inputs))
                detail = f"for inputs of {shapes}, which the problem declares: {reason.detail}"
                return count, Reason(code=reason.code, detail=detail)
        return count, None

    def rejection(self, observed: Observed, drawn: InputSet) -> Reason | None:
        """Why what was observed rejects the candidate, or None.

        Raises:
            ForgedError: what it says of itself is not so.
        """
        self.share = None
        if not self.golden or drawn.right.how != FP64:
            self.golden = drawn.right.how
        reason = self._wrong(observed, drawn) or _untouched(observed, drawn)
        reason = reason or self._state_untouched(observed, drawn.right) or self._twice(observed, drawn)
        if reason and drawn.perturbed and reason.code == "inaccurate":
            return Reason(code=reason.code, detail=f"{reason.detail}; the parameters had been changed before this call")
        return reason

    def _wrong(self, observed: Observed, drawn: InputSet) -> Reason | None:
        """What is wrong with the values of the last call, and how that came about where it can be seen."""
        if reason := _shape_of_result(observed, drawn.model or self.model):
            return reason
        if not observed.finished:
            return Reason(code="late-work", detail="an output changed after the call had returned")
        reason = self._judge(observed.leaves, observed, drawn)
        if reason and reason.code in ("inaccurate", "not-finite"):
            reason = self._cause(observed, drawn) or self._unless_near(reason, drawn)
        self.remember(observed)
        return reason

    def _unless_near(self, reason: Reason, drawn: InputSet) -> Reason | None:
        """The reason, unless it is one that more draws have to decide."""
        if not self._is_near:
            return reason
        changed = "; the parameters had been changed before this call" if drawn.perturbed else ""
        self.near.pending[drawn.kind] = Reason(code=reason.code, detail=reason.detail + changed)
        return None

    def remember(self, observed: Observed) -> None:
        """Keeps what a call gave: a later one must not give it again."""
        self._earlier.keep(observed.leaves)

    def _cause(self, observed: Observed, drawn: InputSet) -> Reason | None:
        """Of wrong values: they came late, or they came before."""
        if observed.later and self._judge(observed.later(), observed, drawn, keep=False) is None:
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
        if keep:
            self._is_near = budget.is_near(accuracy)
            self.share = max(accuracy.times_limit, self.share or 0.0) if accuracy else self.share
        if keep and accuracy and (reason or self.accuracy is None or accuracy.times_limit > self.accuracy.times_limit):
            self.accuracy = accuracy
        return reason

    def _state_untouched(self, observed: Observed, right: Right) -> Reason | None:
        """Parameters, and the buffers that the reference has too, are as before, but for those that it changes."""
        for name in observed.state:
            kind = self.runner.state.get(name, "buffer")
            if name not in right.state and (kind == "parameter" or name in self.keeps):
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
        """What a second call with equal inputs shows, where one was made or is to be made."""
        second = observed.repeat() if observed.repeat else None
        if second and not same_results(observed, second):
            observed.again = second.leaves
        if observed.again is None:
            return None
        if self.deterministic:
            detail = f"two calls with equal inputs ({drawn.distribution.name}) gave different bits"
            return Reason(code="nondeterministic", detail=detail)
        self._note("not deterministic: two calls with equal inputs gave different bits")
        reason = self._wrong(second, drawn) if second else self._judge(observed.again, observed, drawn)
        if reason and not second:
            reason = self._unless_near(reason, drawn)
        if reason:
            return Reason(code=reason.code, detail=f"in a second call with equal inputs: {reason.detail}")
        return None


def as_reason(fault: KernelwrightError) -> Reason:
    """The rejection that an error of the candidate amounts to; any other error is raised again."""
    code = "runtime-error" if type(fault) is CandidateError else fault.code
    if isinstance(fault, NotFoundError) or code not in REJECTIONS:
        raise fault
    where = f" ({fault.where})" if fault.where and fault.where not in fault.message else ""
    return Reason(code=code, detail=fault.message + where)


def _shape_of_result(observed: Observed, model: Observed) -> Reason | None:
    if observed.outline != model.outline:
        return Reason(code="wrong-structure", detail=f"returns {observed.outline} instead of {model.outline}")
    for leaf in observed.leaves.values():
        if isinstance(leaf, ForgedError):
            return Reason(code="forged-answer", detail=leaf.message)
    if observed.sent and "torch.sparse" not in model.outline:
        detail = f"output{observed.sent[0]} was sent, though one like it lies in memory"
        return Reason(code="forged-answer", detail=detail)
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
