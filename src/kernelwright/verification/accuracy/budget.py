"""How much error is allowed: the budget that tells an honest FP32 program from one that saved precision.

No single factor on the reference's own error can: a sequential sum of 4096 products reaches 10 times it, TF32 as
little as twice. So a limit has two parts, and a metric is over it only if it is over both:

    honest    a factor on the reference's own error E_ref, never more than half of what a shortcut would lose
    shortcut  a share of what rounding the inputs (E_in) or the output (E_out) to 11 significant bits loses

How large factor and share may be depends on the input. In most sets a long sum of honest FP32 steps comes within
four times of what TF32 loses, so the share is 1/4. In the sparse set a few values decide every sum, every order of
adding is nearly exact while no shortcut averages out, and the share is 1/64: that set separates 3xTF32 from 3xBF16,
and TF32 is some fifty times over. In sets of one sign E_in says nothing, because errors average out in sums (over
2^20 positive numbers TF32 loses less than 0.01 of the limit), and the share of E_out is 1/3. Sixteen-bit outputs
cannot lose 11 bits: there the limit is twice E_ref (2.5 times for the extremes), which BF16 sums exceed (3.4) and BF16
attention weights do not (2.1).

An average over few outputs is chance, so limits are wider by 1 + 2/sqrt(outputs). `docs/error-budget.md` has the
experiment with its numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernelwright.core.records import Accuracy, Reason
from kernelwright.verification.accuracy import comparison
from kernelwright.verification.accuracy.comparison import Tolerance, parse_policy
from kernelwright.verification.accuracy.distributions import Distribution
from kernelwright.verification.accuracy.error import (
    FARTHEST,
    METRICS,
    TAIL,
    Profile,
    error_of,
    profile,
    rounding_profile,
    shortcut_bits,
    significand_bits,
    smallest_kept,
    with_bits,
)
from kernelwright.verification.accuracy.error_signature import looks_like
from kernelwright.verification.accuracy.expected import Right
from kernelwright.verification.accuracy.near_limit import NEAR
from kernelwright.verification.accuracy.ranges import all_finite, largest_magnitude, parts, real_numbers


@dataclass(frozen=True)
class Rule:
    """The error that one kind of input allows.

    Attributes:
        factor: times the reference's own error.
        share: of what a shortcut would lose.
        averaging: inputs of one sign, where rounding errors of the inputs average out and say nothing.
    """

    factor: float
    share: float
    averaging: bool = False


ZERO_MEAN = Rule(16.0, 1 / 4)
SAME_SIGN = Rule(64.0, 1 / 3, averaging=True)
SPARSE = Rule(20.0, 1 / 64)
# The reference may be exact by luck; an honest program may still round a few times.
LEAST_ROUNDINGS = 2
# For outputs of 16 bits or fewer, on the reference's own error, which is mostly the rounding of the output.
NARROW_FACTOR, NARROW_EXTREME_FACTOR = 2.0, 2.5
EXTREMES = ("maximum", TAIL)
# Where only what is far off counts: of the whole output, of its largest value, and of the reference's own error.
COARSE_METRICS, COARSE_LIMIT, COARSE_FACTOR = ("rms", "maximum"), 2.0**-9, 8.0
SMALL_SAMPLE = 2.0


@dataclass(frozen=True)
class Scales:
    """What the limits of one output are made of.

    Attributes:
        golden: (n,) float64, special positions zeroed.
        special: which positions those are, where neither the reference nor the golden is finite in the output's
            precision; None when there are none.
        bits, smallest: what an ulp of this output is.
        narrow: the output itself has no more bits than a shortcut leaves.
        reference, rounding, output: the error of the reference, of rounding the golden once to the output's own
            precision, and of rounding it to a shortcut's.
    """

    golden: Tensor
    special: Tensor | None
    bits: int
    smallest: float
    narrow: bool
    reference: Profile
    rounding: Profile
    output: Profile


def check(
    got: list[Tensor], right: Right, *, distribution: Distribution, policy: str = "reference"
) -> tuple[Reason | None, Accuracy | None]:
    """Judges a candidate's outputs (then the inputs it had to mutate) for one input set.

    Args:
        got: in the order of `right.reference`.
        policy: `reference` (the error budget) or `ATOL,RTOL`.
    Returns:
        The reason to reject, or None; the accuracy of the worst output, or None where nothing floats. Where both are
        there and the accuracy `is_near`, nothing else is wrong.
    Raises:
        UsageError: no such policy.
    """
    rule = parse_policy(policy)
    near: Reason | None = None
    if len(got) != len(right.reference):
        return Reason(code="wrong-structure", detail=f"{len(got)} outputs instead of {len(right.reference)}"), None
    worst: Accuracy | None = None
    for at, output in enumerate(got):
        reason, accuracy = _check_one(output, right, at, distribution, rule)
        if accuracy and (worst is None or accuracy.times_limit > worst.times_limit):
            worst = accuracy
        if reason and not is_near(accuracy):
            return reason, accuracy or (None if is_near(worst) else worst)
        if reason and accuracy is worst:
            near = reason
    return near, worst


def is_near(accuracy: Accuracy | None) -> bool:
    """Whether it is over the error budget by so little that one set does not decide. A tolerance that a person has
    given is a limit as it stands."""
    return accuracy is not None and accuracy.policy == "reference" and 1 < accuracy.times_limit <= NEAR


def limit_of(metric: str, scale: Scales, inputs: Profile | None, rule: Rule) -> float:
    """The most error that `metric` allows.

    Args:
        inputs: what rounding the inputs to the shortcut's precision loses; without it the honest part alone.
    """
    reference, rounding, shortcut = scale.reference[metric], scale.rounding[metric], scale.output[metric]
    wider = 1 + SMALL_SAMPLE / math.sqrt(scale.golden.numel())
    if scale.narrow:
        return wider * (NARROW_EXTREME_FACTOR if metric in EXTREMES else NARROW_FACTOR) * max(reference, rounding)
    lost, most = 0.0, shortcut
    if rule.averaging and metric != TAIL:
        lost = shortcut
    elif inputs is not None:
        # Near a zero crossing an honest sum has many ulp of error, so there the inputs' own error is the measure.
        lost = most = max(shortcut, inputs[metric]) if metric == TAIL else min(shortcut, inputs[metric])
    honest = min(rule.factor * max(reference, LEAST_ROUNDINGS * rounding), max(most, shortcut) / 2)
    return wider * max(2 * reference, honest, rule.share * lost)


def scales(right: Right, at: int) -> Scales:
    """Of output `at`; computed once for each input set."""
    return right.remember(f"scales {at}", lambda: _scales(right.reference[at], right.golden[at]))


def _check_one(
    got: Tensor, right: Right, at: int, distribution: Distribution, rule: str | Tolerance
) -> tuple[Reason | None, Accuracy | None]:
    reference, name = right.reference[at], right.names[at]
    reason = comparison.shape_or_dtype(got, reference, name)
    if reason or not reference.numel():
        return reason, None
    if not (reference.dtype.is_floating_point or reference.is_complex()):
        return comparison.integers(got, right, at), None
    got, reference = real_numbers(got), real_numbers(reference)
    if distribution.values is not None:
        reference = comparison.mended(got, reference, real_numbers(right.golden[at]))
    if reason := comparison.non_finite(got, reference, name):
        return reason, None
    if isinstance(rule, Tolerance):
        return comparison.tolerance(got, reference, rule, name, distribution.name)
    return _check_budget(got, right, at, distribution)


def _check_budget(got: Tensor, right: Right, at: int, distribution: Distribution) -> tuple[Reason | None, Accuracy]:
    scale = scales(right, at)
    flat = _judged(got.reshape(-1), scale)
    error = profile(scale.golden, scale.bits, scale.smallest, error_of(flat))
    averaging = distribution.same_sign or right.one_sign
    rule = SPARSE if distribution.sparse else SAME_SIGN if averaging else ZERO_MEAN
    metric, limit = _worst_metric(error, scale, right.remembered(f"inputs {at}"), rule, coarse=distribution.coarse)
    if (
        error[metric] > limit and not distribution.coarse
    ):  # the inputs' error takes another run of the program: only where it can matter
        metric, limit = _worst_metric(error, scale, input_error(right, at), rule)
    accuracy = _accuracy(error, metric, limit, scale, right, at, distribution, got)
    if error[metric] <= limit:
        return None, accuracy
    hint = distribution.hint or looks_like(flat, scale.golden, error, input_error(right, at), right.reference[at].dtype)
    return Reason(code="inaccurate", detail=_detail(accuracy, hint)), accuracy


def _worst_metric(
    error: Profile, scale: Scales, inputs: Profile | None, rule: Rule, *, coarse: bool = False
) -> tuple[str, float]:
    """The metric that is farthest over its limit, or nearest to it, and that limit."""
    limits = {metric: limit_of(metric, scale, inputs, rule) for metric in METRICS}
    if coarse:
        own = scale.reference
        limits = {m: max(limits[m], COARSE_FACTOR * own[m], COARSE_LIMIT) for m in COARSE_METRICS}
    worst = max(limits, key=lambda metric: _times(error[metric], limits[metric]))
    return worst, limits[worst]


def input_error(right: Right, at: int) -> Profile:
    """What rounding the inputs to a shortcut's precision costs at output `at`; one more FP64 run, once for each set."""

    def measure() -> Profile:
        scale = scales(right, at)
        moved = real_numbers(right.rounded_inputs()[at]).reshape(-1)
        moved = torch.where(moved.isfinite(), moved, scale.golden)
        return profile(scale.golden, scale.bits, scale.smallest, error_of(_judged(moved, scale)))

    return right.remember(f"inputs {at}", measure)


