"""Comparisons outside the error budget: shape, dtype, non-finite positions, integers, and the classic tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernelwright.core.errors import UsageError
from kernelwright.core.verdict import Accuracy, Reason
from kernelwright.verification.accuracy.error import MAX_ERROR_RATIO
from kernelwright.verification.accuracy.expected import Expected
from kernelwright.verification.accuracy.ranges import all_finite

# In fewer rows a common rank may be chance.
MIN_ROWS_FOR_RANK = 8


@dataclass(frozen=True)
class Tolerance:
    """The classic policy: |got - expected| <= atol + rtol * |expected|, against the reference."""

    atol: float
    rtol: float


def format_policy(tolerance: tuple[float, float] | None) -> str:
    """The policy string of an (atol, rtol) tolerance; `reference` for None."""
    return "reference" if tolerance is None else f"{tolerance[0]!r},{tolerance[1]!r}"


def parse_policy(policy: str) -> str | Tolerance:
    """Parse `reference` or `ATOL,RTOL`.

    Raises:
        UsageError: neither of these.
    """
    if policy == "reference":
        return policy
    try:
        atol, rtol = (float(part) for part in policy.split(","))
    except ValueError:
        raise UsageError(f"tolerance {policy!r} is not ATOL,RTOL", next="for example --tolerance 1e-4,1e-4") from None
    if not (0 <= atol < math.inf and 0 <= rtol < math.inf):
        raise UsageError(f"tolerance {policy!r} must be two finite numbers, zero or more")
    return Tolerance(atol, rtol)


def check_shape_dtype(got: Tensor, reference: Tensor, name: str) -> Reason | None:
    """The reason to reject an output of another shape or dtype, or None."""
    if got.shape != reference.shape:
        return Reason(code="wrong-shape", detail=f"{name}: {tuple(got.shape)} instead of {tuple(reference.shape)}")
    if got.dtype != reference.dtype:
        return Reason(code="wrong-dtype", detail=f"{name}: {got.dtype} instead of {reference.dtype}")
    return None


def check_non_finite(got: Tensor, reference: Tensor, name: str) -> Reason | None:
    """The reason to reject an output whose NaNs and signed infinities are not at the reference's positions, or None."""
    if all_finite(got) and all_finite(reference):
        return None
    special = ~(got.isfinite() & reference.isfinite())
    wrong = special & ~_equal_or_both_nan(got, reference)
    return _first_mismatch(wrong, got, reference, name, "not-finite")


def replace_overflow(got: Tensor, reference: Tensor, golden: Tensor) -> Tensor:
    """The reference, with the golden's values where the reference overflowed and the candidate did not.

    For redrawn inputs: a candidate does not have to reproduce the reference's overflow.
    """
    if all_finite(reference):
        return reference
    rounded = golden.to(reference.dtype)
    better = got.isfinite() & rounded.isfinite() & ~reference.isfinite()
    return torch.where(better, rounded, reference)


def check_integers(got: Tensor, expected: Expected, output_index: int) -> Reason | None:
    """The reason to reject an integer output, or None: each element must equal the reference's or the golden's, or
    select an equal value if outputs are indices of no stable order."""
    reference, golden = expected.reference[output_index], expected.golden[output_index]
    wrong = (got != reference) & (got != golden.to(reference.dtype))
    if not bool(wrong.any()):
        return None
    is_stable = expected.names[output_index] in expected.stable_outputs
    if not is_stable and selects_equal_values(got, reference, expected.inputs):
        return None
    return _first_mismatch(wrong, got, reference, expected.names[output_index], "inaccurate")


def selects_equal_values(got: Tensor, reference: Tensor, inputs: list[Tensor]) -> bool:
    """Whether both index tensors select the same values from an input, along one dimension, without selecting one
    twice.

    For argmax, topk, sort and median: where values tie, either index is correct. Only an input that explains the
    reference's own choice counts: in a constant or unrelated input, a wrong index would select an equal value too.
    """
    if got.dtype not in (torch.int32, torch.int64):
        return False
    for source in inputs:
        if not source.dtype.is_floating_point:
            continue
        if not all_finite(source):  # in torch's order NaN are the largest numbers
            source = source.nan_to_num(nan=math.inf, posinf=math.inf, neginf=-math.inf)
        for dim in range(source.dim()):
            got_index, reference_index = (_as_gather_index(t, source, dim) for t in (got, reference))
            if (
                got_index is None
                or reference_index is None
                or _count_repeats(got_index, dim) > _count_repeats(reference_index, dim)
            ):
                continue
            values = source.gather(dim, reference_index)
            if torch.equal(source.gather(dim, got_index), values) and _has_common_rank(
                source.movedim(dim, -1), values, dim
            ):
                return True
    return False


