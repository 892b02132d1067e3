"""What `kw suite run` answers: every candidate for a folder of problems, whether it is right, and how fast."""

from __future__ import annotations

from kernelwright.core.records import MARGIN, Arm, Comparison, Device, Machine, Reason, Record, Verdict
from kernelwright.core.throughput import Pace


class Case(Record, frozen=True, kw_only=True):
    """A candidate before a problem; both are named by where they lie in their folders."""

    problem: str
    candidate: str


class Judged(Case, frozen=True, kw_only=True, tag="judged"):
    """One line of a run's results: the verdict, or, where nobody could judge, the `error`.

    `key` stands for all that the verdict hangs on: both files and how it was asked for.
    """

    key: str
    verdict: Verdict | None = None
    error: Reason | None = None


class Timed(Case, frozen=True, kw_only=True, tag="timed"):
    """Another line: what an accepted candidate was timed beside; why it was rejected after all, where it was `caught`
    in a call that was timed; or, where nobody could time it, the `error`."""

    key: str
    caught: Reason | None = None
    arms: tuple[Arm, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    error: Reason | None = None


Line = Judged | Timed


class Outcome(Case, frozen=True, kw_only=True):
    """What became of a case: of its two lines what there is."""

    verdict: Verdict | None = None
    arms: tuple[Arm, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    error: Reason | None = None

    @property
    def accepted(self) -> bool:
        return self.verdict is not None and self.verdict.accepted

    @property
    def standing(self) -> str:
        """`accepted`, the code that rejected it, or the error that kept everybody from a verdict."""
        if self.verdict is None:
            return f"error: {self.error.code}" if self.error else "-"
        return self.verdict.reason.code if self.verdict.reason else "accepted"

    def against(self, baseline: str) -> Comparison | None:
        return next((one for one in self.comparisons if one.b == baseline), None)


class FastP(Record, frozen=True, kw_only=True):
    """So many problems have a candidate that is right and more than `p` times as fast as the baseline.

    `sure` counts those whose whole interval lies beyond, and from 1 on beyond the margin under which no difference is
    a win; `likely` those whose ratio does; `possible` those of whose interval a part does. At 0 right is enough.
    """

    p: float
    sure: int
    likely: int
    possible: int


class Curve(Record, frozen=True, kw_only=True):
    """fast_p over `problems` problems against one baseline."""

    baseline: str
    problems: int
    points: tuple[FastP, ...]


class SuiteRun(Record, frozen=True, kw_only=True):
    """Every case of a suite.

    `idle` names problems without a candidate, `lost` candidates without a problem, and `unread` files that are no
    problem; `kept` counts lines that an earlier run of the same left in `results`, and `pace` is that of the verdicts
    made now.
    """

    suite: str
    device: Device
    machine: Machine
    baselines: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    curves: tuple[Curve, ...]
    results: str
    idle: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    kept: int = 0
    pace: Pace | None = None
    time_s: float = 0.0

    @property
    def problems(self) -> int:
        return len({one.problem for one in self.outcomes})


POINTS = (0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)


def curve(outcomes: tuple[Outcome, ...], baseline: str) -> Curve:
    """fast_p over the problems of some outcomes: of each its best candidate counts."""
    problems: dict[str, list[Outcome]] = {}
    for one in outcomes:
        problems.setdefault(one.problem, []).append(one)
    points = []
    for p in POINTS:
        levels = [max((_level(one, baseline, p) for one in some), default=0) for some in problems.values()]
        sure, likely, possible = (sum(level >= least for level in levels) for least in (3, 2, 1))
        points.append(FastP(p=p, sure=sure, likely=likely, possible=possible))
    return Curve(baseline=baseline, problems=len(problems), points=tuple(points))


def _level(one: Outcome, baseline: str, p: float) -> int:
    """3 where it is surely more than p times as fast, 2 where likely, 1 where possibly, else 0."""
    if not one.accepted or not p:
        return 3 * one.accepted
    found = one.against(baseline)
    if found is None:
        return 0
    least = max(p, 1 + MARGIN) if p >= 1 else p
    return 3 if found.low > least else 2 if found.ratio > p else 1 if found.high > p else 0
