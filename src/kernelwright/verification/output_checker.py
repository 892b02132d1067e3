"""Compares a candidate's outputs with the expected values and names the reason for a rejection."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from kernelwright.core.errors import CandidateError, KernelwrightError, NotFoundError, TamperingError
from kernelwright.core.verdict import REJECTIONS, Accuracy, Reason
from kernelwright.measure.clock import wall_s
from kernelwright.problems.problem import tensor_leaves
from kernelwright.verification.accuracy import budget
from kernelwright.verification.accuracy.expected import FP64, Expected
from kernelwright.verification.accuracy.near_limit import DrawResult, InputKind, NearLimitTracker
from kernelwright.verification.accuracy.row_groups import check_groups
from kernelwright.verification.accuracy.special_values import allow_spread
from kernelwright.verification.attacks.aliased_output import find_aliasing, find_other_order
from kernelwright.verification.attacks.stale_output import OutputHistory
from kernelwright.verification.execution import ObservedCall, results_bitwise_equal
from kernelwright.verification.input_set import InputSet
from kernelwright.verification.outcome import as_tensor
from kernelwright.verification.reference import Reference
from kernelwright.verification.stochastic_outputs import BY_LAW_NOTE, BY_VALUE_NOTE, LawResult, StochasticOutputs
from kernelwright.verification.transport.runners import Runner


@dataclass
class OutputChecker:
    """Checks the outputs of one candidate, set after set.

    Attributes:
        template: what the reference returns for the problem's own inputs.
        reference_state_names: parameters and buffers that the reference has too.
        policy: accuracy policy, as in `budget.check_accuracy`.
        deterministic: equal inputs must give equal bits.
        golden: how the expected values were made.
        accuracy: the worst so far.
        near_limits: sets near the limit of accuracy: one that is over it by little does not reject, but is pending
            there.
        limit_ratio: the largest limit ratio of the last `check`; None without floating-point outputs.
        candidate_s: seconds that the candidate's calls on input sets took, with the transfer of inputs and outputs.
    """

    runner: Runner
    template: ObservedCall
    reference_state_names: frozenset[str]
    policy: str
    deterministic: bool = False
    golden: str = ""
    accuracy: Accuracy | None = None
    notes: list[str] = field(default_factory=list)
    near_limits: NearLimitTracker = field(default_factory=NearLimitTracker)
    limit_ratio: float | None = None
    candidate_s: float = 0.0
    _is_near_limit: bool = False
    _history: OutputHistory = field(default_factory=OutputHistory)
    _is_repeatable: bool = True
    _is_second_call: bool = False
    _has_order_note: bool = False
    _parameters_changed: bool = False

    def __post_init__(self) -> None:
        varies = self.template.second_leaves is not None
        self._random_outputs = StochasticOutputs(self._call_again, self.policy, reference_varies=varies)

    def check_set(self, input_set: InputSet) -> Reason | None:
        """Run the candidate on a set; the reason to reject it, or None."""
        reason = self._run_and_check(input_set)
        if reason is None and self.limit_ratio is not None:
            self.near_limits.add(input_set.kind, self.limit_ratio)
        return reason

    def _run_and_check(self, input_set: InputSet) -> Reason | None:
        self.limit_ratio = None
        start_s = wall_s()
        try:
            observed = self.runner.run(
                input_set.inputs,
                input_set.state,
                input_set.output_sizes_bytes,
                twice=input_set.repeat_call,
                seed=input_set.seed,
                same_address=input_set.same_address,
            )
            self.candidate_s += wall_s() - start_s
            return self.check(observed, input_set)
        except KernelwrightError as error:
            return to_reason(error)

    def decide_near_limit(self, reference: Reference, kinds: Iterable[InputKind]) -> Reason | None:
        """Draw more sets of these kinds until they decide; the reason to reject, or None."""

        def draw(kind: InputKind, number: int) -> DrawResult:
            drawn = reference.redraw_set(kind, number)
            return DrawResult(self._run_and_check(drawn), self.limit_ratio) if drawn else DrawResult(None, None)

        reasons = (self.near_limits.decide(kind, functools.partial(draw, kind)) for kind in kinds)
        return next(filter(None, reasons), None)

    def check_held_out(self, reference: Reference) -> tuple[int, Reason | None]:
        """Check the other shapes that the problem declares; the number of sets run, and the reason to reject, or
        None."""
        count = 0
        for count, input_set in enumerate(reference.held_out_sets(), 1):
            if reason := self.check_set(input_set):
                shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensor_leaves(input_set.inputs))
                detail = f"for inputs of {shapes}, which the problem declares: {reason.detail}"
                return count, Reason(code=reason.code, detail=detail)
        return count, None

    def check(self, observed: ObservedCall, input_set: InputSet) -> Reason | None:
        """The reason to reject the observed call, or None.

        Raises:
            TamperingError: the call's report is not valid.
        """
        self.limit_ratio = None
        self._parameters_changed |= input_set.parameters_perturbed
        if not self.golden or input_set.expected.golden_method != FP64:
            self.golden = input_set.expected.golden_method
        template = input_set.template or self.template
        reason = self._check_values(observed, input_set) or _check_inputs_unchanged(observed, input_set)
        reason = (
            reason
            or find_aliasing(observed.memory, template.memory)
            or self._check_state_unchanged(observed, input_set.expected)
            or self._check_determinism(observed, input_set)
        )
        if not self._has_order_note and (note := find_other_order(observed.memory, template.memory)):
            self._has_order_note = True
            self._add_note(note)
        return self._add_parameters_text(reason) if reason and reason.code == "inaccurate" else reason

    def _add_parameters_text(self, reason: Reason) -> Reason:
        """With a sentence if the parameters changed between the candidate's calls: it may have kept values of them."""
        changed = "; the parameters had been changed before this call" if self._parameters_changed else ""
        return Reason(code=reason.code, detail=reason.detail + changed)

    def _check_values(self, observed: ObservedCall, input_set: InputSet) -> Reason | None:
        """The reason to reject the values of the last call, with their cause where it can be found."""
        if reason := _check_structure(observed, input_set.template or self.template):
            return reason
        if not observed.complete_on_return:
            return Reason(code="late-work", detail="an output changed after the call had returned")
        if observed.faulty_memory:
            return Reason(code="aliased-output", detail=observed.faulty_memory)
        accuracy = self.accuracy
        reason = self._check_accuracy(observed.leaves, observed, input_set)
        by_law: LawResult | None = None
        if reason and reason.code in ("inaccurate", "not-finite"):
            if input_set.expected.draws_random or not self._is_near_limit:
                got = self._collect_values(observed.leaves, observed, input_set)
                by_law = self._random_outputs.judge(got, input_set, is_repeated=self._is_second_call)
            if by_law:
                reason = self._apply_law(by_law, accuracy)
            if reason:
                cause = self._find_cause(observed, input_set, may_be_stale=by_law is None)
                reason = cause or self._defer_if_near_limit(reason, input_set)
        elif reason is None and input_set.expected.draws_random:
            reason = self._check_accepted_draw(observed, input_set)
        self.remember_outputs(observed)
        return reason

    def _check_accepted_draw(self, observed: ObservedCall, input_set: InputSet) -> Reason | None:
        """The reason to reject random outputs that are the reference's own draw. In a small output a draw of the
        candidate's own may be equal by chance, and these calls count too."""
        if not self._random_outputs.num_draws:
            self._add_note(BY_VALUE_NOTE)
            return None
        got = self._collect_values(observed.leaves, observed, input_set)
        by_law = self._random_outputs.judge(got, input_set, is_repeated=self._is_second_call)
        return by_law and by_law.reason

    def _apply_law(self, by_law: LawResult, accuracy: Accuracy | None) -> Reason | None:
        """Replace the last result by value, for outputs that are not the reference's draw.

        Args:
            accuracy: the worst before this call.
        """
        self.accuracy, self.limit_ratio, self._is_near_limit = accuracy, None, by_law.is_near_limit
        self._record(by_law.accuracy, is_rejected=by_law.reason is not None)
        self.notes[:] = [note for note in self.notes if note != BY_VALUE_NOTE and not note.startswith(BY_LAW_NOTE)]
        self._add_note(f"{BY_LAW_NOTE}, {self._random_outputs.num_draws} draws")
        return by_law.reason

    def _call_again(self, input_set: InputSet, seed: int) -> list[Tensor] | Reason:
        """The candidate's values for the inputs of a set under another seed, or the reason to reject their
        structure."""
        observed = self.runner.run(input_set.inputs, None, input_set.output_sizes_bytes, twice=False, seed=seed)
        if reason := _check_structure(observed, input_set.template or self.template):
            return reason
        return self._collect_values(observed.leaves, observed, input_set)

    @property
    def must_reload(self) -> bool:
        """Whether the candidate was judged by law and draws from a source of its own: in a new process it must not
        draw the same again."""
        return self._random_outputs.num_draws > 0 and not self._is_repeatable

    def check_reloaded(self) -> Reason | None:
        """Check that the candidate, which was loaded again, does not draw the same random numbers again."""
        try:
            return self._random_outputs.check_reloaded()
        except KernelwrightError as error:
            return to_reason(error)

    def _defer_if_near_limit(self, reason: Reason, input_set: InputSet) -> Reason | None:
        """The reason, unless more sets have to decide."""
        if not self._is_near_limit:
            return reason
        self.near_limits.pending[input_set.kind] = self._add_parameters_text(reason)
        return None

    def remember_outputs(self, observed: ObservedCall) -> None:
        """Add a call's outputs to the history: a later call must not return them again."""
        self._history.append(observed.leaves)

    def _find_cause(self, observed: ObservedCall, input_set: InputSet, *, may_be_stale: bool) -> Reason | None:
        """Whether wrong values were written late, or are an earlier call's; random outputs of calls are often equal
        in most elements."""
        if (
            observed.reread_leaves
            and self._check_accuracy(observed.reread_leaves(), observed, input_set, record=False) is None
        ):
            return Reason(code="late-work", detail="the output was correct only some time after the call had returned")
        names = [name.removeprefix("output") for name in input_set.expected.names]
        if may_be_stale and self._history.is_stale(
            observed.leaves, dict(zip(names, input_set.expected.reference, strict=True))
        ):
            return Reason(code="stale-output", detail="the output is the result of an earlier call with other inputs")
        return None

    def _check_accuracy(
        self, leaves: dict[str, Any], observed: ObservedCall, input_set: InputSet, *, record: bool = True
    ) -> Reason | None:
        """Check values against the accuracy policy; `record` keeps the worst accuracy."""
        got, expected = self._collect_values(leaves, observed, input_set), input_set.expected
        distribution, policy = input_set.distribution, self.policy
        if input_set.groups:
            reason, accuracy = check_groups(got, expected, input_set.groups, distribution=distribution, policy=policy)
        else:
            reason, accuracy = budget.check_accuracy(got, expected, distribution=distribution, policy=policy)
        if record:
            self._is_near_limit = budget.is_near_limit(accuracy)
            self._record(accuracy, is_rejected=reason is not None)
        return reason

    def _record(self, accuracy: Accuracy | None, *, is_rejected: bool) -> None:
        """Keep the worst accuracy and the largest limit ratio."""
        if accuracy is None:
            return
        self.limit_ratio = max(accuracy.error_over_limit, self.limit_ratio or 0.0)
        if is_rejected or self.accuracy is None or accuracy.error_over_limit > self.accuracy.error_over_limit:
            self.accuracy = accuracy

    def _collect_values(self, leaves: dict[str, Any], observed: ObservedCall, input_set: InputSet) -> list[Tensor]:
        """The outputs, then the inputs and the state that the reference changes."""
        inputs, expected = tensor_leaves(input_set.inputs), input_set.expected
        names = expected.names[: len(expected.names) - len(expected.mutated_inputs) - len(expected.initial_state)]
        got = [as_tensor(leaves[name.removeprefix("output")]) for name in names]
        got += [observed.mutated_inputs.get(at, inputs[at].detach()) for at in expected.mutated_inputs]
        got += self._final_state(observed, expected)
        if input_set.special_effect is None:
            return got
        return allow_spread(got, expected, input_set.special_effect, keeps_numbers=input_set.keeps_numbers)

    def _check_state_unchanged(self, observed: ObservedCall, expected: Expected) -> Reason | None:
        """Reject changes of parameters, and of buffers that the reference has too, which the reference does not
        change."""
        for name in observed.changed_state:
            kind = self.runner.state_kinds.get(name, "buffer")
            if name not in expected.initial_state and (kind == "parameter" or name in self.reference_state_names):
                return Reason(code="input-mutated", detail=f"{kind} {name} was changed")
        return None

    def _final_state(self, observed: ObservedCall, expected: Expected) -> list[torch.Tensor]:
        """The candidate's values of the state that the reference changes. State that the candidate does not have
        (possible for an in-process callable or a non-persistent buffer) is not compared."""
        states, reference = (
            expected.initial_state,
            expected.reference[len(expected.reference) - len(expected.initial_state) :],
        )
        if missing := [name for name in states if name not in self.runner.state_kinds]:
            self._add_note(f"not compared: the candidate has no such state: {', '.join(missing)}")
        return [
            observed.changed_state.get(name, before) if name in self.runner.state_kinds else reference_value
            for (name, before), reference_value in zip(states.items(), reference, strict=True)
        ]

    def _add_note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _check_determinism(self, observed: ObservedCall, input_set: InputSet) -> Reason | None:
        """Compare a second call with equal inputs, where there is one."""
        second = observed.repeat_call() if observed.repeat_call else None
        if second and not results_bitwise_equal(observed, second):
            observed.second_leaves = second.leaves
        if observed.second_leaves is None:
            return None
        if self.deterministic:
            detail = f"two calls with equal inputs ({input_set.distribution.name}) returned different bits"
            return Reason(code="nondeterministic", detail=detail)
        self._add_note("not deterministic: two calls with equal inputs returned different bits")
        self._is_repeatable = False
        self._is_second_call = True
        reason = self._check_values(second or replace(observed, leaves=observed.second_leaves), input_set)
        self._is_second_call = False
        if reason:
            return Reason(code=reason.code, detail=f"in a second call with equal inputs: {reason.detail}")
        return None


