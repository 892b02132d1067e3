"""The error budget: limits that accept FP32 programs with any order of summation and reject reduced precision.

A single factor on the reference's own error cannot do this: a sequential sum of 4096 products reaches 10 times it,
TF32 as little as twice. So a limit has two parts, and a metric must exceed both to be over the limit:

    full precision     a factor on the reference's own error E_ref, at most half of what reduced precision would lose
    reduced precision  a share of the error from rounding inputs (E_in) or the output (E_out) to 11 significant bits

Factor and share depend on the input. In most sets a long sum of FP32 steps comes within four times of TF32's loss, so
the share is 1/4. In the sparse set a few values decide every sum, every order of adding is nearly exact and errors of
reduced precision do not average out, so the share is 1/64: that set separates 3xTF32 from 3xBF16, and TF32 is some
fifty times over. In sets of one sign E_in is not meaningful, because errors average out in sums (over 2^20 positive
numbers TF32 loses less than 0.01 of the limit), and the share of E_out is 1/3. Sixteen-bit outputs cannot lose 11
bits: there the limit is twice E_ref (2.5 times for the extremes), which BF16 sums exceed (3.4) and BF16 attention
weights do not (2.1).

A mean over few outputs varies, so limits are wider by 1 + 2/sqrt(outputs). The experiment and its numbers are in
`docs/error-budget.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernelwright.core.verdict import Accuracy, Reason
from kernelwright.verification.accuracy import comparison
from kernelwright.verification.accuracy.comparison import Tolerance, parse_policy
from kernelwright.verification.accuracy.distributions import Distribution
from kernelwright.verification.accuracy.error import (
    MAX_ERROR_RATIO,
    METRICS,
    TAIL_METRIC,
    ErrorMetrics,
    make_error_function,
    measure_error,
    measure_rounding_error,
    min_ulp_magnitude,
    reduced_precision_bits,
    rescale_to_bits,
    significand_bits,
)
from kernelwright.verification.accuracy.error_signature import classify_error
from kernelwright.verification.accuracy.expected import Expected
from kernelwright.verification.accuracy.near_limit import NEAR_LIMIT_RATIO
from kernelwright.verification.accuracy.ranges import all_finite, as_real, iter_chunks, max_abs


@dataclass(frozen=True)
class BudgetRule:
    """The error that a distribution allows.

    Attributes:
        reference_factor: factor on the reference's own error.
        shortcut_share: share of what reduced precision would lose.
        inputs_average_out: inputs of one sign, where rounding errors of the inputs average out.
    """

    reference_factor: float
    shortcut_share: float
    inputs_average_out: bool = False


ZERO_MEAN = BudgetRule(16.0, 1 / 4)
SAME_SIGN = BudgetRule(64.0, 1 / 3, inputs_average_out=True)
SPARSE = BudgetRule(20.0, 1 / 64)
# The reference may be exact by chance; a full-precision program may still round a few times.
MIN_ROUNDINGS = 2
# For outputs of at most 16 bits: factors on the reference's own error, which is mostly the rounding of the output.
NARROW_FACTOR, NARROW_EXTREME_FACTOR = 2.0, 2.5
EXTREME_METRICS = ("maximum", TAIL_METRIC)
# For coarse distributions: shares of the golden's rms and maximum, and a factor on the reference's own error.
COARSE_METRICS, COARSE_LIMIT, COARSE_FACTOR = ("rms", "maximum"), 2.0**-9, 8.0
SMALL_SAMPLE_FACTOR = 2.0


@dataclass(frozen=True)
class BudgetTerms:
    """The terms of one output's limits.

    Attributes:
        golden: (n,) float64, zero at special positions.
        special_mask: positions where neither the reference nor the golden is finite in the output's precision; None
            if there are none.
        ulp_bits, min_magnitude: define an ulp of this output.
        is_narrow: the output itself has no more bits than reduced precision keeps.
        reference_error, rounding_error, shortcut_error: error of the reference, of rounding the golden once to the
            output's own precision, and of rounding it to reduced precision.
    """

    golden: Tensor
    special_mask: Tensor | None
    ulp_bits: int
    min_magnitude: float
    is_narrow: bool
    reference_error: ErrorMetrics
    rounding_error: ErrorMetrics
    shortcut_error: ErrorMetrics


def check_accuracy(
    got: list[Tensor], expected: Expected, *, distribution: Distribution, policy: str = "reference"
) -> tuple[Reason | None, Accuracy | None]:
    """Check a candidate's outputs, then its mutated inputs and state, for one input set.

    Args:
        got: in the order of `expected.reference`.
        policy: `reference` (the error budget) or `ATOL,RTOL`.
    Returns:
        The reason to reject, or None; and the accuracy of the worst output, or None without floating-point outputs.
            If there is a reason and the accuracy `is_near_limit`, there is no other reason.
    Raises:
        UsageError: the policy is invalid.
    """
    rule = parse_policy(policy)
    near_reason: Reason | None = None
    if len(got) != len(expected.reference):
        return Reason(code="wrong-structure", detail=f"{len(got)} outputs instead of {len(expected.reference)}"), None
    worst: Accuracy | None = None
    for at, output in enumerate(got):
        reason, accuracy = _check_output(output, expected, at, distribution, rule)
        if accuracy and (worst is None or accuracy.error_over_limit > worst.error_over_limit):
            worst = accuracy
        if reason and not is_near_limit(accuracy):
            return reason, accuracy or (None if is_near_limit(worst) else worst)
        if reason and accuracy is worst:
            near_reason = reason
    return near_reason, worst


def is_near_limit(accuracy: Accuracy | None) -> bool:
    """Whether the error is over the budget by so little that one set does not decide. A user's tolerance is an exact
    limit."""
    return accuracy is not None and accuracy.policy == "reference" and 1 < accuracy.error_over_limit <= NEAR_LIMIT_RATIO


def compute_limit(metric: str, terms: BudgetTerms, input_error: ErrorMetrics | None, rule: BudgetRule) -> float:
    """The largest error that `metric` allows.

    Args:
        input_error: error from rounding the inputs to reduced precision; None for the full-precision part alone.
    """
    reference, rounding, shortcut = (
        terms.reference_error[metric],
        terms.rounding_error[metric],
        terms.shortcut_error[metric],
    )
    widening = 1 + SMALL_SAMPLE_FACTOR / math.sqrt(terms.golden.numel())
    if terms.is_narrow:
        return (
            widening
            * (NARROW_EXTREME_FACTOR if metric in EXTREME_METRICS else NARROW_FACTOR)
            * max(reference, rounding)
        )
    reduced_loss, max_loss = 0.0, shortcut
    if rule.inputs_average_out and metric != TAIL_METRIC:
        reduced_loss = shortcut
    elif input_error is not None:
        # Near a zero crossing a full-precision sum has many ulp of error too, so the larger of the two terms applies.
        reduced_loss = max_loss = (
            max(shortcut, input_error[metric]) if metric == TAIL_METRIC else min(shortcut, input_error[metric])
        )
    full_precision = min(rule.reference_factor * max(reference, MIN_ROUNDINGS * rounding), max(max_loss, shortcut) / 2)
    return widening * max(2 * reference, full_precision, rule.shortcut_share * reduced_loss)


def budget_terms(expected: Expected, output_index: int) -> BudgetTerms:
    """The terms of output `output_index`, computed once for each input set."""
    return expected.get_or_compute(
        f"terms {output_index}",
        lambda: _compute_budget_terms(expected.reference[output_index], expected.golden[output_index]),
    )


def _check_output(
    got: Tensor, expected: Expected, output_index: int, distribution: Distribution, rule: str | Tolerance
) -> tuple[Reason | None, Accuracy | None]:
    reference, name = expected.reference[output_index], expected.names[output_index]
    reason = comparison.check_shape_dtype(got, reference, name)
    if reason or not reference.numel():
        return reason, None
    if not (reference.dtype.is_floating_point or reference.is_complex()):
        return comparison.check_integers(got, expected, output_index), None
    got, reference = as_real(got), as_real(reference)
    if distribution.sampler is not None:
        reference = comparison.replace_overflow(got, reference, as_real(expected.golden[output_index]))
    if reason := comparison.check_non_finite(got, reference, name):
        return reason, None
    if isinstance(rule, Tolerance):
        return comparison.check_tolerance(got, reference, rule, name, distribution.name)
    return _check_budget(got, expected, output_index, distribution)


def _check_budget(
    got: Tensor, expected: Expected, output_index: int, distribution: Distribution
) -> tuple[Reason | None, Accuracy]:
    terms = budget_terms(expected, output_index)
    flat = _mask_output(got.reshape(-1), terms)
    error = measure_error(terms.golden, terms.ulp_bits, terms.min_magnitude, make_error_function(flat))
    same_sign = distribution.same_sign or expected.inputs_same_sign
    rule = SPARSE if distribution.sparse else SAME_SIGN if same_sign else ZERO_MEAN
    metric, limit = _worst_metric(
        error, terms, expected.get_cached(f"inputs {output_index}"), rule, coarse=distribution.coarse
    )
    # The inputs' error takes another run of the program, so it is measured only where it can matter.
    if error[metric] > limit and not distribution.coarse:
        metric, limit = _worst_metric(error, terms, measure_input_error(expected, output_index), rule)
    accuracy = _make_accuracy(error, metric, limit, terms, expected, output_index, distribution, got)
    if error[metric] <= limit:
        return None, accuracy
    hint = distribution.hint or classify_error(
        flat, terms.golden, error, measure_input_error(expected, output_index), expected.reference[output_index].dtype
    )
    return Reason(code="inaccurate", detail=_format_detail(accuracy, hint)), accuracy


def _worst_metric(
    error: ErrorMetrics,
    terms: BudgetTerms,
    input_errors: ErrorMetrics | None,
    rule: BudgetRule,
    *,
    coarse: bool = False,
) -> tuple[str, float]:
    """The metric with the largest ratio to its limit, and that limit."""
    limits = {metric: compute_limit(metric, terms, input_errors, rule) for metric in METRICS}
    if coarse:
        reference_error = terms.reference_error
        limits = {m: max(limits[m], COARSE_FACTOR * reference_error[m], COARSE_LIMIT) for m in COARSE_METRICS}
    worst = max(limits, key=lambda metric: _ratio(error[metric], limits[metric]))
    return worst, limits[worst]


def measure_input_error(expected: Expected, output_index: int) -> ErrorMetrics:
    """Error at output `output_index` from rounding the inputs to reduced precision; one more FP64 run, once for each
    set."""

    def measure() -> ErrorMetrics:
        terms = budget_terms(expected, output_index)
        rounded = as_real(expected.golden_of_rounded_inputs()[output_index]).reshape(-1)
        rounded = torch.where(rounded.isfinite(), rounded, terms.golden)
        return measure_error(
            terms.golden, terms.ulp_bits, terms.min_magnitude, make_error_function(_mask_output(rounded, terms))
        )

    return expected.get_or_compute(f"inputs {output_index}", measure)


def _make_accuracy(
    error: ErrorMetrics,
    metric: str,
    limit: float,
    terms: BudgetTerms,
    expected: Expected,
    output_index: int,
    distribution: Distribution,
    got: Tensor,
) -> Accuracy:
    index = comparison.unravel_index(error.worst_index, got.shape)
    return Accuracy(
        policy="reference",
        error=error[metric],
        reference_error=terms.reference_error[metric],
        limit=limit,
        error_over_reference=_ratio(error[metric], max(terms.reference_error[metric], terms.rounding_error[metric])),
        error_over_limit=_ratio(error[metric], limit),
        metric=metric,
        distribution=distribution.name,
        output=expected.names[output_index],
        index=index,
        got=repr(got[index].item()),
        expected=repr(as_real(expected.golden[output_index])[index].item()),
    )


def _format_detail(accuracy: Accuracy, hint: str) -> str:
    name = "" if accuracy.output == "output" else accuracy.output
    lines = [
        f"{accuracy.error_over_reference:,.3g} times the reference's own error against the golden, "
        f"{accuracy.error_over_limit:,.3g} times the limit ({accuracy.metric}, {accuracy.distribution})",
        f"worst at {name}{list(accuracy.index)}: got {accuracy.got}, expected {accuracy.expected}",
    ]
    return "\n".join(lines + ([f"looks like {hint}"] if hint else []))


def _compute_budget_terms(reference: Tensor, golden: Tensor) -> BudgetTerms:
    ulp_bits, reduced_bits = significand_bits(reference.dtype), reduced_precision_bits(reference.dtype)
    reference_values, special_mask, golden_values = _mask_special(
        as_real(reference).reshape(-1), as_real(golden).reshape(-1)
    )
    min_magnitude = min_ulp_magnitude(reference.dtype, _rms(golden_values))
    rounding = measure_rounding_error(golden_values, ulp_bits, min_magnitude)
    return BudgetTerms(
        golden=golden_values,
        special_mask=special_mask,
        ulp_bits=ulp_bits,
        min_magnitude=min_magnitude,
        is_narrow=ulp_bits <= reduced_bits,
        reference_error=measure_error(golden_values, ulp_bits, min_magnitude, make_error_function(reference_values)),
        rounding_error=rounding,
        shortcut_error=rescale_to_bits(rounding, ulp_bits, reduced_bits),
    )


def _mask_special(reference: Tensor, golden: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    """Both tensors with special values zeroed, and their mask; where only one of them is special, the other's value
    is used."""
    if not all_finite(golden):
        golden = torch.where(golden.isfinite(), golden, reference.double())
    rounded = golden.to(reference.dtype)
    reference_values = reference if all_finite(reference) else torch.where(reference.isfinite(), reference, rounded)
    if all_finite(rounded):
        return reference_values, None, golden
    special_mask = ~rounded.isfinite()
    return reference_values.masked_fill(special_mask, 0.0), special_mask, golden.masked_fill(special_mask, 0.0)


def _mask_output(flat: Tensor, terms: BudgetTerms) -> Tensor:
    """A candidate's output without special positions; where it is not finite, the golden's value is used."""
    if terms.special_mask is not None:
        flat = flat.masked_fill(terms.special_mask, 0.0)
    return flat if all_finite(flat) else torch.where(flat.isfinite(), flat, terms.golden.to(flat.dtype))


def _rms(flat: Tensor) -> float:
    largest = max_abs(flat)
    squares = sum((flat[part] / largest).square_().sum().item() for part in iter_chunks(flat)) if largest else 0.0
    return largest * math.sqrt(squares / flat.numel())


def _ratio(error: float, limit: float) -> float:
    if error == 0:
        return 0.0
    return min(error / limit, MAX_ERROR_RATIO) if limit else MAX_ERROR_RATIO
