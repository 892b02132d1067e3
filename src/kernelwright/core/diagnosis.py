"""Diagnoses: regime, floors, operators and recommendations."""

from __future__ import annotations

from typing import Literal

from kernelwright.core.machine import Machine, Provenance
from kernelwright.core.record import Record
from kernelwright.core.timing import Timing
from kernelwright.core.work import OperatorKind

Regime = Literal["compute-bound", "memory-bound", "overhead-bound", "latency-bound", "undetermined"]


class Floor(Record, frozen=True, kw_only=True):
    """The least time for some work on a machine, and its limiter (`DRAM`, `matrix/float32`)."""

    time_us: float
    limiter: str
    memory_us: float
    compute_us: float
    provenance: Provenance


class Floors(Record, frozen=True, kw_only=True):
    """Floors of a program, per operator as written and as one fused pass, and the limiter."""

    as_written_us: float
    fused_us: float
    limiter: str


class OperatorSummary(Record, frozen=True, kw_only=True):
    """One line of the operator table: `calls` operators of one name and module."""

    name: str
    module: str
    calls: int
    time_us: float
    share: float
    floor_us: float
    regime: Regime
    bytes: int
    flops: int
    gain_us: float
    kind: OperatorKind

    @property
    def intensity(self) -> float | None:
        """FLOP per byte; None without bytes."""
        return self.flops / self.bytes if self.bytes else None


class ModuleSummary(Record, frozen=True, kw_only=True):
    """The calls of one nn.Module, without those of its children; `gain_us` is the possible saving."""

    module: str
    calls: int
    time_us: float
    share: float
    gain_us: float
    regime: Regime


class MetricEvidence(Record, frozen=True, kw_only=True):
    """One metric with its threshold and its source."""

    metric: str
    value: str
    threshold: str
    source: str


class Recommendation(Record, frozen=True, kw_only=True):
    """A recommendation. `kind` is stable: `fuse`, `graph`, `dtype`, `batch`, `layout`, `split`, `stop`."""

    kind: str
    action: str
    predicted_us: float
    reason: str = ""
    command: str = ""
    operators: tuple[int, ...] = ()


class WorkSummary(Record, frozen=True, kw_only=True):
    """Total FLOPs and bytes of a program."""

    flops: int
    bytes_as_written: int
    bytes_fused: int


class Diagnosis(Record, frozen=True, kw_only=True):
    """The bottleneck of a program, its distance from the floor, and recommendations.

    `time_us` is None for a predicted machine, where nothing was run. `page_fault_us` is the time spent in page faults,
    `overhead_us` the time in which the device waits for the host. `input_summary` describes the inputs
    (`float32, 16.8 M elements`).
    """

    problem: str
    program: str
    regime: Regime
    summary: str
    coverage: float
    time_us: float | None
    floors: Floors
    work: WorkSummary
    operators: tuple[OperatorSummary, ...]
    recommendations: tuple[Recommendation, ...]
    evidence: tuple[MetricEvidence, ...]
    machine: Machine
    predicted: bool = False
    page_fault_us: float | None = None
    overhead_us: float | None = None
    input_summary: str = ""
    timing: Timing | None = None
    modules: tuple[ModuleSummary, ...] = ()
    notes: tuple[str, ...] = ()


class RecommendationOutcome(Record, frozen=True, kw_only=True):
    """A recommendation of a diagnosis, predicted and then applied by means of `implemented_by`."""

    kind: str
    action: str
    before_us: float
    predicted_us: float
    achieved_us: float
    implemented_by: str

    @property
    def prediction_error(self) -> float:
        """Difference of prediction and result, as a fraction of the result."""
        return abs(self.predicted_us - self.achieved_us) / self.achieved_us
