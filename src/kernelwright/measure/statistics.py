"""What samples say, and how sure that is. Pure arithmetic, no clock and no torch.

Medians and order statistics, because timing noise is one-sided; ratios in logarithms, because a/b and b/a must agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

from kernelwright.core.records import EQUIVALENCE_MARGIN, Comparison, ComparisonVerdict

# Two-sided 99 % Student quantiles by degrees of freedom (NIST e-Handbook, table 1.3.6.7.2).
_STUDENT_99 = (63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947)


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Distribution-free interval of the median: the order statistics whose binomial tails leave enough between them.

    Both ends lie equally deep, so that a/b and b/a agree. Of too few samples the range is all that can be said.
    """
    ordered, count = sorted(samples), len(samples)
    depth, tail = 0, math.ldexp(1.0, -count)
    while (tail := tail + math.comb(count, depth + 1) / 2**count) <= (1 - confidence) / 2:
        depth += 1
    return ordered[depth], ordered[count - 1 - depth]


def classify_ratio(low: float, high: float) -> ComparisonVerdict:
    """What an interval of time(b) / time(a) says of `a`."""
    if low > 1 + EQUIVALENCE_MARGIN:
        return "FASTER"
    if high < 1 / (1 + EQUIVALENCE_MARGIN):
        return "SLOWER"
    return "SAME" if low >= 1 / (1 + EQUIVALENCE_MARGIN) and high <= 1 + EQUIVALENCE_MARGIN else "UNCLEAR"


def compare_rounds(name_a: str, a_us: Sequence[float], name_b: str, b_us: Sequence[float]) -> Comparison:
    """Paired samples of one process, sample i of both taken in the same round."""
    logs = [math.log(b / a) for a, b in zip(a_us, b_us, strict=True)]
    low, high = median_interval(logs, 0.99)
    return _comparison(name_a, name_b, median(logs), low, high, len(logs), "rounds in one process, order drawn anew")


def compare_processes(name_a: str, a_us: Sequence[float], name_b: str, b_us: Sequence[float]) -> Comparison:
    """Medians of fresh process pairs: a Student interval over pairs, since within a process samples are not
    independent of its memory layout.

    Raises:
        ValueError: fewer than five pairs.
    """
    if len(a_us) < 5:
        raise ValueError(f"{len(a_us)} process pairs; five at least")
    logs = [math.log(b / a) for a, b in zip(a_us, b_us, strict=True)]
    quantile = _STUDENT_99[min(len(logs) - 1, len(_STUDENT_99)) - 1]
    reach = quantile * stdev(logs) / math.sqrt(len(logs))
    centre = fmean(logs)
    return _comparison(name_a, name_b, centre, centre - reach, centre + reach, len(logs), "fresh process pairs")


def _comparison(a: str, b: str, centre: float, low: float, high: float, pairs: int, method: str) -> Comparison:
    ratio, least, most = math.exp(centre), math.exp(low), math.exp(high)
    return Comparison(
        variant=a,
        baseline=b,
        verdict=classify_ratio(least, most),
        speedup=ratio,
        low=least,
        high=most,
        pairs=pairs,
        method=method,
    )
