"""Error of an output against the golden: metrics that expose a single wrong tile as well as a flipped rounding.

Five metrics are relative, so that they are comparable across outputs: rms over the golden's rms, the worst tile's rms
over that tile's golden rms, the maximum over the golden's maximum, and two quantiles in units in the last place
(ulp). The errors of every group (a row, or a part of one) are kept too, as rms and maximum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernelwright.verification.accuracy.golden_scale import (
    TILE_SIZE,
    GoldenScale,
    compute_ulp,
    max_consecutive,
    sum_consecutive,
)
from kernelwright.verification.accuracy.ranges import all_finite, iter_chunks, max_abs

TAIL_METRIC = "tail ulp"
METRICS = ("rms", "worst tile", "maximum", "median ulp", TAIL_METRIC)
# Error of rounding to nearest in each metric, in ulp: errors are uniform over half an ulp on either side.
ROUNDING_SHARES = (12**-0.5, 12**-0.5, 0.5, 0.25, 0.4995)
GROUP_METRICS = ("worst row", "worst element")
GROUP_ROUNDING_SHARES = (12**-0.5, 0.5)
# The largest of the errors in a group of even errors, over their rms.
PEAK_OVER_RMS = 3.0
# Below this count a median is not meaningful.
MIN_COUNT_FOR_MEDIAN = 32
# Elements above the tail quantile: one in a thousand, at least four; in less than 64 one in sixteen.
TAIL_SHARE, MIN_ABOVE_TAIL, MIN_COUNT_PER_ELEMENT_ABOVE = 0.001, 4, 16
# A tile whose golden rms is below this share of the overall rms is measured against that share.
MIN_TILE_SCALE = 2.0**-5
# A value below this share of the rms uses the ulp of that share: scaled kernels cannot keep a wider range.
MIN_ELEMENT_SCALE = 2.0**-32
# JSON has no infinity; real errors are smaller.
MAX_ERROR_RATIO = 1e30
ErrorFunction = Callable[["Tensor | slice", Tensor], Tensor]
"""The absolute error at a slice or at positions as a new tensor, from these and the golden's values there."""


@dataclass(frozen=True)
class GroupErrors:
    """The errors of all groups: (2, groups), the rms and the maximum of each relative to the golden's maximum."""

    values: Tensor

    def scaled(self, factors: tuple[float, ...]) -> GroupErrors:
        """Each metric times its factor."""
        return GroupErrors(self.values * torch.tensor(factors).to(self.values)[:, None])


@dataclass(frozen=True)
class ErrorMetrics:
    """The error of one output.

    Attributes:
        values: in each metric of `METRICS`.
        groups: of every group, in each metric of `GROUP_METRICS`.
        worst_index: flat position of the largest error.
    """

    values: tuple[float, ...]
    groups: GroupErrors
    worst_index: int = 0

    def __getitem__(self, metric: str) -> float:
        return self.values[METRICS.index(metric)]


def significand_bits(dtype: torch.dtype) -> int:
    """Significant bits including the hidden one: 24 for float32, 8 for bfloat16."""
    return 1 - round(math.log2(torch.finfo(dtype).eps))


def reduced_precision_bits(dtype: torch.dtype) -> int:
    """Significant bits of reduced-precision arithmetic: FP32's 24 for FP64, else the 11 of FP16 and TF32."""
    return 24 if dtype == torch.float64 else 11


def round_to_bits(value: Tensor, bits: int) -> Tensor:
    """Round an FP64 tensor to nearest at `bits` significant bits (Veltkamp's splitting); non-finite values are kept."""
    scaled = value * (2.0 ** (53 - bits) + 1)
    rounded = scaled - (scaled - value)
    return rounded if all_finite(scaled) else torch.where(scaled.isfinite(), rounded, value)


def min_ulp_magnitude(dtype: torch.dtype, rms: float) -> float:
    """The magnitude below which an output's ulp no longer shrinks.

    Flushing a subnormal to zero costs at most one ulp (not permitted for FP16), and so does losing values below 2^-32
    of the rms.
    """
    normal = torch.finfo(dtype).smallest_normal
    flushed = normal if dtype == torch.float16 else normal * 2.0 ** (significand_bits(dtype) - 1)
    return max(flushed, MIN_ELEMENT_SCALE * rms)


def measure_error(scale: GoldenScale, error_of: ErrorFunction) -> ErrorMetrics:
    """Measure an error against a golden, chunk by chunk; quantiles at its samples."""
    size, largest, where = scale.group_size, -1.0, 0
    tiles: list[Tensor] = []
    groups: list[Tensor] = []
    for part in iter_chunks(scale.golden, math.lcm(size, TILE_SIZE)):
        error = error_of(part, scale.golden[part]).div_(scale.unit)
        peaks = max_consecutive(error, size)
        peak = peaks.max().item()
        if peak > largest:
            group = int(peaks.argmax())
            largest = peak
            where = part.start + group * size + int(error[group * size : (group + 1) * size].argmax())
        squares = error.square_()
        tiles.append(sum_consecutive(squares, TILE_SIZE))
        groups.append(torch.stack([tiles[-1] if size == TILE_SIZE else sum_consecutive(squares, size), peaks]))
    rms, worst_tile = _rms_and_worst_tile(torch.cat(tiles), scale.tile_squares, scale.golden.numel())
    values = (rms, worst_tile, largest, *_quantiles(scale, error_of))
    errors = torch.cat(groups, 1)
    errors[0].div_(group_counts(scale)).sqrt_()
    return ErrorMetrics(tuple(min(value, MAX_ERROR_RATIO) for value in values), GroupErrors(errors), where)