def _has_common_rank(source: Tensor, values: Tensor, dim: int) -> bool:
    """Whether the selected values have a common rank: the first N, the last N, or, over enough rows, any rank that is
    the same in every row."""
    ordered = source.reshape(-1, source.shape[-1]).double().sort(-1).values.contiguous()
    selected = values.movedim(dim, -1).reshape(len(ordered), -1).double().contiguous()
    if bool((ordered[:, 0] == ordered[:, -1]).all()):
        return False
    size, count = ordered.shape[1], selected.shape[1]
    low = torch.searchsorted(ordered, selected)
    high = torch.searchsorted(ordered, selected, right=True) - 1
    position = torch.arange(count, device=source.device)
    if any(bool(((low <= rank) & (rank <= high)).all()) for rank in (position, size - 1 - position)):
        return True
    sorted_selected = selected.sort(-1).values
    unordered = count < size and any(
        torch.equal(sorted_selected, end) for end in (ordered[:, :count], ordered[:, -count:])
    )
    return unordered or (len(ordered) >= MIN_ROWS_FOR_RANK and bool((low.amax(0) <= high.amin(0)).all()))


def check_tolerance(
    got: Tensor, reference: Tensor, rule: Tolerance, name: str, distribution: str
) -> tuple[Reason | None, Accuracy]:
    """`torch.isclose` against the reference; non-finite positions have already been compared."""
    finite = reference.isfinite()
    reference_fp64 = torch.where(finite, reference.double(), 0.0)
    error = torch.where(finite, got.double() - reference_fp64, 0.0).abs()
    limit = rule.atol + rule.rtol * reference_fp64.abs()
    ratio = torch.where(error == 0, 0.0, error / limit).clamp_max(MAX_ERROR_RATIO).flatten()
    worst = int(ratio.argmax())
    index = unravel_index(worst, got.shape)
    accuracy = Accuracy(
        policy=f"{rule.atol:g},{rule.rtol:g}",
        error=error[index].item(),
        reference_error=0.0,
        limit=limit[index].item(),
        error_over_reference=MAX_ERROR_RATIO if error[index].item() else 0.0,
        error_over_limit=ratio[worst].item(),
        metric="absolute",
        distribution=distribution,
        output=name,
        index=index,
        got=repr(got[index].item()),
        expected=repr(reference[index].item()),
    )
    if accuracy.error_over_limit <= 1:
        return None, accuracy
    excess = f"{accuracy.error_over_limit:,.3g} times the tolerance" if limit[index] else "where the tolerance is zero"
    detail = (
        f"error {accuracy.error:.3g}, {excess}; worst at {name}{list(index)}: got {accuracy.got}, "
        f"expected {accuracy.expected}"
    )
    return Reason(code="inaccurate", detail=detail), accuracy


def unravel_index(flat: int, shape: torch.Size) -> tuple[int, ...]:
    """The index of a flat (row-major) position."""
    index: list[int] = []
    for size in reversed(shape):
        flat, position = divmod(flat, size)
        index.append(position)
    return tuple(reversed(index))


def _equal_or_both_nan(got: Tensor, reference: Tensor) -> Tensor:
    return (got == reference) | (got.isnan() & reference.isnan())


def _first_mismatch(wrong: Tensor, got: Tensor, expected: Tensor, name: str, code: str) -> Reason | None:
    count = int(wrong.sum())
    if not count:
        return None
    index = unravel_index(int(wrong.flatten().int().argmax()), got.shape)
    summary = f"{count} of {wrong.numel()} elements differ"
    return Reason(
        code=code, detail=f"{name}{list(index)}: got {got[index].item()}, expected {expected[index].item()}; {summary}"
    )


def _as_gather_index(index: Tensor, source: Tensor, dim: int) -> Tensor | None:
    """The index in the form that `gather` takes, or None where that is not possible."""
    index = index.long()
    if index.dim() == source.dim() - 1:
        index = index.unsqueeze(dim)
    other_dims = [d for d in range(source.dim()) if d != dim]
    if index.dim() != source.dim() or any(index.shape[d] != source.shape[d] for d in other_dims):
        return None
    return index if bool(((index >= 0) & (index < source.shape[dim])).all()) else None


def _count_repeats(index: Tensor, dim: int) -> int:
    ordered = index.sort(dim).values
    return int((ordered.diff(dim=dim) == 0).sum())
