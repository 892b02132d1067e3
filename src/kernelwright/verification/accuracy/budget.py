"""The error budget: whether an output's error is within limits that accept FP32 programs with any order of summation
and reject reduced precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from kernelwright.core.verdict import Accuracy, Reason
from kernelwright.verification.accuracy import comparison
from kernelwright.verification.accuracy.comparison import Tolerance, parse_policy
from kernelwright.verification.accuracy.distributions import Distribution
from kernelwright.verification.accuracy.error import (
    ErrorMetrics,
    make_error_function,
    measure_error,
    measure_rounding_error,
    min_ulp_magnitude,
    reduced_precision_bits,
    rescale_to_bits,
    significand_bits,
    with_typical_groups,
)
from kernelwright.verification.accuracy.error_signature import classify_error
from kernelwright.verification.accuracy.expected import Expected
from kernelwright.verification.accuracy.golden_scale import GoldenScale
from kernelwright.verification.accuracy.limits import (
    SAME_SIGN,
    SPARSE,
    ZERO_MEAN,
    BudgetTerms,
    MeasuredTerms,
    WorstError,
    error_ratio,
    find_worst_error,
)
from kernelwright.verification.accuracy.near_limit import NEAR_LIMIT_RATIO
from kernelwright.verification.accuracy.ranges import all_finite, as_real, iter_chunks, max_abs


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


def budget_terms(expected: Expected, output_index: int) -> BudgetTerms:
    """The terms of output `output_index`, computed once for each input set."""
    return expected.get_or_compute(f"terms {output_index}", lambda: _compute_budget_terms(expected, output_index))


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
    error = measure_error(terms.scale, make_error_function(flat))
    worst = _find_worst_error(error, expected, output_index, distribution)
    if worst.group is not None:
        error = replace(error, worst_index=_worst_in_group(flat, terms.scale, worst.group))
    accuracy = _make_accuracy(error, worst, expected, output_index, distribution, got)
    if worst.ratio <= 1:
        return None, accuracy
    hint = distribution.hint or classify_error(
        flat,
        terms.scale.golden,
        error,
        measure_input_error(expected, output_index),
        expected.reference[output_index].dtype,
    )
    return Reason(code="inaccurate", detail=_format_detail(accuracy, hint)), accuracy


def _find_worst_error(
    error: ErrorMetrics, expected: Expected, output_index: int, distribution: Distribution
) -> WorstError:
    """The error nearest to its limit. Terms that take another run of the program are measured only where they can
    matter."""
    terms = budget_terms(expected, output_index)
    same_sign = distribution.same_sign or expected.inputs_same_sign
    rule = SPARSE if distribution.sparse else SAME_SIGN if same_sign else ZERO_MEAN
    rule = replace(rule, coarse=distribution.coarse)
    measured = MeasuredTerms(
        expected.get_cached(f"inputs {output_index}"), expected.get_cached(f"convolutions {output_index}")
    )
    worst = find_worst_error(error, terms, measured, rule)
    measure_more: tuple[tuple[str, Callable[[Expected, int], ErrorMetrics | None]], ...] = (
        ("input_error", measure_input_error),
        ("convolution_error", _measure_convolution_error),
    )
    for name, measure in measure_more:
        # Near the limit more sets would be drawn, which takes longer than to measure the whole limit.
        if worst.ratio > 1 / NEAR_LIMIT_RATIO and not (rule.coarse or terms.is_narrow):
            measured = measured._replace(**{name: measure(expected, output_index)})
            worst = find_worst_error(error, terms, measured, rule)
    return worst


def measure_input_error(expected: Expected, output_index: int) -> ErrorMetrics:
    """Error at output `output_index` from rounding the inputs to reduced precision; one more FP64 run, once for each
    set."""
    return expected.get_or_compute(
        f"inputs {output_index}",
        lambda: _measure_other_golden(expected.golden_of_rounded_inputs()[output_index], expected, output_index),
    )


def _measure_convolution_error(expected: Expected, output_index: int) -> ErrorMetrics | None:
    """Error at output `output_index` of FFT and Winograd convolutions; one more FP64 run, once for each set. None for
    programs without a convolution."""
    values = expected.golden_of_fast_convolutions()
    if values is None:
        return None
    return expected.get_or_compute(
        f"convolutions {output_index}", lambda: _measure_other_golden(values[output_index], expected, output_index)
    )


def _measure_other_golden(values: Tensor, expected: Expected, output_index: int) -> ErrorMetrics:
    """The error of another FP64 run."""
    terms = budget_terms(expected, output_index)
    flat = as_real(values).reshape(-1)
    flat = torch.where(flat.isfinite(), flat, terms.scale.golden)
    return measure_error(terms.scale, make_error_function(_mask_output(flat, terms)))


def _worst_in_group(flat: Tensor, scale: GoldenScale, group: int) -> int:
    """Flat position of the largest error in a group."""
    part = slice(group * scale.group_size, (group + 1) * scale.group_size)
    return part.start + int((flat[part].double() - scale.golden[part]).abs_().argmax())


def _make_accuracy(
    error: ErrorMetrics,
    worst: WorstError,
    expected: Expected,
    output_index: int,
    distribution: Distribution,
    got: Tensor,
) -> Accuracy:
    index = comparison.unravel_index(error.worst_index, got.shape)
    return Accuracy(
        policy="reference",
        error=worst.error,
        reference_error=worst.reference_error,
        limit=worst.limit,
        error_over_reference=error_ratio(worst.error, max(worst.reference_error, worst.rounding_error)),
        error_over_limit=worst.ratio,
        metric=worst.metric,
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


def _compute_budget_terms(expected: Expected, output_index: int) -> BudgetTerms:
    reference, golden = expected.reference[output_index], as_real(expected.golden[output_index])
    ulp_bits, reduced_bits = significand_bits(reference.dtype), reduced_precision_bits(reference.dtype)
    reference_values, special_mask, golden_values = _mask_special(as_real(reference).reshape(-1), golden.reshape(-1))
    min_magnitude = min_ulp_magnitude(reference.dtype, _rms(golden_values))
    scale = GoldenScale.of(golden_values, ulp_bits, min_magnitude, shape=golden.shape, seed=expected.sampling_seed)
    rounding = measure_rounding_error(scale)
    return BudgetTerms(
        scale=scale,
        special_mask=special_mask,
        is_narrow=ulp_bits <= reduced_bits,
        reference_error=with_typical_groups(measure_error(scale, make_error_function(reference_values)), scale),
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
    return flat if all_finite(flat) else torch.where(flat.isfinite(), flat, terms.scale.golden.to(flat.dtype))


def _rms(flat: Tensor) -> float:
    largest = max_abs(flat)
    squares = sum((flat[part] / largest).square_().sum().item() for part in iter_chunks(flat)) if largest else 0.0
    return largest * math.sqrt(squares / flat.numel())
