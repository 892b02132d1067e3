"""Error of an output against the golden: five metrics that expose a single wrong tile as well as a flipped rounding.

Every metric is relative, so that it is comparable across outputs: rms over the golden's rms, the worst tile's rms
over that tile's golden rms, the maximum over the golden's maximum, and two quantiles in units in the last place
(ulp).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kernelwright.verification.accuracy.ranges import all_finite, iter_chunks, max_abs

TAIL_METRIC = "99.9 % ulp"
METRICS = ("rms", "worst tile", "maximum", "median ulp", TAIL_METRIC)
# Error of rounding to nearest in each metric, in ulp: errors are uniform over half an ulp on either side.
ROUNDING_SHARES = (12**-0.5, 12**-0.5, 0.5, 0.25, 0.4995)
TILE_SIZE = 256
MAX_QUANTILE_SAMPLES = 1 << 20
# Below these counts a quantile is not meaningful.
MIN_COUNT_FOR_MEDIAN, MIN_COUNT_FOR_TAIL = 32, 4000
# A tile whose golden rms is below this share of the overall rms is measured against that share.
MIN_TILE_SCALE = 2.0**-5
# A value below this share of the rms uses the ulp of that share: scaled kernels cannot keep a wider range.
MIN_ELEMENT_SCALE = 2.0**-32
_EXPONENT_MASK = 0x7FF << 52
# JSON has no infinity; real errors are smaller.
MAX_ERROR_RATIO = 1e30


@dataclass(frozen=True)
class ErrorMetrics:
    """The error of one output in each metric of `METRICS`; `worst_index` is the flat position of the largest one."""

    values: tuple[float, ...]
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


def compute_ulp(golden: Tensor, bits: int, min_magnitude: float) -> Tensor:
    """One unit in the last place at `bits` significant bits, never below that of `min_magnitude`."""
    size = golden.abs().clamp_min_(min_magnitude)  # a normal number: its exponent's bits alone are a power of two
    return size.view(torch.int64).bitwise_and_(_EXPONENT_MASK).view(torch.float64).mul_(2.0 ** (1 - bits))


def min_ulp_magnitude(dtype: torch.dtype, rms: float) -> float:
    """The magnitude below which an output's ulp no longer shrinks.

    Flushing a subnormal to zero costs at most one ulp (not permitted for FP16), and so does losing values below 2^-32
    of the rms.
    """
    normal = torch.finfo(dtype).smallest_normal
    flushed = normal if dtype == torch.float16 else normal * 2.0 ** (significand_bits(dtype) - 1)
    return max(flushed, MIN_ELEMENT_SCALE * rms)


def measure_error(
    golden: Tensor, bits: int, min_magnitude: float, error_of: Callable[[slice, Tensor], Tensor]
) -> ErrorMetrics:
    """Measure an error against a flat FP64 golden, chunk by chunk.

    Args:
        golden: (n,) float64, finite.
        bits, min_magnitude: define an ulp: significant bits, and the magnitude below which it no longer shrinks.
        error_of: returns the absolute error of a slice as a new tensor, from the slice and the golden's values there.
    """
    unit, largest, where = max_abs(golden) or min_magnitude, -1.0, 0
    tiles: list[tuple[Tensor, Tensor]] = []
    for part in iter_chunks(golden):
        error = error_of(part, golden[part]).div_(unit)
        peak = error.max().item()
        if peak > largest:
            largest, where = peak, part.start + int(error.argmax())
        tiles.append((_tile_squares(error), _tile_squares(golden[part] / unit)))
    rms, worst = _rms_and_worst_tile(tiles, golden.numel())
    values = (rms, worst, largest, *_quantiles(golden, bits, min_magnitude, error_of))
    return ErrorMetrics(tuple(min(value, MAX_ERROR_RATIO) for value in values), where)


def relative_errors(golden: Tensor, native: Tensor) -> tuple[float, float]:
    """Relative rms error of the whole output and of the worst tile, over positions where both are finite; for outputs
    of the same shape and floating dtypes. The first is infinite where the golden is zero and the output is not."""
    golden, native = golden.double().flatten(), native.flatten()
    finite = all_finite(golden) and all_finite(native)
    unit = max_abs(golden) if finite else max_abs(torch.nan_to_num(golden, 0.0, 0.0, 0.0))
    tiles: list[tuple[Tensor, Tensor]] = []
    for part in iter_chunks(golden):
        golden_part, error = golden[part], native[part].double() - golden[part]
        if not finite:
            both = golden_part.isfinite() & error.isfinite()
            golden_part, error = torch.where(both, golden_part, 0.0), torch.where(both, error, 0.0)
        tiles.append((_tile_squares(error / (unit or 1.0)), _tile_squares(golden_part / (unit or 1.0))))
    rms, worst = _rms_and_worst_tile(tiles, golden.numel())
    return rms if unit or not rms else math.inf, worst


def make_error_function(got: Tensor) -> Callable[[slice, Tensor], Tensor]:
    """The error of a flat output of any floating dtype, for `measure_error`."""
    return lambda part, golden: (got[part].double() - golden).abs_()


def measure_rounding_error(golden: Tensor, bits: int, min_magnitude: float) -> ErrorMetrics:
    """Expected error of rounding the golden to `bits`, in ulp of as many bits, computed without random rounding."""
    one_ulp = measure_error(golden, bits, min_magnitude, lambda part, values: compute_ulp(values, bits, min_magnitude))
    return ErrorMetrics(tuple(v * share for v, share in zip(one_ulp.values, ROUNDING_SHARES, strict=True)))


def rescale_to_bits(rounding: ErrorMetrics, bits: int, fewer: int) -> ErrorMetrics:
    """The rounding error at fewer bits, in the same ulp: every metric grows by a power of two."""
    return ErrorMetrics(tuple(min(MAX_ERROR_RATIO, value * 2.0 ** (bits - fewer)) for value in rounding.values))


def _quantiles(
    golden: Tensor, bits: int, min_magnitude: float, error_of: Callable[[slice, Tensor], Tensor]
) -> tuple[float, float]:
    """Median and 99.9 % quantile in ulp, of every element or of a million evenly spaced ones."""
    part = slice(0, golden.numel(), -(-golden.numel() // MAX_QUANTILE_SAMPLES))
    in_ulp = error_of(part, golden[part]) / compute_ulp(golden[part], bits, min_magnitude)
    count = in_ulp.numel()
    median = in_ulp.kthvalue((count + 1) // 2).values.item() if count >= MIN_COUNT_FOR_MEDIAN else 0.0
    tail = in_ulp.kthvalue(math.ceil(0.999 * count)).values.item() if count >= MIN_COUNT_FOR_TAIL else 0.0
    return median, tail


def _tile_squares(values: Tensor) -> Tensor:
    """Sums of squares of consecutive tiles; the last one may be short."""
    whole = values.numel() // TILE_SIZE * TILE_SIZE
    sums = values[:whole].view(-1, TILE_SIZE).square().sum(1)
    return sums if whole == values.numel() else torch.cat([sums, values[whole:].square().sum()[None]])


def _rms_and_worst_tile(tiles: list[tuple[Tensor, Tensor]], count: int) -> tuple[float, float]:
    """From squares of errors and of the golden: relative rms errors of all tiles together, and of the worst tile."""
    errors, golden = map(torch.cat, zip(*tiles, strict=True))
    squares = golden.sum().item() or float(count)
    min_tile_square = TILE_SIZE * squares / count * MIN_TILE_SCALE**2
    return (errors.sum().item() / squares) ** 0.5, (errors / golden.clamp_min(min_tile_square)).max().item() ** 0.5
