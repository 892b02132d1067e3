"""Statistics of draws of a random output: one number or vector for each draw, to be compared with the reference's own.

Elements are standardised with moments of separate draws of the reference, so that the reference's other draws and an
correct candidate's have the same law, whatever that is and however elements depend on each other.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

MAX_ELEMENTS = 1 << 16
"""Of an output with more elements, rows and columns are sampled: half of them adjacent, half of them anywhere."""
MAX_DEVIATION = 8.0
MIN_SCALE_EPS, CONSTANT_TOLERANCE = 16.0, 2.0**-6
"""Elements are standardised with at least so many eps of their magnitude, so that rounding does not count. Elements
that are constant in the reference count where they differ by this share of their magnitude."""
FREQUENCIES = (0.7, 1.4, 2.1, 2.8)
"""Of the characteristic function, which compares whole distributions without thresholds that rounding could cross."""
MAX_TILES, MIN_TILE = 256, 64
MAX_SLICES, MAX_SLICE_ELEMENTS, MIN_SLICE_ELEMENTS = 128, 1024, 8
MIN_LAG_ELEMENTS = 32
WINDOW, MAX_WINDOWS = 63, 1 << 20
"""Random numbers in a row whose signs are compared, and the largest number of such rows in all draws."""


class Statistic(NamedTuple):
    """Values of one kind for each draw; `values` is (draws, k)."""

    name: str
    values: Tensor


class Positions:
    """The elements of an output that are compared.

    Args:
        shape: of the output; one with complex values has a last dimension of two.
        rng: chooses rows and columns of a large output.
    """

    def __init__(self, shape: Sequence[int], rng: random.Random) -> None:
        counts, generator = list(shape), torch.Generator().manual_seed(rng.getrandbits(53))
        while math.prod(counts) > MAX_ELEMENTS:
            largest = max(range(len(counts)), key=counts.__getitem__)
            counts[largest] = -(-counts[largest] // 2)
        self._indices = [_choose(size, count, generator) for size, count in zip(shape, counts, strict=True)]
        self._shape, self.shape = tuple(shape), tuple(len(index) for index in self._indices)
        self._slices = [_choose(size, MAX_SLICES, generator) for size in self.shape]
        widths = [self.count // max(1, size) for size in self.shape]
        self._columns = [_choose(width, MAX_SLICE_ELEMENTS, generator) for width in widths]

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def take(self, value: Tensor) -> Tensor:
        """(count,) float64 on the CPU: the chosen elements of a tensor that has, or expands to, the output's shape."""
        value = value.detach().expand(self._shape)
        for dim, (index, size) in enumerate(zip(self._indices, self._shape, strict=True)):
            if len(index) < size:
                value = value.index_select(dim, index.to(value.device))
        return value.reshape(-1).cpu().double()

    def slices(self, draws: Tensor) -> Iterator[Tensor]:
        """For each dimension, chosen elements of chosen slices: (draws, slices, elements)."""
        for dim, size in enumerate(self.shape):
            if size > 1:
                by_slice = draws.view(-1, *self.shape).movedim(dim + 1, 1).reshape(len(draws), size, -1)
                yield by_slice.index_select(1, self._slices[dim]).index_select(2, self._columns[dim])

    def slice_means(self, draws: Tensor) -> Iterator[Tensor]:
        """Means over up to `MAX_TILES` groups of slices along each dimension: (draws, groups)."""
        for dim, size in enumerate(self.shape):
            if size > 1 and len(self.shape) > 1:
                other_dims = [other + 1 for other in range(len(self.shape)) if other != dim]
                yield _group_means(draws.view(-1, *self.shape).mean(other_dims), -(-size // MAX_TILES))


def _choose(size: int, count: int, generator: torch.Generator) -> Tensor:
    """Up to `count` sorted indices below `size`: half of them adjacent, so that near elements are compared too."""
    if count >= size:
        return torch.arange(size)
    adjacent = count // 2
    start = int(torch.randint(size - adjacent + 1, (), generator=generator))
    anywhere = torch.randint(size, (count - adjacent,), generator=generator)
    return torch.cat([torch.arange(start, start + adjacent), anywhere]).unique()


class Standardizer:
    """Standardises elements by moments of draws of the reference.

    Args:
        draws: (r, n) float64 draws.
        eps: of the output's dtype; 0 for integers.
    """

    def __init__(self, draws: Tensor, eps: float) -> None:
        finite = draws.isfinite()
        self._largest = 1.0 + 2.0 * float(torch.where(finite, draws, 0.0).abs().amax()) if draws.numel() else 1.0
        draws = self._make_finite(draws)
        self._mean, deviation = draws.mean(0), draws.std(0, correction=0)
        self.low, self.high = draws.amin(0), draws.amax(0)
        size = draws.abs().amax(0)
        self.is_constant = self.low == self.high
        rms = float(size.square().mean().sqrt()) if size.numel() else 0.0
        scale = torch.maximum(deviation, MIN_SCALE_EPS * eps * size).clamp_min(max(1e-30, 1e-6 * rms * bool(eps)))
        self._scale = torch.where(self.is_constant, 1e-30, scale)
        self._common_scale = deviation.square().mean().sqrt().clamp_min(1e-30)
        self._signs = self._mean.sign().float()
        self._dead_zone = torch.where(self.is_constant, CONSTANT_TOLERANCE * size.clamp_min(rms / 16), 0.0)
        self._exact = not eps

    def _make_finite(self, draws: Tensor) -> Tensor:
        return torch.nan_to_num(draws, 0.0, self._largest, -self._largest)

    def __call__(self, draws: Tensor) -> Tensor:
        """(k, n) float32 in units of each element's deviation, at most `MAX_DEVIATION`."""
        difference = self._make_finite(draws) - self._mean
        if not self._exact:
            difference = torch.where(difference.abs() <= self._dead_zone, 0.0, difference)
        return (difference / self._scale).clamp_(-MAX_DEVIATION, MAX_DEVIATION).float()

    def sums(self, draws: Tensor) -> Tensor:
        """(k, 1) means over all elements, in units of the common deviation: what a shuffle leaves unchanged."""
        return self._make_finite(draws).mean(1, keepdim=True) / self._common_scale

    def orient(self, z: Tensor) -> Tensor:
        """Standardised draws times the signs of the elements' means. Where a random mask multiplies values of both
        signs, these show what the elements' masks have in common; where noise is added, the draws as they are."""
        return z * self._signs

    def outside_share(self, draws: Tensor) -> Tensor:
        """(k, 1): share of the elements far outside the range of the reference's draws."""
        margin = 2 * (self.high - self.low)
        outside = (draws < self.low - margin) | (draws > self.high + margin)
        return (outside & ~self.is_constant).double().mean(1, keepdim=True)


def measure_draws(z: Tensor, oriented: Tensor, positions: Positions, features: Sequence[Tensor]) -> list[Statistic]:
    """Statistics over all elements; those of distances between elements are separate, in `measure_distances`.

    Args:
        z: (k, n) standardised draws; oriented: the same, oriented by `Standardizer.orient`.
        features: (n,) standardised values of inputs, which the draws must not depend on otherwise than the
            reference's.
    """
    size = z.abs()
    waves = [wave(frequency * z).mean(1) for frequency in FREQUENCIES for wave in (torch.cos, torch.sin)]
    statistics = [
        Statistic("mean", torch.stack([z.mean(1), oriented.mean(1)], 1)),
        Statistic("deviation", torch.stack([z.square().mean(1), size.mean(1)], 1)),
        Statistic("distribution", torch.stack(waves, 1)),
    ]
    for feature in features:
        weighted = torch.stack([(one * feature.float()).mean(1) for one in (z, size)], 1)
        statistics.append(Statistic("inputs", weighted))
    return statistics + _measure_slices(z, positions) + _measure_slices(oriented, positions)


def measure_distances(z: Tensor, positions: Positions) -> list[Statistic]:
    """Largest correlations between elements at any distance, and between mirrored elements."""
    if positions.count < MIN_LAG_ELEMENTS:
        return []
    spectrum = torch.fft.rfft(normalize(z))
    peaks = [_peak(spectrum * spectrum.conj(), positions.count, skip_first=True)]
    peaks.append(_peak(spectrum.square(), positions.count))
    return [Statistic("sharing", torch.stack(peaks, 1))]


def _measure_slices(z: Tensor, positions: Positions) -> list[Statistic]:
    """Largest and mean square correlations between slices along each dimension."""
    statistics: list[Statistic] = []
    for slices in positions.slices(z - z.mean(1, keepdim=True)):
        if slices.shape[2] < MIN_SLICE_ELEMENTS:
            continue
        slices = slices / torch.linalg.vector_norm(slices, dim=2, keepdim=True).clamp_min(1e-12)
        products = (slices @ slices.mT).abs()
        products.diagonal(dim1=1, dim2=2).zero_()
        peaks = torch.stack([products.amax((1, 2)), products.square().mean((1, 2)).sqrt()], 1)
        statistics.append(Statistic("sharing", peaks))
    return statistics


def measure_parts(z: Tensor, positions: Positions) -> list[Statistic]:
    """Mean and second moment of parts of the output: consecutive tiles, and groups of slices along each dimension."""
    if positions.count < 2 * MIN_TILE:
        return []
    size = max(MIN_TILE, -(-positions.count // MAX_TILES))
    squares = z.square()
    parts = [_group_means(values, size) for values in (z, squares)]
    parts += [means for values in (z, squares) for means in positions.slice_means(values)]
    return [Statistic("part", part) for part in parts]


def measure_windows(z: Tensor, positions: Positions) -> list[Statistic]:
    """Share of the windows of `WINDOW` consecutive elements whose signs occur in another place or draw too, as they do
    where an output is put together from prepared random numbers."""
    count = min(positions.count, MAX_WINDOWS // len(z))
    if count < 2 * WINDOW:
        return []
    signs, words = (z[:, :count] > 0).long(), torch.zeros(len(z), count - WINDOW + 1, dtype=torch.int64)
    for at in range(WINDOW):
        words += signs[:, at : at + words.shape[1]] << at
    _, index, counts = words.unique(return_inverse=True, return_counts=True)
    return [Statistic("windows", (counts[index] > 1).double().mean(1, keepdim=True))]


def measure_repetition(z: Tensor, earlier: Tensor, positions: Positions) -> list[Statistic]:
    """Correlation of each draw with earlier draws, and its distance from the nearest of them.

    Args:
        z: (k, n); earlier: (e, n); both standardised.
    """
    scaled, earlier_scaled = normalize(z), normalize(earlier)
    nearest = torch.cdist(z, earlier).amin(1) / max(1, positions.count) ** 0.5
    peaks = (scaled @ earlier_scaled.T).abs().amax(1)
    statistics = [Statistic("repetition", peaks.unsqueeze(1)), Statistic("distance", nearest.unsqueeze(1))]
    if positions.count >= 2 * MIN_TILE:
        size = max(MIN_TILE, -(-positions.count // MAX_TILES))
        statistics.append(Statistic("repetition", _group_means(z * earlier.mean(0), size)))
    return statistics


def measure_shifted_repetition(z: Tensor, earlier: Tensor, positions: Positions) -> list[Statistic]:
    """Largest correlation of each draw with an earlier one at any distance, and with that one reversed.

    Args:
        z: (k, n); earlier: (n,); both standardised.
    """
    if positions.count < MIN_LAG_ELEMENTS:
        return []
    spectrum, last = torch.fft.rfft(normalize(z)), torch.fft.rfft(normalize(earlier))
    peaks = [_peak(spectrum * other, positions.count) for other in (last.conj(), last)]
    return [Statistic("repetition", torch.stack(peaks, 1))]


def measure_variation(z: Tensor, oriented: Tensor, draws: Tensor) -> Statistic:
    """How much means over all elements differ between two draws, for each pair of consecutive draws.

    Args:
        z, oriented: as in `measure_draws`; draws: (k, n) as they are.
    """
    zeros = (draws == 0).double().mean(1)
    moments = [z.double().mean(1), oriented.double().mean(1), z.double().square().mean(1), zeros]
    return compare_pairs(torch.stack(moments, 1))


def compare_pairs(values: Tensor) -> Statistic:
    """Differences of (k, s) values between the draws of each pair of consecutive ones: (k / 2, s)."""
    pairs = values[: len(values) // 2 * 2].unflatten(0, (-1, 2))
    return Statistic("variation", (pairs[:, 0] - pairs[:, 1]).abs())


def normalize(z: Tensor) -> Tensor:
    """Draws without their mean, divided by their norm: products of two are correlations."""
    z = z - z.mean(-1, keepdim=True)
    return z / torch.linalg.vector_norm(z, dim=-1, keepdim=True).clamp_min(1e-12)


def _peak(products: Tensor, count: int, *, skip_first: bool = False) -> Tensor:
    """(k,) largest correlation at any cyclic distance, from products of spectra of `count` values."""
    correlations = torch.fft.irfft(products, n=count)
    return correlations[:, 1 if skip_first else 0 :].abs().amax(1)


def _group_means(values: Tensor, size: int) -> Tensor:
    """Means of consecutive groups of `size` columns; the last one may be smaller."""
    whole = values.shape[1] // size * size
    means = values[:, :whole].reshape(len(values), -1, size).mean(2)
    return means if whole == values.shape[1] else torch.cat([means, values[:, whole:].mean(1, keepdim=True)], 1)
