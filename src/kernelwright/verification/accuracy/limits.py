"""The limits of the error budget: what each metric of an output, and each group of its elements, allows.

A single factor on the reference's own error cannot separate full from reduced precision: a sequential sum of 4096
products reaches 10 times it, TF32 as little as twice. So a limit has two parts, and a metric must exceed both to be
over the limit:

    full precision     a factor on the reference's own error E_ref, at most half of what reduced precision would lose
    reduced precision  a share of the error from rounding inputs (E_in) or the output (E_out) to 11 significant bits

Factor and share depend on the input. In most sets a long sum of FP32 steps comes within four times of TF32's loss, so
the share is 1/4. In the sparse set a few values decide every sum, every order of adding is nearly exact and errors of
reduced precision do not average out, so the share is 1/64: that set separates 3xTF32 from 3xBF16, and TF32 is some
fifty times over. In sets of one sign E_in is not meaningful, because errors average out in sums (over 2^20 positive
numbers TF32 loses less than 0.01 of the limit), and the share of E_out is 1/3. Sixteen-bit outputs cannot lose 11
bits: there the limit is twice E_ref (2.5 times for the extremes), which BF16 sums exceed (3.4) and BF16 attention
weights do not (2.1).

A mean over few elements varies, so limits are wider by 1 + 2/sqrt(elements). The experiment and its numbers are in
`docs/error-budget.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kernelwright.verification.accuracy.error import (
    GROUP_METRICS,
    MAX_ERROR_RATIO,
    METRICS,
    TAIL_METRIC,
    ErrorMetrics,
    group_counts,
)
from kernelwright.verification.accuracy.golden_scale import GoldenScale


@dataclass(frozen=True)
class BudgetRule:
    """The error that a distribution allows.

    Attributes:
        reference_factor: factor on the reference's own error.
        shortcut_share: share of what reduced precision would lose.
        inputs_average_out: inputs of one sign, where rounding errors of the inputs average out.
        coarse: only the rms and the maximum count, at least `COARSE_LIMIT`.
    """

    reference_factor: float
    shortcut_share: float
    inputs_average_out: bool = False
    coarse: bool = False


ZERO_MEAN = BudgetRule(16.0, 1 / 4)
SAME_SIGN = BudgetRule(64.0, 1 / 3, inputs_average_out=True)
SPARSE = BudgetRule(20.0, 1 / 64)
# The reference may be exact by chance; a full-precision program may still round a few times.
MIN_ROUNDINGS = 2
# For outputs of at most 16 bits: factors on the reference's own error, which is mostly the rounding of the output.
NARROW_FACTOR, NARROW_EXTREME_FACTOR = 2.0, 2.5
EXTREME_METRICS = ("maximum", TAIL_METRIC, "worst element")
# Near a zero crossing a full-precision sum has many ulp of error, and a group may be near one as a whole: there the
# larger one of E_in and E_out counts.
LARGER_LOSS_METRICS = (TAIL_METRIC, *GROUP_METRICS)
# For coarse distributions: shares of the golden's rms and maximum, and a factor on the reference's own error.
COARSE_METRICS, COARSE_LIMIT, COARSE_FACTOR = ("rms", "maximum"), 2.0**-9, 8.0
SMALL_SAMPLE_FACTOR = 2.0
# The worst of many groups, each of few elements, is further from the average than an output's metrics are.
GROUP_FACTOR = 2.0
# Factors on the modelled error of an FFT or Winograd convolution. Winograd's error is uneven: some rows of every tile
# have several times the error of others.
UNEVEN_CONVOLUTION_METRICS = (*EXTREME_METRICS, "worst row")
FAST_CONVOLUTION_FACTOR, FAST_CONVOLUTION_EXTREME_FACTOR = 4.0, 12.0


@dataclass(frozen=True)
class BudgetTerms:
    """The terms of one output's limits.

    Attributes:
        scale: the golden, zero at special positions, and what errors are relative to.
        special_mask: positions where neither the reference nor the golden is finite in the output's precision; None
            if there are none.
        is_narrow: the output itself has no more bits than reduced precision keeps.
        reference_error, rounding_error, shortcut_error: error of the reference, of rounding the golden once to the
            output's own precision, and of rounding it to reduced precision.
    """

    scale: GoldenScale
    special_mask: Tensor | None
    is_narrow: bool
    reference_error: ErrorMetrics
    rounding_error: ErrorMetrics
    shortcut_error: ErrorMetrics


class MeasuredTerms(NamedTuple):
    """Terms that take another FP64 run each; None where that was not made.

    Attributes:
        input_error: from rounding the inputs to reduced precision.
        convolution_error: of the program with FFT or Winograd convolutions.
    """

    input_error: ErrorMetrics | None = None
    convolution_error: ErrorMetrics | None = None


class WorstError(NamedTuple):
    """The metric whose error has the largest ratio to its limit. Errors of a group are relative to its golden rms.

    Attributes:
        group: index of the group, in a metric of `GROUP_METRICS`.
    """

    metric: str
    error: float
    limit: float
    reference_error: float
    rounding_error: float
    group: int | None = None

    @property
    def ratio(self) -> float:
        """Error over limit."""
        return error_ratio(self.error, self.limit)


def find_worst_error(error: ErrorMetrics, terms: BudgetTerms, measured: MeasuredTerms, rule: BudgetRule) -> WorstError:
    """The error that comes nearest to its limit, over all metrics and all groups."""
    overall = _worst_metric(error, terms, measured, rule)
    if rule.coarse:
        return overall
    grouped = _worst_group(error, terms, measured, rule)
    return max(overall, grouped, key=lambda worst: worst.ratio)


def compute_limits(terms: BudgetTerms, measured: MeasuredTerms, rule: BudgetRule) -> Tensor:
    """(metrics,) the largest error that each of `METRICS` allows."""
    count = terms.scale.golden.numel()
    columns = [
        None if one is None else torch.tensor(one.values, dtype=torch.float64)
        for one in (terms.reference_error, terms.rounding_error, terms.shortcut_error, *measured)
    ]
    widening = torch.tensor(1 + SMALL_SAMPLE_FACTOR / math.sqrt(count), dtype=torch.float64)
    return _limits(METRICS, columns, widening, rule, is_narrow=terms.is_narrow)


def compute_group_limits(terms: BudgetTerms, measured: MeasuredTerms, rule: BudgetRule) -> Tensor:
    """(2, groups) the largest error that each of `GROUP_METRICS` allows in each group, relative to the golden's
    maximum."""
    columns = [
        None if one is None else one.groups.values
        for one in (terms.reference_error, terms.rounding_error, terms.shortcut_error, *measured)
    ]
    widening = GROUP_FACTOR * (1 + SMALL_SAMPLE_FACTOR / group_counts(terms.scale).sqrt())
    return _limits(GROUP_METRICS, columns, widening, rule, is_narrow=terms.is_narrow)


def error_ratio(error: float, limit: float) -> float:
    """Error over limit; zero for no error, at most `MAX_ERROR_RATIO`."""
    if error == 0:
        return 0.0
    return min(error / limit, MAX_ERROR_RATIO) if limit else MAX_ERROR_RATIO


def _limits(
    metrics: tuple[str, ...], columns: list[Tensor | None], widening: Tensor, rule: BudgetRule, *, is_narrow: bool
) -> Tensor:
    """The limits of metrics along the first dimension, from their reference, rounding, shortcut, input and convolution
    error."""
    reference, rounding, shortcut, inputs, convolution = columns
    assert reference is not None and rounding is not None and shortcut is not None

    def choose(chosen: tuple[str, ...], value: float, other: float) -> Tensor:
        row = [value if metric in chosen else other for metric in metrics]
        return torch.tensor(row).to(reference).view(-1, *(1,) * (reference.dim() - 1))

    if is_narrow:
        factor = choose(EXTREME_METRICS, NARROW_EXTREME_FACTOR, NARROW_FACTOR)
        return widening * factor * torch.maximum(reference, rounding)
    use_larger = choose(LARGER_LOSS_METRICS, 1.0, 0.0).bool()
    if inputs is None:
        loss = shortcut if rule.inputs_average_out else torch.zeros_like(shortcut)
        loss, max_loss = torch.where(use_larger, 0.0, loss), shortcut
    else:
        other = shortcut if rule.inputs_average_out else torch.minimum(shortcut, inputs)
        loss = max_loss = torch.where(use_larger, torch.maximum(shortcut, inputs), other)
    full_precision = torch.minimum(
        rule.reference_factor * torch.maximum(reference, MIN_ROUNDINGS * rounding),
        torch.maximum(max_loss, shortcut) / 2,
    )
    limit = torch.maximum(torch.maximum(2 * reference, full_precision), rule.shortcut_share * loss)
    if convolution is not None:
        factor = choose(UNEVEN_CONVOLUTION_METRICS, FAST_CONVOLUTION_EXTREME_FACTOR, FAST_CONVOLUTION_FACTOR)
        limit = torch.maximum(limit, factor * convolution)
    limit = widening * limit
    if rule.coarse:
        coarse = torch.clamp_min(torch.maximum(limit, COARSE_FACTOR * reference), COARSE_LIMIT)
        limit = torch.where(choose(COARSE_METRICS, 1.0, 0.0).bool(), coarse, math.inf)
    return limit


def _worst_metric(error: ErrorMetrics, terms: BudgetTerms, measured: MeasuredTerms, rule: BudgetRule) -> WorstError:
    limits: list[float] = compute_limits(terms, measured, rule).tolist()
    worst = max(range(len(METRICS)), key=lambda at: error_ratio(error.values[at], limits[at]))
    return WorstError(
        METRICS[worst],
        error.values[worst],
        limits[worst],
        terms.reference_error.values[worst],
        terms.rounding_error.values[worst],
    )


def _worst_group(error: ErrorMetrics, terms: BudgetTerms, measured: MeasuredTerms, rule: BudgetRule) -> WorstError:
    errors, limits = error.groups.values, compute_group_limits(terms, measured, rule)
    ratios = torch.where(errors == 0, 0.0, errors / limits)
    metric, group = divmod(int(ratios.argmax()), ratios.shape[1])
    unit = math.sqrt(terms.scale.group_squares[group].item() / group_counts(terms.scale)[group].item()) or 1.0

    def relative(values: Tensor) -> float:
        return min(values[metric, group].item() / unit, MAX_ERROR_RATIO)

    return WorstError(
        GROUP_METRICS[metric],
        relative(errors),
        relative(limits),
        relative(terms.reference_error.groups.values),
        relative(terms.rounding_error.groups.values),
        group,
    )