def _accuracy(
    error: Profile,
    metric: str,
    limit: float,
    scale: Scales,
    right: Right,
    at: int,
    distribution: Distribution,
    got: Tensor,
) -> Accuracy:
    where = comparison.position(error.index, got.shape)
    return Accuracy(
        policy="reference",
        error=error[metric],
        reference_error=scale.reference[metric],
        limit=limit,
        times_reference=_times(error[metric], max(scale.reference[metric], scale.rounding[metric])),
        times_limit=_times(error[metric], limit),
        metric=metric,
        distribution=distribution.name,
        output=right.names[at],
        index=where,
        got=repr(got[where].item()),
        right=repr(real_numbers(right.golden[at])[where].item()),
    )


def _detail(accuracy: Accuracy, hint: str) -> str:
    name = "" if accuracy.output == "output" else accuracy.output
    lines = [
        f"{accuracy.times_reference:,.3g} times the reference's own error against the golden, "
        f"{accuracy.times_limit:,.3g} times the limit ({accuracy.metric}, {accuracy.distribution})",
        f"worst at {name}{list(accuracy.index)}: got {accuracy.got}, right {accuracy.right}",
    ]
    return "\n".join(lines + ([f"looks like {hint}"] if hint else []))


def _scales(reference: Tensor, golden: Tensor) -> Scales:
    bits, least = significand_bits(reference.dtype), shortcut_bits(reference.dtype)
    own, special, flat = _comparable(real_numbers(reference).reshape(-1), real_numbers(golden).reshape(-1))
    smallest = smallest_kept(reference.dtype, _rms(flat))
    rounding = rounding_profile(flat, bits, smallest)
    return Scales(
        golden=flat,
        special=special,
        bits=bits,
        smallest=smallest,
        narrow=bits <= least,
        reference=profile(flat, bits, smallest, error_of(own)),
        rounding=rounding,
        output=with_bits(rounding, bits, least),
    )


def _comparable(reference: Tensor, golden: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    """Both without special values, and where those are; where only one of them is special, the other's value."""
    if not all_finite(golden):
        golden = torch.where(golden.isfinite(), golden, reference.double())
    rounded = golden.to(reference.dtype)
    own = reference if all_finite(reference) else torch.where(reference.isfinite(), reference, rounded)
    if all_finite(rounded):
        return own, None, golden
    special = ~rounded.isfinite()
    return own.masked_fill(special, 0.0), special, golden.masked_fill(special, 0.0)


def _judged(flat: Tensor, scale: Scales) -> Tensor:
    """What a candidate gave, where a number was asked of it; it may overflow where the reference does."""
    if scale.special is not None:
        flat = flat.masked_fill(scale.special, 0.0)
    return flat if all_finite(flat) else torch.where(flat.isfinite(), flat, scale.golden.to(flat.dtype))


def _rms(flat: Tensor) -> float:
    top = largest_magnitude(flat)
    squares = sum((flat[part] / top).square_().sum().item() for part in parts(flat)) if top else 0.0
    return top * math.sqrt(squares / flat.numel())


def _times(error: float, limit: float) -> float:
    if error == 0:
        return 0.0
    return min(error / limit, FARTHEST) if limit else FARTHEST
