"""Smirnov's tests with exact critical values: their probability of a false alarm holds for every distribution.

Two-sample: the largest difference between two empirical distribution functions. One-sample: the largest difference
between one and the uniform distribution. Source: Smirnov 1939; Birnbaum & Tingey 1951 for the one-sample formula.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor


def two_sample_distance(one: Tensor, other: Tensor, tolerance: float = 0.0) -> Tensor:
    """Largest difference between the empirical distribution functions of each column; differences of the values up to
    `tolerance` do not count.

    Args:
        one: (n, k); other: (m, k).
    Returns:
        (k,) values from 0 to 1.
    """
    one_sorted, other_sorted = (values.double().T.contiguous().sort(-1).values for values in (one, other))

    def excess(low: Tensor, high: Tensor) -> Tensor:
        """Largest excess of the distribution function of `low` over that of `high`."""
        points = torch.cat([low, high], -1)
        shares = [torch.searchsorted(each, points, right=True) / each.shape[-1] for each in (low, high)]
        return (shares[0] - shares[1]).amax(-1)

    distance = torch.maximum(excess(one_sorted + tolerance, other_sorted), excess(other_sorted, one_sorted - tolerance))
    return distance.clamp_min(0.0)


@functools.lru_cache(maxsize=256)
def two_sample_critical(n: int, m: int, alpha: float) -> float:
    """The smallest distance of samples of n and m values that equal distributions reach with a probability of at most
    `alpha`; above 1 where no distance is that improbable."""
    unit = math.lcm(n, m)
    low, high = 0, unit + 1  # in 1 / unit; the probability is above alpha at `low`, and below it at `high`
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _two_sample_probability(n, m, middle) <= alpha else (middle, high)
    return (high - 0.5) / unit


def _two_sample_probability(n: int, m: int, distance: int) -> float:
    """Probability that the distance is at least `distance` / lcm(n, m), without ties: the share of lattice paths that
    reach it, in exact integers."""
    unit = math.lcm(n, m)
    step_n, step_m = unit // n, unit // m
    paths = [0] * (m + 1)
    for i in range(n + 1):
        for j in range(m + 1):
            inside = abs(i * step_n - j * step_m) < distance
            before = (paths[j] if i else 0) + (paths[j - 1] if j else 0) if i or j else 1
            paths[j] = before if inside else 0
    total = math.comb(n + m, n)
    return (total - paths[m]) / total


def one_sample_distance(ranks: Tensor) -> Tensor:
    """Largest one-sided difference between the empirical distribution function of each column and the uniform one.

    Args:
        ranks: (n, k) values from 0 to 1.
    """
    ordered, count = ranks.double().sort(0).values, len(ranks)
    steps = torch.arange(1, count + 1, dtype=torch.float64).unsqueeze(1) / count
    return torch.maximum((steps - ordered).amax(0), (ordered - (steps - 1 / count)).amax(0))


@functools.lru_cache(maxsize=256)
def one_sample_critical(n: int, alpha: float) -> float:
    """The distance that n uniform values reach with a probability of at most `alpha`, both sides together."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if 2 * _one_sided_probability(n, middle) <= alpha else (middle, high)
    return high


def _one_sided_probability(n: int, distance: float) -> float:
    return sum(
        distance * math.comb(n, j) * (distance + j / n) ** (j - 1) * max(0.0, 1 - distance - j / n) ** (n - j)
        for j in range(int(n * (1 - distance)) + 1)
    )
