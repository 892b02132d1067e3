"""What `kw suite run` answers: every candidate for a folder of problems, whether it is right, and how fast."""

from __future__ import annotations

from kernelwright.core.records import (
    EQUIVALENCE_MARGIN,
    Comparison,
    Device,
    Machine,
    Reason,
    Record,
    VariantTiming,
    Verdict,
)
from kernelwright.core.throughput import Throughput


class Case(Record, frozen=True, kw_only=True):
    """A candidate before a problem; both are named by where they lie in their folders."""

    problem: str
    candidate: str


class CaseVerdict(Case, frozen=True, kw_only=True, tag="judged"):
    """One line of a run's results: the verdict, or, where nobody could judge, the `error`.

    `key` stands for all that the verdict hangs on: both files and how it was asked for.
    """

    key: str
    verdict: Verdict | None = None
    error: Reason | None = None


class CaseTiming(Case, frozen=True, kw_only=True, tag="timed"):
    """Another line: what an accepted candidate was timed beside; why it was rejected after all, where it was
    `rejection` in a call that was timed; or, where nobody could time it, the `error`."""

    key: str
    rejection: Reason | None = None
    variants: tuple[VariantTiming, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    error: Reason | None = None


ResultLine = CaseVerdict | CaseTiming


class CaseOutcome(Case, frozen=True, kw_only=True):
    """What became of a case: of its two lines what there is."""

    verdict: Verdict | None = None
    variants: tuple[VariantTiming, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    error: Reason | None = None

    @property
    def accepted(self) -> bool:
        return self.verdict is not None and self.verdict.accepted

    @property
    def status_text(self) -> str:
        """`accepted`, the code that rejected it, or the error that kept everybody from a verdict."""
        if self.verdict is None:
            return f"error: {self.error.code}" if self.error else "-"
        return self.verdict.reason.code if self.verdict.reason else "accepted"

    def comparison_with(self, baseline: str) -> Comparison | None:
        return next((one for one in self.comparisons if one.baseline == baseline), None)


class FastP(Record, frozen=True, kw_only=True):
    """So many problems have a candidate that is right and more than `p` times as fast as the baseline.

    `count_low` counts those whose whole interval lies beyond, and from 1 on beyond the margin under which no difference
    is a win; `count` those whose ratio does; `count_high` those of whose interval a part does. At 0 right is enough.
    """

    p: float
    count_low: int
    count: int
    count_high: int


class FastPCurve(Record, frozen=True, kw_only=True):
    """fast_p over `num_problems` problems against one baseline."""

    baseline: str
    num_problems: int
    points: tuple[FastP, ...]


class SuiteRun(Record, frozen=True, kw_only=True):
    """Every case of a suite.

    `problems_without_candidate` names problems without a candidate, `candidates_without_problem` candidates without a
    problem, and `unreadable_files` files that are no problem; `reused_results` counts lines that an earlier run of the
    same left in `results_file`, and `throughput` is that of the verdicts made now.
    """

    suite: str
    device: Device
    machine: Machine
    baselines: tuple[str, ...]
    outcomes: tuple[CaseOutcome, ...]
    curves: tuple[FastPCurve, ...]
    results_file: str
    problems_without_candidate: tuple[str, ...] = ()
    candidates_without_problem: tuple[str, ...] = ()
    unreadable_files: tuple[str, ...] = ()
    reused_results: int = 0
    throughput: Throughput | None = None
    time_s: float = 0.0

    @property
    def num_problems(self) -> int:
        return len({one.problem for one in self.outcomes})


FAST_P_THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)


def compute_fast_p_curve(outcomes: tuple[CaseOutcome, ...], baseline: str) -> FastPCurve:
    """fast_p over the problems of some outcomes: of each its best candidate counts."""
    problems: dict[str, list[CaseOutcome]] = {}
    for one in outcomes:
        problems.setdefault(one.problem, []).append(one)
    points = []
    for p in FAST_P_THRESHOLDS:
        levels = [max((_confidence_level(one, baseline, p) for one in some), default=0) for some in problems.values()]
        sure, likely, possible = (sum(level >= least for level in levels) for least in (3, 2, 1))
        points.append(FastP(p=p, count_low=sure, count=likely, count_high=possible))
    return FastPCurve(baseline=baseline, num_problems=len(problems), points=tuple(points))


def _confidence_level(one: CaseOutcome, baseline: str, p: float) -> int:
    """3 where it is surely more than p times as fast, 2 where likely, 1 where possibly, else 0."""
    if not one.accepted or not p:
        return 3 * one.accepted
    found = one.comparison_with(baseline)
    if found is None:
        return 0
    least = max(p, 1 + EQUIVALENCE_MARGIN) if p >= 1 else p
    return 3 if found.low > least else 2 if found.speedup > p else 1 if found.high > p else 0
