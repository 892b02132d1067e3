"""Records of `kw suite run`: the verdict and times of every candidate for a folder of problems."""

from __future__ import annotations

from kernelwright.core.bench import EQUIVALENCE_MARGIN, Comparison, VariantTiming
from kernelwright.core.machine import Machine
from kernelwright.core.record import Record
from kernelwright.core.throughput import Throughput
from kernelwright.core.timing import Device
from kernelwright.core.verdict import Reason, Verdict


class Case(Record, frozen=True, kw_only=True):
    """A candidate for a problem, each named by its path relative to its folder."""

    problem: str
    candidate: str


class CaseVerdict(Case, frozen=True, kw_only=True, tag="judged"):
    """One line of a results file: the verdict, or the `error` if verification failed to run.

    `key` is a digest of everything that the verdict depends on: both files and the options.
    """

    key: str
    verdict: Verdict | None = None
    error: Reason | None = None


class CaseTiming(Case, frozen=True, kw_only=True, tag="timed"):
    """One line of a results file: times of an accepted candidate and its comparisons, a `rejection` found while timing,
    or the `error` if it could not be timed."""

    key: str
    rejection: Reason | None = None
    variants: tuple[VariantTiming, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    error: Reason | None = None


ResultLine = CaseVerdict | CaseTiming


class CaseOutcome(Case, frozen=True, kw_only=True):
    """Result of a case, from its `CaseVerdict` and its `CaseTiming`."""

    verdict: Verdict | None = None
    variants: tuple[VariantTiming, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    error: Reason | None = None

    @property
    def accepted(self) -> bool:
        return self.verdict is not None and self.verdict.accepted

    @property
    def status_text(self) -> str:
        """`accepted`, the rejection code, or the error that prevented a verdict."""
        if self.verdict is None:
            return f"error: {self.error.code}" if self.error else "-"
        return self.verdict.reason.code if self.verdict.reason else "accepted"

    def comparison_with(self, baseline: str) -> Comparison | None:
        return next((one for one in self.comparisons if one.baseline == baseline), None)


class FastP(Record, frozen=True, kw_only=True):
    """Number of problems with a correct candidate whose speedup over the baseline is above `p`.

    `count` compares the speedup, `count_low` the lower end of its interval and `count_high` the upper end. From p = 1
    on, `count_low` also requires the equivalence margin. At p = 0 every correct candidate counts.
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
    """All cases of a suite.

    `unreadable_files` names files in which no problem could be read; `reused_results` counts lines reused from an
    earlier run in `results_file`; `throughput` covers only the verdicts of this run.
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
