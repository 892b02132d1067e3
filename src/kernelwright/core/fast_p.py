"""fast_p: the fraction of problems that are right and more than p times as fast as a baseline, with its uncertainty."""

from __future__ import annotations

from kernelwright.core.bench import EQUIVALENCE_MARGIN
from kernelwright.core.suite_run import CaseOutcome, FastP, FastPCurve

FAST_P_THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)


def compute_fast_p_curve(outcomes: tuple[CaseOutcome, ...], baseline: str) -> FastPCurve:
    """Compute fast_p over the problems of `outcomes`, with the best candidate of each."""
    problems: dict[str, list[CaseOutcome]] = {}
    for one in outcomes:
        problems.setdefault(one.problem, []).append(one)
    points = []
    for p in FAST_P_THRESHOLDS:
        levels = [max((_confidence_level(one, baseline, p) for one in cases), default=0) for cases in problems.values()]
        sure, likely, possible = (sum(level >= minimum for level in levels) for minimum in (3, 2, 1))
        points.append(FastP(p=p, count_low=sure, count=likely, count_high=possible))
    return FastPCurve(baseline=baseline, num_problems=len(problems), points=tuple(points))


def _confidence_level(one: CaseOutcome, baseline: str, p: float) -> int:
    """3 if the speedup is certainly above p, 2 if likely, 1 if possibly, else 0."""
    if not one.accepted or not p:
        return 3 * one.accepted
    comparison = one.comparison_with(baseline)
    if comparison is None:
        return 0
    threshold = max(p, 1 + EQUIVALENCE_MARGIN) if p >= 1 else p
    return 3 if comparison.low > threshold else 2 if comparison.speedup > p else 1 if comparison.high > p else 0
