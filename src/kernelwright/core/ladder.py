"""Records of a ladder run: every rung verified on many shapes and timed against the baseline library."""

from __future__ import annotations

from kernelwright.core.bench import Comparison
from kernelwright.core.evidence import RowState
from kernelwright.core.machine import Machine
from kernelwright.core.machine_code import CodeChange, MachineCode
from kernelwright.core.record import Record


class SizeTiming(Record, frozen=True, kw_only=True):
    """One rung on one size against the baseline, the two timed interleaved in one run.

    `comparison` has the rung as its variant.
    """

    size: tuple[int, ...]
    flops: int
    bytes: int
    time_us: float
    baseline_us: float
    comparison: Comparison

    @property
    def fraction_of_baseline(self) -> float:
        """The rung's speed as a fraction of the baseline's."""
        return self.comparison.speedup


class RungOutcome(Record, frozen=True, kw_only=True):
    """Result of a rung: verified on `num_shapes` shapes, or the reason of its rejection, and its times."""

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
    """Of its largest kernel, with the instructions of the hot loop only; None if not requested."""
    code_changes: tuple[CodeChange, ...] = ()
    """Differences from the previous rung."""


class LadderRun(Record, frozen=True, kw_only=True):
    """A run of a ladder in `dtype`: on this machine now, or on `machine` at `recorded_date` if that is set."""

    ladder: str
    machine: Machine
    baseline: str
    rungs: tuple[RungOutcome, ...]
    recorded_date: str = ""
    dtype: str = "float32"
    notes: tuple[str, ...] = ()


class CounterComparison(Record, frozen=True, kw_only=True):
    """One ratio from emulation and from hardware counters.

    `metric` is sectors per request of global memory, or wavefronts of shared memory over the minimum.
    """

    number: int
    name: str
    metric: str
    emulated: float
    counted: float


class RungResult(Record, frozen=True, kw_only=True):
    """Result of an evidence row: the run of one rung, and its counters."""

    run: LadderRun
    counts: tuple[CounterComparison, ...] = ()


class RecordedLadderRun(Record, frozen=True, kw_only=True):
    """A ladder on one machine, assembled from the evidence rows of its rungs; `states` has one entry per rung."""

    run: LadderRun
    counts: tuple[CounterComparison, ...]
    states: tuple[RowState, ...]

    @property
    def date(self) -> str:
        """Date of the newest rung."""
        return max(one.date for one in self.states)
