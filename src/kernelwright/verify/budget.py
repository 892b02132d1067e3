"""How much error is allowed, and what an error over it looks like. `docs/error-budget.md` has the experiment."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernelwright.core.errors import UsageError
from kernelwright.core.records import Accuracy, Reason
from kernelwright.verify.distributions import Distribution
from kernelwright.verify.error import (
    METRICS,
    Profile,
    error_of,
    profile,
    rounding_profile,
    shortcut_bits,
    significand_bits,
    smallest_kept,
)
from kernelwright.verify.golden import Right


@dataclass(frozen=True)
class Rule:
    """The error that one kind of input allows.

    Attributes:
        factor: times the reference's own error.
        share: of what a shortcut would lose.
        averaging: inputs of one sign: rounding errors of the inputs average out and say nothing.
    """

    factor: float
    share: float
    averaging: bool = False


ZERO_MEAN = Rule(16.0, 1 / 4)
SAME_SIGN = Rule(64.0, 1 / 4, averaging=True)
SPARSE = Rule(12.0, 1 / 48)


@dataclass(frozen=True)
class Tolerance:
    """The classic policy: |got - right| <= atol + rtol * |right|, against the reference."""

    atol: float
    rtol: float


def parse_policy(policy: str) -> str | Tolerance:
    """`reference`, `exact`, or `ATOL,RTOL`.

    Raises:
        UsageError: none of these.
    """
    if policy in ("reference", "exact"):
        return policy
    try:
        atol, rtol = (float(part) for part in policy.split(","))
    except ValueError:
        raise UsageError(f"tolerance {policy!r} is not ATOL,RTOL", next="for example --tolerance 1e-4,1e-4") from None
    if not (0 <= atol < math.inf and 0 <= rtol < math.inf):
        raise UsageError(f"tolerance {policy!r} must be two finite numbers, zero or more")
    return Tolerance(atol, rtol)


def check(
    got: list[Tensor], right: Right, *, distribution: Distribution, policy: str = "reference"
) -> tuple[Reason | None, Accuracy | None]:
    """Judges a candidate's outputs (then the inputs it had to mutate) for one input set.

    Args:
        got: in the order of `right.reference`.
        policy: `reference` (the error budget), `exact`, or `ATOL,RTOL`.
    Returns:
        The reason to reject, or None; the accuracy of the worst output, or None where nothing floats.
    """
    rule = parse_policy(policy)
    worst: Accuracy | None = None
    if len(got) != len(right.reference):
        return Reason(code="wrong-structure", detail=f"{len(got)} outputs instead of {len(right.reference)}"), None
    for at in range(len(got)):
        reason, accuracy = _check_one(got[at], right, at, distribution, rule)
        if accuracy and (worst is None or accuracy.times_limit > worst.times_limit):
            worst = accuracy
        if reason:
            return reason, accuracy or worst
    return None, worst


def _check_one(
    got: Tensor, right: Right, at: int, distribution: Distribution, rule: str | Tolerance
) -> tuple[Reason | None, Accuracy | None]:
    reference, golden, name = right.reference[at], right.golden[at], right.names[at]
    reason = _shape_or_dtype(got, reference, name)
    if reason or not reference.numel():
        return reason, None
    if reference.is_complex():
        got, reference, golden = (torch.view_as_real(t.resolve_conj()) for t in (got, reference, golden))
    if not reference.dtype.is_floating_point:
        return _check_integers(got, right, at), None
    if reason := _non_finite(got, reference, name):
        return reason, None
    if rule == "exact":
        return _check_exact(got, reference, name), None
    if isinstance(rule, Tolerance):
        return _check_tolerance(got, reference, rule, name, distribution)
    return _check_budget(got, right, at, distribution)


def _shape_or_dtype(got: Tensor, reference: Tensor, name: str) -> Reason | None:
    if got.shape != reference.shape:
        return Reason(code="wrong-shape", detail=f"{name}: {tuple(got.shape)} instead of {tuple(reference.shape)}")
    if got.dtype != reference.dtype:
        return Reason(code="wrong-dtype", detail=f"{name}: {got.dtype} instead of {reference.dtype}")
    return None


def _non_finite(got: Tensor, reference: Tensor, name: str) -> Reason | None:
    """NaN where the reference has NaN and nowhere else, infinities likewise with their sign."""
    special = ~(got.isfinite() & reference.isfinite())
    if not bool(special.any()):
        return None
    same = (got == reference) | (got.isnan() & reference.isnan())
    wrong = special & ~same
    count = int(wrong.sum())
    if not count:
        return None
    where = _position(int(wrong.flatten().int().argmax()), got.shape)
    return Reason(
        code="not-finite",
        detail=f"{name}{list(where)}: got {got[where].item()}, right {reference[where].item()}; {count} such elements",
    )


def _check_exact(got: Tensor, reference: Tensor, name: str) -> Reason | None:
    wrong = (got != reference) & ~(got.isnan() & reference.isnan())
    return _first_wrong(wrong, got, reference, name)


def _first_wrong(wrong: Tensor, got: Tensor, right: Tensor, name: str) -> Reason | None:
    count = int(wrong.sum())
    if not count:
        return None
    where = _position(int(wrong.flatten().int().argmax()), got.shape)
    share = f"{count} of {wrong.numel()} elements differ"
    return Reason(
        code="inaccurate", detail=f"{name}{list(where)}: got {got[where].item()}, right {right[where].item()}; {share}"
    )


def _check_integers(got: Tensor, right: Right, at: int) -> Reason | None:
    """Each element equals the reference's or the golden's, or selects an equal value where outputs are indices."""
    reference, golden = right.reference[at], right.golden[at]
    wrong = (got != reference) & (got != golden.to(reference.dtype))
    if not bool(wrong.any()) or selects_equal(got, reference, right.inputs):
        return None
    return _first_wrong(wrong, got, reference, right.names[at])


def selects_equal(got: Tensor, reference: Tensor, inputs: list[Tensor]) -> bool:
    """Both index tensors pick the same values out of some input, along some dimension, without picking one twice.

    The hook for argmax, topk and sort: where values tie, either index is right.
    """
    if got.dtype not in (torch.int32, torch.int64):
        return False
    for source in inputs:
        if not source.dtype.is_floating_point:
            continue
        for dim in range(source.dim()):
            ours, theirs = (_as_index(t, source, dim) for t in (got, reference))
            if ours is None or theirs is None or _repeats(ours, dim) > _repeats(theirs, dim):
                continue
            if torch.equal(source.gather(dim, ours), source.gather(dim, theirs)):
                return True
    return False


def _as_index(index: Tensor, source: Tensor, dim: int) -> Tensor | None:
    """The index in the form that `gather` takes, or None where it cannot be one."""
    index = index.long()
    if index.dim() == source.dim() - 1:
        index = index.unsqueeze(dim)
    others = [d for d in range(source.dim()) if d != dim]
    if index.dim() != source.dim() or any(index.shape[d] != source.shape[d] for d in others):
        return None
    return index if bool(((index >= 0) & (index < source.shape[dim])).all()) else None


def _repeats(index: Tensor, dim: int) -> int:
    ordered = index.sort(dim).values
    return int((ordered.diff(dim=dim) == 0).sum())


def _check_tolerance(
    got: Tensor, reference: Tensor, rule: Tolerance, name: str, distribution: Distribution
) -> tuple[Reason | None, Accuracy]:
    """`torch.isclose`, with non-finite positions already compared."""
    finite = reference.isfinite()
    wide = torch.where(finite, reference.double(), 0.0)
    error = (torch.where(finite, got.double(), 0.0) - wide).abs()
    limit = rule.atol + rule.rtol * wide.abs()
    share = torch.where(error == 0, 0.0, error / limit).flatten()
    worst = int(share.argmax())
    where = _position(worst, got.shape)
    accuracy = Accuracy(
        policy=f"{rule.atol:g},{rule.rtol:g}",
        error=error[where].item(),
        reference_error=0.0,
        limit=limit[where].item(),
        times_reference=math.inf if error[where].item() else 0.0,
        times_limit=share[worst].item(),
        metric="absolute",
        distribution=distribution.name,
        output=name,
        index=where,
        got=repr(got[where].item()),
        right=repr(reference[where].item()),
    )
    if accuracy.times_limit <= 1:
        return None, accuracy
    detail = f"{accuracy.error:.3g} off, {accuracy.times_limit:,.3g} times the tolerance, at {name}{list(where)}"
    return Reason(code="inaccurate", detail=detail), accuracy


def _position(flat: int, shape: torch.Size) -> tuple[int, ...]:
    where: list[int] = []
    for size in reversed(shape):
        flat, here = divmod(flat, size)
        where.append(here)
    return tuple(reversed(where))


# ---- The budget


@dataclass(frozen=True)
class Scales:
    """What the limits of one output are made of: the reference's own error, the floor of it, and what a shortcut
    would lose at the output."""

    golden: Tensor
    special: Tensor | None
    bits: int
    smallest: float
    reference: Profile
    rounding: Profile
    narrow: bool
    output: Profile


def scales(right: Right, at: int) -> Scales:
    """Of output `at`; computed once for each input set."""
    key = f"scales {at}"
    if key not in right._cache:
        right._cache[key] = _scales(right.reference[at], right.golden[at])
    return right._cache[key]


def _scales(reference: Tensor, golden: Tensor) -> Scales:
    dtype = reference.dtype
    flat = _comparable(golden, reference)
    own = _zero_where_special(reference.reshape(-1), flat[1])
    bits = significand_bits(dtype)
    smallest = smallest_kept(dtype, flat[0].square().mean().sqrt().item())
    return Scales(
        golden=flat[0],
        special=flat[1],
        bits=bits,
        smallest=smallest,
        narrow=bits <= shortcut_bits(dtype),
        reference=profile(flat[0], bits, smallest, error_of(own)),
        rounding=rounding_profile(flat[0], bits, bits, smallest),
        output=rounding_profile(flat[0], bits, shortcut_bits(dtype), smallest),
    )


def _comparable(golden: Tensor, reference: Tensor) -> tuple[Tensor, Tensor | None]:
    """The flat golden with special positions zeroed, and which those are; where only the golden is special (or only
    the reference is finite), the reference says what is right."""
    golden, reference = golden.reshape(-1), reference.reshape(-1)
    bad = ~(golden.isfinite() & reference.isfinite())
    if not bool(bad.any()):
        return golden, None
    own = reference.double()
    return torch.where(bad, torch.where(own.isfinite(), own, 0.0), golden), ~own.isfinite()


def _zero_where_special(flat: Tensor, special: Tensor | None) -> Tensor:
    return flat if special is None else torch.where(special, 0.0, flat).to(flat.dtype)


def limit_of(metric: str, scale: Scales, inputs: Profile, rule: Rule) -> float:
    """The most error that `metric` allows.

    Args:
        inputs: the error that rounding the inputs to the shortcut's precision alone would cause.
    """
    reference, rounding, shortcut = scale.reference[metric], scale.rounding[metric], scale.output[metric]
    tail = metric == "99.9 % ulp"
    if scale.narrow:
        return (2.5 if tail else 2) * max(reference, rounding)
    if tail:
        lost = max(shortcut, inputs[metric])
    else:
        lost = shortcut if rule.averaging else min(shortcut, inputs[metric])
    own = max(reference, 4 * rounding)
    honest = max(2 * reference, min(rule.factor * own, max(lost, shortcut) / 2))
    return max(honest, rule.share * lost) * (1 + 2 / math.sqrt(scale.golden.numel()))


def _check_budget(got: Tensor, right: Right, at: int, distribution: Distribution) -> tuple[Reason | None, Accuracy]:
    scale = scales(right, at)
    flat = _zero_where_special(got.reshape(-1), scale.special)
    error = profile(scale.golden, scale.bits, scale.smallest, error_of(flat))
    rule = SPARSE if distribution.sparse else SAME_SIGN if distribution.same_sign or right.one_sign else ZERO_MEAN
    shares = {}
    for metric in METRICS:
        limit = limit_of(metric, scale, _input_error(right, at), rule)
        shares[metric] = (error[metric] / limit if limit else (0.0 if error[metric] == 0 else math.inf), limit)
    metric = max(shares, key=lambda name: shares[name][0])
    share, limit = shares[metric]
    where = _position(error.index, got.shape)
    own = max(scale.reference[metric], scale.rounding[metric])
    accuracy = Accuracy(
        policy="reference",
        error=error[metric],
        reference_error=scale.reference[metric],
        limit=limit,
        times_reference=error[metric] / own if own else (0.0 if error[metric] == 0 else math.inf),
        times_limit=share,
        metric=metric,
        distribution=distribution.name,
        output=right.names[at],
        index=where,
        got=repr(got[where].item()),
        right=repr(right.golden[at][where].item()),
    )
    if share <= 1:
        return None, accuracy
    return Reason(code="inaccurate", detail=_detail(accuracy, "")), accuracy


def _input_error(right: Right, at: int) -> Profile:
    key = f"input error {at}"
    if key not in right._cache:
        scale = scales(right, at)
        moved = right.rounded_inputs()[at].reshape(-1)
        moved = torch.where(moved.isfinite(), moved, scale.golden)
        right._cache[key] = profile(scale.golden, scale.bits, scale.smallest, error_of(moved))
    return right._cache[key]


def _detail(accuracy: Accuracy, hint: str) -> str:
    where = f"worst at {accuracy.output}{list(accuracy.index)}: got {accuracy.got}, right {accuracy.right}"
    size = f"{accuracy.times_reference:,.3g} times the reference's own error against the golden"
    parts = [f"{size}, {accuracy.times_limit:,.3g} times the limit ({accuracy.metric})", where]
    return "; ".join(parts + ([f"looks like {hint}"] if hint else []))