def with_typical_groups(error: ErrorMetrics, scale: GoldenScale) -> ErrorMetrics:
    """The error with every group at least at the median group's relative error: by chance it may be smaller in one."""
    golden_rms = (scale.group_squares / group_counts(scale)).sqrt_()
    relative = torch.where(golden_rms > 0, error.groups.values[0] / golden_rms, 0.0)
    typical = relative.median() * golden_rms
    floor = torch.stack([typical, PEAK_OVER_RMS * typical])
    return replace(error, groups=GroupErrors(torch.maximum(error.groups.values, floor)))


def relative_errors(golden: Tensor, native: Tensor) -> tuple[float, float]:
    """Relative rms error of the whole output and of the worst tile, over positions where both are finite; for outputs
    of the same shape and floating dtypes. The first is infinite where the golden is zero and the output is not."""
    golden, native = golden.double().flatten(), native.flatten()
    finite = all_finite(golden) and all_finite(native)
    unit = max_abs(golden) if finite else max_abs(torch.nan_to_num(golden, 0.0, 0.0, 0.0))
    errors: list[Tensor] = []
    squares: list[Tensor] = []
    for part in iter_chunks(golden):
        golden_part, error = golden[part], native[part].double() - golden[part]
        if not finite:
            both = golden_part.isfinite() & error.isfinite()
            golden_part, error = torch.where(both, golden_part, 0.0), torch.where(both, error, 0.0)
        errors.append(sum_consecutive((error / (unit or 1.0)).square_(), TILE_SIZE))
        squares.append(sum_consecutive((golden_part / (unit or 1.0)).square_(), TILE_SIZE))
    rms, worst = _rms_and_worst_tile(torch.cat(errors), torch.cat(squares), golden.numel())
    return rms if unit or not rms else math.inf, worst


def make_error_function(got: Tensor) -> ErrorFunction:
    """The error of a flat output of any floating dtype, for `measure_error`."""
    return lambda part, golden: (got[part].double() - golden).abs_()


def measure_rounding_error(scale: GoldenScale) -> ErrorMetrics:
    """Expected error of rounding the golden to the scale's bits, in ulp of as many bits, computed without random
    rounding."""
    one_ulp = measure_error(scale, lambda _, values: compute_ulp(values, scale.bits, scale.min_magnitude))
    values = tuple(v * share for v, share in zip(one_ulp.values, ROUNDING_SHARES, strict=True))
    return ErrorMetrics(values, one_ulp.groups.scaled(GROUP_ROUNDING_SHARES))


def rescale_to_bits(rounding: ErrorMetrics, bits: int, fewer: int) -> ErrorMetrics:
    """The rounding error at fewer bits, in the same ulp: every metric grows by a power of two."""
    factor = 2.0 ** (bits - fewer)
    values = tuple(min(MAX_ERROR_RATIO, value * factor) for value in rounding.values)
    return ErrorMetrics(values, rounding.groups.scaled((factor, factor)))


def count_above_tail(count: int) -> int:
    """How many of `count` elements are above the tail quantile: none where there are few, so that it is the
    maximum."""
    return max(int(TAIL_SHARE * count), min(MIN_ABOVE_TAIL, count // MIN_COUNT_PER_ELEMENT_ABOVE))


def _quantiles(scale: GoldenScale, error_of: ErrorFunction) -> tuple[float, float]:
    """Median and tail quantile in ulp, of the samples."""
    in_ulp = error_of(scale.samples, scale.golden[scale.samples]).div_(scale.sampled_ulp)
    count = in_ulp.numel()
    median = in_ulp.kthvalue((count + 1) // 2).values.item() if count >= MIN_COUNT_FOR_MEDIAN else 0.0
    return median, in_ulp.kthvalue(count - count_above_tail(count)).values.item()


def group_counts(scale: GoldenScale) -> Tensor:
    """(groups,) elements of each group."""
    counts = torch.full_like(scale.group_squares, scale.group_size)
    counts[-1] = scale.golden.numel() - scale.group_size * (counts.numel() - 1)
    return counts


def _rms_and_worst_tile(errors: Tensor, golden: Tensor, count: int) -> tuple[float, float]:
    """From squares of the errors and of the golden of all tiles: relative rms errors of all tiles together, and of the
    worst one."""
    squares = golden.sum().item() or float(count)
    min_tile_square = TILE_SIZE * squares / count * MIN_TILE_SCALE**2
    return (errors.sum().item() / squares) ** 0.5, (errors / golden.clamp_min(min_tile_square)).max().item() ** 0.5
