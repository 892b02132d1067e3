"""Confidence intervals and comparison verdicts. Pure arithmetic, no clock and no torch.

Medians and order statistics, because timing noise is one-sided; logarithms of ratios, because a/b and b/a must agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

from kernelwright.core.bench import EQUIVALENCE_MARGIN, Comparison, ComparisonVerdict

# Two-sided 99 % Student quantiles by degrees of freedom (NIST e-Handbook, table 1.3.6.7.2).
_STUDENT_99 = (63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947)


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Distribution-free confidence interval of the median, from order statistics and their binomial tails.

    Both ends have the same depth, so that a/b and b/a agree. With too few samples it is the whole range.
    """
    ordered, count = sorted(samples), len(samples)
    depth, tail = 0, math.ldexp(1.0, -count)
    while (tail := tail + math.comb(count, depth + 1) / 2**count) <= (1 - confidence) / 2:
        depth += 1
    return ordered[depth], ordered[count - 1 - depth]


def classify_ratio(low: float, high: float) -> ComparisonVerdict:
    """Verdict on `a` from the interval of time(b) / time(a)."""
    if low > 1 + EQUIVALENCE_MARGIN:
        return "FASTER"
    if high < 1 / (1 + EQUIVALENCE_MARGIN):
        return "SLOWER"
    return "SAME" if low >= 1 / (1 + EQUIVALENCE_MARGIN) and high <= 1 + EQUIVALENCE_MARGIN else "UNCLEAR"


def compare_rounds(name_a: str, a_us: Sequence[float], name_b: str, b_us: Sequence[float]) -> Comparison:
    """Compare paired samples of one process; sample i of both is from the same round."""
    logs = [math.log(b / a) for a, b in zip(a_us, b_us, strict=True)]
    low, high = median_interval(logs, 0.99)
    return _comparison(name_a, name_b, median(logs), low, high, len(logs), "rounds in one process, random order")


def compare_processes(name_a: str, a_us: Sequence[float], name_b: str, b_us: Sequence[float]) -> Comparison:
    """Compare medians of fresh process pairs.

    The Student interval is over pairs, since samples of one process share its memory layout and are not independent.

    Raises:
        ValueError: fewer than five pairs.
    """
    if len(a_us) < 5:
        raise ValueError(f"comparing processes needs at least 5 pairs, got {len(a_us)}")
    logs = [math.log(b / a) for a, b in zip(a_us, b_us, strict=True)]
    quantile = _STUDENT_99[min(len(logs) - 1, len(_STUDENT_99)) - 1]
    half_width = quantile * stdev(logs) / math.sqrt(len(logs))
    center = fmean(logs)
    return _comparison(
        name_a, name_b, center, center - half_width, center + half_width, len(logs), "fresh process pairs"
    )


def _comparison(a: str, b: str, center: float, low: float, high: float, pairs: int, method: str) -> Comparison:
    ratio, low_ratio, high_ratio = math.exp(center), math.exp(low), math.exp(high)
    return Comparison(
        variant=a,
        baseline=b,
        verdict=classify_ratio(low_ratio, high_ratio),
        speedup=ratio,
        low=low_ratio,
        high=high_ratio,
        pairs=pairs,
        method=method,
    )
