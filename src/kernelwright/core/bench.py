"""Variants timed against each other."""

from __future__ import annotations

from typing import Literal

from kernelwright.core.machine import Machine
from kernelwright.core.record import Record, require
from kernelwright.core.timing import Timing
from kernelwright.core.verdict import Verdict

ComparisonVerdict = Literal["FASTER", "SAME", "SLOWER", "UNCLEAR"]

EQUIVALENCE_MARGIN = 0.02
"""Relative difference that counts as equal: FASTER and SLOWER need the whole interval outside it, SAME inside it."""


class Comparison(Record, frozen=True, kw_only=True):
    """`speedup` is the time of `baseline` over that of `variant`; `low` to `high` is its 99 % interval."""

    variant: str
    baseline: str
    verdict: ComparisonVerdict
    speedup: float
    low: float
    high: float
    pairs: int
    method: str

    def __post_init__(self) -> None:
        require(self.low <= self.speedup <= self.high, f"{self.speedup} is outside [{self.low}, {self.high}]")


class VariantTiming(Record, frozen=True, kw_only=True):
    """One variant of a benchmark with its floor and its datasheet bound.

    `suspicious` is the reason why the time is implausible, or None. `timing` is None for a prediction.
    """

    name: str
    time_us: float
    low_us: float
    high_us: float
    floor_us: float | None
    datasheet_bound_us: float | None
    suspicious: str | None = None
    timing: Timing | None = None

    def __post_init__(self) -> None:
        require(self.low_us <= self.time_us <= self.high_us, f"{self.name}: the time is outside its interval")


class Bench(Record, frozen=True, kw_only=True):
    """Variants timed against each other; candidates only if accepted, or if verification was not requested.

    `predicted` is set for a machine that is not available: nothing was timed, and there are no comparisons.
    """

    problem: str
    machine: Machine
    variants: tuple[VariantTiming, ...]
    comparisons: tuple[Comparison, ...]
    verdicts: tuple[Verdict, ...] = ()
    predicted: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        timed = any(one.timing for one in self.variants) or bool(self.comparisons)
        require(not (self.predicted and timed), "a predicted bench has no timings and no comparisons")
