"""What an error is measured against: the golden of one output, and its scale in every tile and every group.

A group is a row, or an equal part of a long row, so that a group never has elements of two rows unless rows are very
short. Errors in a group are compared with the reference's own error there.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernelwright.verification.accuracy.ranges import iter_chunks, max_abs

TILE_SIZE = 256
MIN_GROUP_SIZE, MAX_GROUP_SIZE, MAX_UNDIVIDED_ROW = 16, 256, 4096
"""Elements: the rms of fewer is chance; rows up to the last are one group where they have no suitable divisor."""
MAX_QUANTILE_SAMPLES = 1 << 20
_EXPONENT_MASK = 0x7FF << 52


@dataclass(frozen=True)
class GoldenScale:
    """The golden of one output and what errors are relative to.

    Attributes:
        golden: (n,) float64, finite.
        bits, min_magnitude: define an ulp: significant bits, and the magnitude below which it no longer shrinks.
        unit: errors and squares are relative to it: the golden's maximum.
        tile_squares, group_squares: sums of squares of consecutive tiles, and of groups, relative to the unit's.
        group_size: elements; the last group may be short.
        samples: positions of the elements of which quantiles are measured; all of them, or random ones.
        sampled_ulp: the ulp at those.
    """

    golden: Tensor
    bits: int
    min_magnitude: float
    unit: float
    tile_squares: Tensor
    group_squares: Tensor
    group_size: int
    samples: Tensor | slice
    sampled_ulp: Tensor

    @classmethod
    def of(
        cls,
        golden: Tensor,
        bits: int,
        min_magnitude: float,
        *,
        shape: Sequence[int] | None = None,
        seed: int | None = None,
    ) -> GoldenScale:
        """The scale of a flat golden.

        Args:
            shape: of the output, for its rows; by default one row.
            seed: of the samples' positions; by default unpredictable.
        """
        unit = max_abs(golden) or min_magnitude
        size = choose_group_size(golden.numel(), shape or (golden.numel(),))
        tiles: list[Tensor] = []
        groups: list[Tensor] = []
        for part in iter_chunks(golden, math.lcm(size, TILE_SIZE)):
            squares = (golden[part] / unit).square_()
            tiles.append(sum_consecutive(squares, TILE_SIZE))
            groups.append(tiles[-1] if size == TILE_SIZE else sum_consecutive(squares, size))
        samples = draw_samples(golden.numel(), golden.device, seed)
        return cls(
            golden,
            bits,
            min_magnitude,
            unit,
            torch.cat(tiles),
            torch.cat(groups),
            size,
            samples,
            compute_ulp(golden[samples], bits, min_magnitude),
        )


def compute_ulp(golden: Tensor, bits: int, min_magnitude: float) -> Tensor:
    """One unit in the last place at `bits` significant bits, never below that of `min_magnitude`."""
    size = golden.abs().clamp_min_(min_magnitude)  # a normal number: its exponent's bits alone are a power of two
    return size.view(torch.int64).bitwise_and_(_EXPONENT_MASK).view(torch.float64).mul_(2.0 ** (1 - bits))


def choose_group_size(count: int, shape: Sequence[int]) -> int:
    """Elements of a group in an output of `count` elements: whole short rows, a row, or an equal part of a long one."""
    row = min(shape[-1] if shape else 1, count) or 1
    if row < MIN_GROUP_SIZE:
        return min(count, row * -(-MIN_GROUP_SIZE // row))
    divisor = next((d for d in range(min(row, MAX_GROUP_SIZE), MIN_GROUP_SIZE - 1, -1) if row % d == 0), 0)
    return divisor or (row if row <= MAX_UNDIVIDED_ROW else TILE_SIZE)


def draw_samples(count: int, device: torch.device, seed: int | None = None) -> Tensor | slice:
    """All positions of up to a million; of more, one random position in each of as many equal parts."""
    if count <= MAX_QUANTILE_SAMPLES:
        return slice(None)
    stride = -(-count // MAX_QUANTILE_SAMPLES)
    seed = random.SystemRandom().getrandbits(63) if seed is None else seed
    generator = torch.Generator(device).manual_seed(seed)
    first = torch.arange(0, count // stride * stride, stride, device=device)
    return first + torch.randint(stride, first.shape, generator=generator, device=device)


def sum_consecutive(values: Tensor, size: int) -> Tensor:
    """Sums of consecutive `size` elements; the last ones may be fewer."""
    whole = values.numel() // size * size
    sums = values[:whole].view(-1, size).sum(1)
    return sums if whole == values.numel() else torch.cat([sums, values[whole:].sum()[None]])


def max_consecutive(values: Tensor, size: int) -> Tensor:
    """Maxima of consecutive `size` elements; the last ones may be fewer."""
    whole = values.numel() // size * size
    peaks = values[:whole].view(-1, size).amax(1)
    return peaks if whole == values.numel() else torch.cat([peaks, values[whole:].max()[None]])