def to_reason(error: KernelwrightError) -> Reason:
    """The rejection for an error of the candidate.

    Raises:
        KernelwrightError: `error` itself, if it is not the candidate's.
    """
    code = "runtime-error" if type(error) is CandidateError else error.code
    if isinstance(error, NotFoundError) or code not in REJECTIONS:
        raise error
    where = f" ({error.where})" if error.where and error.where not in error.message else ""
    return Reason(code=code, detail=error.message + where)


def _check_structure(observed: ObservedCall, template: ObservedCall) -> Reason | None:
    if observed.structure != template.structure:
        return Reason(code="wrong-structure", detail=f"returns {observed.structure} instead of {template.structure}")
    for leaf in observed.leaves.values():
        if isinstance(leaf, TamperingError):
            return Reason(code="forged-answer", detail=leaf.message)
    if observed.sent_paths and "torch.sparse" not in template.structure:
        detail = f"output{observed.sent_paths[0]} was sent by value although it is an ordinary tensor"
        return Reason(code="forged-answer", detail=detail)
    if observed.leaves.keys() != template.leaves.keys():
        return Reason(
            code="forged-answer", detail=f"reported structure {observed.structure} does not match the reported leaves"
        )
    for path, expected in template.devices.items():
        if (got := observed.devices.get(path)) != expected:
            return Reason(code="wrong-device", detail=f"output{path} is on {got} instead of {expected}")
    for path, expected in template.leaves.items():
        if _leaf_type(got := observed.leaves[path]) is not _leaf_type(expected):
            detail = f"output{path} is reported as {_leaf_type(expected).__name__}, is {type(got).__name__}"
            return Reason(code="forged-answer", detail=detail)
    return None


def _leaf_type(leaf: Any) -> type:
    return Tensor if isinstance(leaf, Tensor) else type(leaf)


def _check_inputs_unchanged(observed: ObservedCall, input_set: InputSet) -> Reason | None:
    """Reject changes of inputs that the reference does not change."""
    before = tensor_leaves(input_set.inputs)
    for at, after in observed.mutated_inputs.items():
        if at not in input_set.expected.mutated_inputs:
            return Reason(code="input-mutated", detail=_describe_first_change(at, before[at].detach(), after))
    for at in observed.out_of_bounds_inputs:
        return Reason(code="input-mutated", detail=f"input {at}: memory between or around its elements was written")
    return None


def _describe_first_change(input_index: int, before: torch.Tensor, after: torch.Tensor) -> str:
    same = (before == after) | ((before != before) & (after != after))
    changed = (~same).nonzero()
    if not len(changed):
        return f"input {input_index}: bits changed, such as the sign of a zero"
    index = tuple(changed[0].tolist())
    values = f"was {before[index].item()}, is {after[index].item()}"
    return f"input {input_index}{list(index)} {values}; {len(changed):,} elements differ"
