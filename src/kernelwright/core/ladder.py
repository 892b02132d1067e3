"""The record of a climb: every rung verified on many shapes and timed beside the library that it climbs towards."""

from __future__ import annotations

from kernelwright.core.evidence import RowState
from kernelwright.core.machine_code import CodeChange, MachineCode
from kernelwright.core.records import Comparison, Machine, Record


class SizeTiming(Record, frozen=True, kw_only=True):
    """One rung on one size beside its peer, in one run with the two alternating. `comparison` says by how much `a`, the
    rung, is faster."""

    size: tuple[int, ...]
    flops: int
    bytes: int
    time_us: float
    baseline_us: float
    comparison: Comparison

    @property
    def fraction_of_baseline(self) -> float:
        """The rung's speed as a share of the peer's."""
        return self.comparison.speedup


class RungOutcome(Record, frozen=True, kw_only=True):
    """What became of a rung: right on `num_shapes` shapes or the reason why not, and its times."""

    number: int
    name: str
    title: str
    question: str
    hypothesis: str
    next: str
    accepted: bool
    num_shapes: int
    reason: str = ""
    times: tuple[SizeTiming, ...] = ()
    notes: tuple[str, ...] = ()
    machine_code: MachineCode | None = None
    """Of its largest kernel, with the instructions of the hot loop alone; None where nobody asked."""
    code_changes: tuple[CodeChange, ...] = ()
    """What of it is not as on the rung before."""


class LadderRun(Record, frozen=True, kw_only=True):
    """A ladder in `dtype` climbed here and now, or, where `recorded_date` holds a date, as it was then on `machine`."""

    ladder: str
    machine: Machine
    baseline: str
    rungs: tuple[RungOutcome, ...]
    recorded_date: str = ""
    dtype: str = "float32"
    notes: tuple[str, ...] = ()


class CounterComparison(Record, frozen=True, kw_only=True):
    """What emulation and the hardware's counters say of one ratio: sectors of a request to global memory, or passes
    over the banks of shared memory by the least that would do."""

    number: int
    name: str
    metric: str
    emulated: float
    counted: float


class RungResult(Record, frozen=True, kw_only=True):
    """What a row of evidence holds: a climb of one rung, and its counts."""

    run: LadderRun
    counts: tuple[CounterComparison, ...] = ()


class RecordedLadderRun(Record, frozen=True, kw_only=True):
    """A ladder on one machine, put together from the rows of its rungs; `states` has one for each rung."""

    run: LadderRun
    counts: tuple[CounterComparison, ...]
    states: tuple[RowState, ...]

    @property
    def date(self) -> str:
        """Of the newest rung."""
        return max(one.date for one in self.states)
