"""Records of `kw suite run`: the verdict and times of every candidate for a folder of problems."""

from __future__ import annotations

from kernelwright.core.bench import Comparison, VariantTiming
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
