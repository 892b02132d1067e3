"""Comparisons that need no budget: shape, dtype, non-finite positions, integers, and the classic tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernelwright.core.errors import UsageError
from kernelwright.core.records import Accuracy, Reason
from kernelwright.verification.accuracy.error import MAX_ERROR_RATIO
from kernelwright.verification.accuracy.expected import Expected
from kernelwright.verification.accuracy.ranges import all_finite

# In fewer rows a rank in common may be chance.
MIN_ROWS_FOR_RANK = 8


@dataclass(frozen=True)
class Tolerance:
    """The classic policy: |got - right| <= atol + rtol * |right|, against the reference."""

    atol: float
    rtol: float


def format_policy(tolerance: tuple[float, float] | None) -> str:
    """The policy of an absolute and a relative tolerance; of none the error budget."""
    return "reference" if tolerance is None else f"{tolerance[0]!r},{tolerance[1]!r}"


def parse_policy(policy: str) -> str | Tolerance:
    """`reference` or `ATOL,RTOL`.

    Raises:
        UsageError: none of these.
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
    if got.shape != reference.shape:
        return Reason(code="wrong-shape", detail=f"{name}: {tuple(got.shape)} instead of {tuple(reference.shape)}")
    if got.dtype != reference.dtype:
        return Reason(code="wrong-dtype", detail=f"{name}: {got.dtype} instead of {reference.dtype}")
    return None


def check_non_finite(got: Tensor, reference: Tensor, name: str) -> Reason | None:
    """NaN where the reference has NaN and nowhere else, infinities likewise with their sign."""
    if all_finite(got) and all_finite(reference):
        return None
    special = ~(got.isfinite() & reference.isfinite())
    wrong = special & ~_equal_or_both_nan(got, reference)
    return _first_mismatch(wrong, got, reference, name, "not-finite")


def replace_overflow(got: Tensor, reference: Tensor, golden: Tensor) -> Tensor:
    """The reference, with the golden's numbers where it overflowed and the candidate did not.

    For inputs that we drew: that a program does not survive them is its fault, and nobody need copy it.
    """
    if all_finite(reference):
        return reference
    rounded = golden.to(reference.dtype)
    better = got.isfinite() & rounded.isfinite() & ~reference.isfinite()
    return torch.where(better, rounded, reference)


def check_integers(got: Tensor, expected: Expected, output_index: int) -> Reason | None:
    """Each element equals the reference's or the golden's, or selects an equal value where outputs are indices."""
    reference, golden = expected.reference[output_index], expected.golden[output_index]
    wrong = (got != reference) & (got != golden.to(reference.dtype))
    if not bool(wrong.any()) or selects_equal_values(got, reference, expected.inputs):
        return None
    return _first_mismatch(wrong, got, reference, expected.names[output_index], "inaccurate")


def selects_equal_values(got: Tensor, reference: Tensor, inputs: list[Tensor]) -> bool:
    """Both index tensors pick the same values out of some input, along some dimension, without picking one twice.

    The hook for argmax, topk, sort and median: where values tie, either index is right. Only an input that explains
    the reference's own choice counts: in a constant one, or one that has nothing to do with it, a wrong index would
    pick an equal value too.
    """
    if got.dtype not in (torch.int32, torch.int64):
        return False
    for source in inputs:
        if not source.dtype.is_floating_point:
            continue
        for dim in range(source.dim()):
            ours, theirs = (_as_gather_index(t, source, dim) for t in (got, reference))
            if ours is None or theirs is None or _count_repeats(ours, dim) > _count_repeats(theirs, dim):
                continue
            values = source.gather(dim, theirs)
            if torch.equal(source.gather(dim, ours), values) and _has_common_rank(source.movedim(dim, -1), values, dim):
                return True
    return False


