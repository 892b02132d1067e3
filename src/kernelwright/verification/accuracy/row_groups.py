"""Input sets in which only some rows are drawn from the set's distribution and the others are the problem's own.

They are used for programs that compute each row from the same row of some inputs. A few numbers of an input then do
not identify its distribution, and the outputs of each group of rows are checked with the rule of their own
distribution: one rule for all of them would be too narrow for some rows or too wide for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.core.verdict import Accuracy, Reason
from kernelwright.problems.problem import Args, clone_inputs
from kernelwright.verification.accuracy import budget, comparison
from kernelwright.verification.accuracy.distributions import DISTRIBUTIONS, MIN_LEVELS, Distribution
from kernelwright.verification.accuracy.expected import Expected
from kernelwright.verification.accuracy.ranges import as_real

MIN_ROWS = 8


@dataclass(frozen=True)
class RowGroup:
    """Rows of every output, and the distribution of the inputs that they depend on.

    Attributes:
        rows: (n,) int64, ascending.
    """

    distribution: Distribution
    rows: Tensor


def find_row_leaves(inputs: Args) -> list[list[int]]:
    """Sets of leaves that may have a row for each row of the outputs, the most likely first: all tensors whose first
    dimension is that of the largest floating tensor, then the largest one alone."""
    tensors = {at: leaf for at, leaf in enumerate(pytree.tree_leaves(inputs)) if isinstance(leaf, Tensor)}
    floating = [at for at, value in tensors.items() if value.dtype.is_floating_point and value.dim() > 1]
    if not floating or any(value.layout != torch.strided for value in tensors.values()):
        return []
    largest = max(floating, key=lambda at: tensors[at].numel())
    rows = tensors[largest].shape[0]
    if rows < MIN_ROWS:
        return []
    equal = [at for at, value in tensors.items() if value.dim() and value.shape[0] == rows]
    return [equal, [largest]] if equal != [largest] else [equal]


def draw_rows(num_rows: int, distribution: Distribution, generator: torch.Generator) -> list[RowGroup]:
    """Random groups of rows: half of the distribution, the others of the problem's own values; none where all rows
    must be of the distribution.

    With generators of the same seed, consecutive distributions of `DISTRIBUTIONS` have each other's rows, so that no
    row has values of the distribution in both sets.
    """
    order = torch.randperm(num_rows, generator=generator, device=generator.device)
    count = num_rows // 2
    halves = [order[:count].sort().values, order[count:].sort().values]
    if distribution.sampler is None or distribution.range_end or num_rows < MIN_ROWS:
        return []
    if distribution.count_levels and count < MIN_LEVELS // 2:
        return []
    if distribution in DISTRIBUTIONS and DISTRIBUTIONS.index(distribution) % 2:
        halves.reverse()
    return [RowGroup(distribution, halves[0]), RowGroup(replace(distribution, sparse=False), halves[1])]


def replace_rows(inputs: Args, source: Args, leaves: Sequence[int], rows: Tensor) -> Args:
    """A copy of the inputs in which these rows of these leaves are those of `source`; strides are kept."""
    replaced = clone_inputs(inputs)
    targets, sources = pytree.tree_leaves(replaced), pytree.tree_leaves(source)
    with torch.no_grad():
        for at in leaves:
            if 0 not in targets[at].stride():
                targets[at][rows] = sources[at][rows]
    return replaced


def check_groups(
    got: list[Tensor],
    expected: Expected,
    groups: Sequence[RowGroup],
    *,
    distribution: Distribution,
    policy: str,
) -> tuple[Reason | None, Accuracy | None]:
    """As `budget.check_accuracy`, for every group of rows with its own rule.

    Args:
        distribution: of the whole set.
    """
    if reason := _check_whole(got, expected, distribution):
        return reason, None
    near_reason: Reason | None = None
    worst: Accuracy | None = None
    for number, group in enumerate(groups):
        part = expected.get_or_compute(f"rows {number}", lambda rows=group.rows: expected.of_rows(rows))
        values = [value[group.rows] for value in got if _is_measured(value)]
        reason, accuracy = budget.check_accuracy(values, part, distribution=group.distribution, policy=policy)
        if accuracy:
            index = (int(group.rows[accuracy.index[0]]), *accuracy.index[1:])
            if reason:
                old, new = f"{list(accuracy.index)}: got", f"{list(index)}: got"
                reason = Reason(code=reason.code, detail=reason.detail.replace(old, new, 1))
            accuracy = _with_index(accuracy, index)
        if reason and not budget.is_near_limit(accuracy):
            return reason, accuracy
        if accuracy and (worst is None or accuracy.error_over_limit > worst.error_over_limit):
            worst, near_reason = accuracy, reason or near_reason
    return near_reason, worst


def _check_whole(got: list[Tensor], expected: Expected, distribution: Distribution) -> Reason | None:
    """The reason to reject outputs for their shapes, dtypes, integers or places that are not finite, or None."""
    if len(got) != len(expected.reference):
        return Reason(code="wrong-structure", detail=f"{len(got)} outputs instead of {len(expected.reference)}")
    for at, (value, reference) in enumerate(zip(got, expected.reference, strict=True)):
        name = expected.names[at]
        if reason := comparison.check_shape_dtype(value, reference, name):
            return reason
        if not _is_measured(reference):
            reason = comparison.check_integers(value, expected, at)
        else:
            value, reference = as_real(value), as_real(reference)
            if distribution.sampler is not None:
                reference = comparison.replace_overflow(value, reference, as_real(expected.golden[at]))
            reason = comparison.check_non_finite(value, reference, name)
        if reason:
            return reason
    return None


def _is_measured(value: Tensor) -> bool:
    return value.dtype.is_floating_point or value.is_complex()


def _with_index(accuracy: Accuracy, index: tuple[int, ...]) -> Accuracy:
    fields = {name: getattr(accuracy, name) for name in accuracy.__struct_fields__}
    return Accuracy(**{**fields, "index": index})
