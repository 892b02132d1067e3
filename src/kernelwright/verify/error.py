"""How far an output is from the golden: five measures that a single wrong tile or a flipped rounding cannot hide from.

Every measure is relative, so that it reads alike for every output: rms over the golden's rms, the worst tile's rms
over that tile's, the maximum over the golden's maximum, and two quantiles in units in the last place (ulp).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

TAIL = "99.9 % ulp"
METRICS = ("rms", "worst tile", "maximum", "median ulp", TAIL)
# Of one ulp, what rounding to nearest loses in each of them: errors are spread evenly over half an ulp either side.
ROUNDING_SHARES = (12**-0.5, 12**-0.5, 0.5, 0.25, 0.4995)
TILE = 256
CHUNK = 1 << 22
SAMPLE = 1 << 20
# Below these counts a quantile is chance.
LEAST_FOR_MEDIAN, LEAST_FOR_TAIL = 32, 4000
# A tile whose golden is smaller than this share of the whole is measured against the whole.
QUIET_TILE = 2.0**-5
# A value smaller than this share of the rms has the ulp of that share: nobody's scaling keeps such a range.
QUIET_ELEMENT = 2.0**-32
# JSON has no infinity; nothing real is this many times off.
FARTHEST = 1e30


@dataclass(frozen=True)
class Profile:
    """The error of one output in each metric of `METRICS`; `index` is the flat position of the largest one."""

    values: tuple[float, ...]
    index: int = 0

    def __getitem__(self, metric: str) -> float:
        return self.values[METRICS.index(metric)]


def significand_bits(dtype: torch.dtype) -> int:
    """Significant bits, the hidden one counted: 24 for float32, 8 for bfloat16."""
    return 1 - round(math.log2(torch.finfo(dtype).eps))


def shortcut_bits(dtype: torch.dtype) -> int:
    """The precision that a shortcut would leave: FP32's for FP64, else the 11 bits of FP16 and TF32."""
    return 24 if dtype == torch.float64 else 11


def round_to_bits(value: Tensor, bits: int) -> Tensor:
    """An FP64 tensor rounded to nearest at `bits` significant bits (Veltkamp's splitting); non-finite ones stay."""
    scaled = value * (2.0 ** (53 - bits) + 1)
    return torch.where(scaled.isfinite(), scaled - (scaled - value), value)


def ulp_of(golden: Tensor, bits: int, smallest: float) -> Tensor:
    """One unit in the last place at `bits` significant bits, never below that of `smallest`."""
    exponent = torch.frexp(golden.abs().clamp_min(smallest)).exponent
    return torch.exp2((exponent - bits).double())


def smallest_kept(dtype: torch.dtype, rms: float) -> float:
    """The magnitude below which an output's ulp no longer shrinks.

    Flushing a subnormal to zero costs one ulp at most (FP16's may not be flushed), and so does losing what is 2^-32
    of the rms.
    """
    normal = torch.finfo(dtype).smallest_normal
    flushed = normal if dtype == torch.float16 else normal * 2.0 ** (significand_bits(dtype) - 1)
    return max(flushed, QUIET_ELEMENT * rms)


def profile(golden: Tensor, bits: int, smallest: float, error_of: Callable[[slice, Tensor], Tensor]) -> Profile:
    """Measures an error against a flat FP64 golden, chunk by chunk.

    Args:
        golden: (n,) float64, finite.
        bits, smallest: what an ulp is: significant bits, and the magnitude below which it no longer shrinks.
        error_of: gives the absolute error of a slice as a new tensor, from the slice and the golden's values there.
    """
    unit = max(abs(bound.item()) for bound in golden.aminmax()) or smallest
    squares, golden_squares, largest, where = 0.0, 0.0, -1.0, 0
    tiles: list[tuple[Tensor, Tensor]] = []
    for start in range(0, golden.numel(), CHUNK):
        part = slice(start, min(start + CHUNK, golden.numel()))
        error = error_of(part, golden[part]).div_(unit)
        peak, at = error.max(0)
        if peak.item() > largest:
            largest, where = peak.item(), start + int(at)
        tiles.append((_tile_squares(error), _tile_squares(golden[part] / unit)))
        squares += tiles[-1][0].sum().item()
        golden_squares += tiles[-1][1].sum().item()
    golden_squares = golden_squares or float(golden.numel())
    worst_tile = _worst_tile(tiles, golden_squares / golden.numel())
    values = ((squares / golden_squares) ** 0.5, worst_tile, largest, *_quantiles(golden, bits, smallest, error_of))
    return Profile(tuple(min(value, FARTHEST) for value in values), where)


def worst_tile(golden: Tensor, error: Tensor) -> float:
    """The relative rms error of the worst tile alone, of an FP64 golden of any shape."""
    golden, error = golden.flatten(), error.flatten()
    unit = golden.abs().max().item() or 1.0
    tiles = _tile_squares(error / unit), _tile_squares(golden / unit)
    return _worst_tile([tiles], tiles[1].sum().item() / golden.numel() or 1.0)


def error_of(got: Tensor) -> Callable[[slice, Tensor], Tensor]:
    """The error of a flat output of any floating dtype, for `profile`."""
    return lambda part, golden: (got[part].double() - golden).abs_()


def rounding_profile(golden: Tensor, unit_bits: int, bits: int, smallest: float) -> Profile:
    """What rounding the golden to `bits` loses, in ulp of `unit_bits`, without the luck of single draws."""
    one_ulp = profile(golden, unit_bits, smallest, lambda part, values: ulp_of(values, bits, smallest))
    return Profile(tuple(v * share for v, share in zip(one_ulp.values, ROUNDING_SHARES, strict=True)))


def _quantiles(
    golden: Tensor, bits: int, smallest: float, error_of: Callable[[slice, Tensor], Tensor]
) -> tuple[float, float]:
    """Median and 99.9 % quantile in ulp, of every element or of a million evenly spaced ones."""
    part = slice(0, golden.numel(), -(-golden.numel() // SAMPLE))
    in_ulp = error_of(part, golden[part]) / ulp_of(golden[part], bits, smallest)
    count = in_ulp.numel()
    median = in_ulp.kthvalue((count + 1) // 2).values.item() if count >= LEAST_FOR_MEDIAN else 0.0
    tail = in_ulp.kthvalue(math.ceil(0.999 * count)).values.item() if count >= LEAST_FOR_TAIL else 0.0
    return median, tail


def _tile_squares(values: Tensor) -> Tensor:
    """Sums of squares of consecutive tiles; the last one may be short."""
    whole = values.numel() // TILE * TILE
    sums = values[:whole].view(-1, TILE).square().sum(1)
    return sums if whole == values.numel() else torch.cat([sums, values[whole:].square().sum()[None]])


def _worst_tile(tiles: list[tuple[Tensor, Tensor]], mean_square: float) -> float:
    quiet = TILE * mean_square * QUIET_TILE**2
    return max((error / golden.clamp_min(quiet)).max().item() for error, golden in tiles) ** 0.5