def _has_common_rank(source: Tensor, values: Tensor, dim: int) -> bool:
    """Whether the values that were picked have their rank in common: the first so many, the last so many, or, over
    enough rows, any rank, which is the same in every row."""
    ordered = source.reshape(-1, source.shape[-1]).double().sort(-1).values.contiguous()
    picked = values.movedim(dim, -1).reshape(len(ordered), -1).double().contiguous()
    if bool((ordered[:, 0] == ordered[:, -1]).all()):
        return False
    size, count = ordered.shape[1], picked.shape[1]
    low = torch.searchsorted(ordered, picked)
    high = torch.searchsorted(ordered, picked, right=True) - 1
    place = torch.arange(count, device=source.device)
    if any(bool(((low <= rank) & (rank <= high)).all()) for rank in (place, size - 1 - place)):
        return True
    chosen = picked.sort(-1).values
    unordered = count < size and any(torch.equal(chosen, end) for end in (ordered[:, :count], ordered[:, -count:]))
    return unordered or (len(ordered) >= MIN_ROWS_FOR_RANK and bool((low.amax(0) <= high.amin(0)).all()))


def check_tolerance(
    got: Tensor, reference: Tensor, rule: Tolerance, name: str, distribution: str
) -> tuple[Reason | None, Accuracy]:
    """`torch.isclose` against the reference; non-finite positions have been compared before."""
    finite = reference.isfinite()
    wide = torch.where(finite, reference.double(), 0.0)
    error = torch.where(finite, got.double() - wide, 0.0).abs()
    limit = rule.atol + rule.rtol * wide.abs()
    share = torch.where(error == 0, 0.0, error / limit).clamp_max(MAX_ERROR_RATIO).flatten()
    worst = int(share.argmax())
    where = unravel_index(worst, got.shape)
    accuracy = Accuracy(
        policy=f"{rule.atol:g},{rule.rtol:g}",
        error=error[where].item(),
        reference_error=0.0,
        limit=limit[where].item(),
        error_over_reference=MAX_ERROR_RATIO if error[where].item() else 0.0,
        error_over_limit=share[worst].item(),
        metric="absolute",
        distribution=distribution,
        output=name,
        index=where,
        got=repr(got[where].item()),
        expected=repr(reference[where].item()),
    )
    if accuracy.error_over_limit <= 1:
        return None, accuracy
    off = f"{accuracy.error_over_limit:,.3g} times the tolerance" if limit[where] else "where nothing may be"
    detail = (
        f"{accuracy.error:.3g} off, {off}; worst at {name}{list(where)}: got {accuracy.got}, right {accuracy.expected}"
    )
    return Reason(code="inaccurate", detail=detail), accuracy


def unravel_index(flat: int, shape: torch.Size) -> tuple[int, ...]:
    """The index of a flat (row-major) position."""
    where: list[int] = []
    for size in reversed(shape):
        flat, here = divmod(flat, size)
        where.append(here)
    return tuple(reversed(where))


def _equal_or_both_nan(got: Tensor, reference: Tensor) -> Tensor:
    return (got == reference) | (got.isnan() & reference.isnan())


def _first_mismatch(wrong: Tensor, got: Tensor, right: Tensor, name: str, code: str) -> Reason | None:
    count = int(wrong.sum())
    if not count:
        return None
    where = unravel_index(int(wrong.flatten().int().argmax()), got.shape)
    share = f"{count} of {wrong.numel()} elements differ"
    return Reason(
        code=code, detail=f"{name}{list(where)}: got {got[where].item()}, right {right[where].item()}; {share}"
    )


def _as_gather_index(index: Tensor, source: Tensor, dim: int) -> Tensor | None:
    """The index in the form that `gather` takes, or None where it cannot be one."""
    index = index.long()
    if index.dim() == source.dim() - 1:
        index = index.unsqueeze(dim)
    others = [d for d in range(source.dim()) if d != dim]
    if index.dim() != source.dim() or any(index.shape[d] != source.shape[d] for d in others):
        return None
    return index if bool(((index >= 0) & (index < source.shape[dim])).all()) else None


def _count_repeats(index: Tensor, dim: int) -> int:
    ordered = index.sort(dim).values
    return int((ordered.diff(dim=dim) == 0).sum())
