"""Records shared by several verbs: immutable, typed, with the unit in each name, the same in Python and in JSON.

A number that was not measured is None, never 0. Times are microseconds.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from kernelwright.core import renderers

Device = Literal["cpu", "cuda", "emulated"]
Regime = Literal["compute-bound", "memory-bound", "overhead-bound", "latency-bound", "undetermined"]
ComparisonVerdict = Literal["FASTER", "SAME", "SLOWER", "UNCLEAR"]
Provenance = Literal["measured", "datasheet"]
REJECTIONS = (
    "compile-error",
    "runtime-error",
    "timeout",
    "out-of-memory",
    "crash",
    "wrong-shape",
    "wrong-dtype",
    "wrong-device",
    "wrong-structure",
    "wrong-parameters",
    "not-finite",
    "inaccurate",
    "input-mutated",
    "nondeterministic",
    "late-work",
    "stale-output",
    "false-time",
    "forged-answer",
    "not-own-kernels",
)
"""Every value of `Reason.code`; `docs/verdicts.md` describes each."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all records. `print` and notebooks render a record if `report` has been imported."""

    def __str__(self) -> str:
        return renderers.render_record("text", self) or repr(self)

    def _repr_html_(self) -> str | None:
        return renderers.render_record("html", self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def require(condition: bool, message: str) -> None:
    """Refuse a record in an impossible state.

    Raises:
        ValueError: `condition` is false; decoding a document then raises a ValidationError.
    """
    if not condition:
        raise ValueError(message)


# ---- Machine


class MemoryLevel(Record, frozen=True, kw_only=True):
    """One level of the memory hierarchy; bandwidths count the bytes that the program reads and writes."""

    name: str
    capacity_bytes: int | None = None
    read_gb_s: float | None = None
    write_gb_s: float | None = None
    copy_gb_s: float | None = None
    triad_gb_s: float | None = None


class Spec(Record, frozen=True, kw_only=True):
    """A datasheet: dense peaks only, as published by the vendor."""

    name: str
    title: str
    device: Device
    dram_gb_s: float
    dram_bytes: int
    cache_bytes: int | None
    multiprocessors: int | None
    matrix_tflop_s: dict[str, float]
    vector_tflop_s: dict[str, float]
    source: str


class Machine(Record, frozen=True, kw_only=True):
    """A device with its ceilings.

    `levels` is ordered from the nearest cache to main memory. `matrix_tflop_s` is the rate of a large matrix product
    per dtype, `vector_tflop_s` that of multiply-adds outside matrix products. `special_tflop_s` is the rate of
    `torch.exp` at 8 FLOPs per element: it can be a bottleneck but sets no floor, since faster code exists. `spec` is
    the datasheet, if known.
    """

    name: str
    device: Device
    provenance: Provenance
    levels: tuple[MemoryLevel, ...]
    matrix_tflop_s: dict[str, float]
    vector_tflop_s: dict[str, float] = {}
    special_tflop_s: dict[str, float] = {}
    threads: int | None = None
    multiprocessors: int | None = None
    dispatch_us: float | None = None
    launch_us: float | None = None
    graph_launch_us: float | None = None
    page_fault_us_per_mib: float | None = None
    spec: Spec | None = None
    software: dict[str, str] = {}
    notes: tuple[str, ...] = ()


# ---- Work


class Work(Record, frozen=True, kw_only=True):
    """FLOPs per unit (`matrix/float32`, `vector/float32`, `special/float32`) and bytes to move."""

    flops: dict[str, int] = {}
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def total_flops(self) -> int:
        return sum(self.flops.values())

    @property
    def total_bytes(self) -> int:
        return self.bytes_read + self.bytes_written

    def __add__(self, other: Work) -> Work:
        flops = dict(self.flops)
        for unit, count in other.flops.items():
            flops[unit] = flops.get(unit, 0) + count
        return Work(
            flops=flops,
            bytes_read=self.bytes_read + other.bytes_read,
            bytes_written=self.bytes_written + other.bytes_written,
        )


OperatorKind = Literal[
    "pointwise", "reduction", "scan", "matrix", "convolution", "attention", "gather", "copy", "random", "view", "other"
]  # fmt: skip


class Operator(Record, frozen=True, kw_only=True):
    """One operator call of a program.

    `reads` and `writes` are the indices of the storages it accesses, which identify values across calls;
    `flops_known` is False without a registered FLOP formula; `module` is the path of the calling nn.Module, or empty.
    A span is (storage index, first byte, end, bytes accessed in between); the spans of a call do not overlap.
    """

    index: int
    name: str
    kind: OperatorKind
    flops_known: bool
    work: Work
    shapes: str
    module: str = ""
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    read_spans: tuple[tuple[int, int, int, int], ...] = ()
    write_spans: tuple[tuple[int, int, int, int], ...] = ()
    allocated_bytes: int = 0


class ProgramWork(Record, frozen=True, kw_only=True):
    """The work of one run of a program: per operator as written, and as one ideal fused pass.

    `coverage` is the fraction of calls (weighted by bytes moved) with known FLOPs. `inputs` lists the storages that
    existed before the run, `arguments` those of them passed as arguments, `outputs` those whose contents are results:
    returned, stored in the module or written in place.
    """

    operators: tuple[Operator, ...]
    as_written: Work
    fused: Work
    coverage: float
    output_bytes: int
    inputs: tuple[int, ...] = ()
    arguments: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()


class Floor(Record, frozen=True, kw_only=True):
    """The least time for some work on a machine, and its limiter (`DRAM`, `matrix/float32`)."""

    time_us: float
    limiter: str
    memory_us: float
    compute_us: float
    provenance: Provenance


# ---- Timing


class Conditions(Record, frozen=True, kw_only=True):
    """Conditions of a measurement; the clock `external` is that of a process other than the one that runs the code."""

    device: Device
    clock: Literal["host", "events", "graph", "external"]
    cache: Literal["cold", "warm"]
    allocation: str
    threads: int | None
    processes: int = 1


class Timing(Record, frozen=True, kw_only=True):
    """Samples of one variant. `low_us` and `high_us` bound the median at 95 %.

    `disturbed` counts samples during which another process used the processor or the clock was throttled. They are in
    `samples_us` but excluded from the median, unless too few would remain.
    """

    name: str
    time_us: float
    low_us: float
    high_us: float
    samples_us: tuple[float, ...]
    repetitions: int
    conditions: Conditions
    disturbed: int = 0
    page_faults_per_call: float | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(self.low_us <= self.time_us <= self.high_us, f"{self.name}: the median is outside its interval")
        require(self.repetitions >= 1, f"{self.name}: {self.repetitions} repetitions")


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


# ---- Verdict


class Reason(Record, frozen=True, kw_only=True):
    """Why a candidate was rejected: `code` is one of `REJECTIONS`."""

    code: str
    detail: str

    def __post_init__(self) -> None:
        require(self.code in REJECTIONS, f"no rejection code {self.code!r}")


class Accuracy(Record, frozen=True, kw_only=True):
    """The error of the worst input set.

    `error_over_reference` is the candidate's error over the reference's, both against the golden value. An
    `error_over_limit` above 1 is a rejection.
    """

    policy: str
    error: float
    reference_error: float
    limit: float
    error_over_reference: float
    error_over_limit: float
    metric: str
    distribution: str
    output: str
    index: tuple[int, ...]
    got: str
    expected: str


class NearLimit(Record, frozen=True, kw_only=True):
    """Accuracy so close to its limit that `input_sets` input sets of one distribution were run to decide.

    `sets_over_limit` counts sets above the limit. `rms_over_limit` and `max_over_limit` are the root mean square and
    the maximum, over the sets, of the largest error over its limit. Rejected if `rms_over_limit` is above 1 or at
    least half of the sets are above the limit.
    """

    distribution: str
    input_sets: int
    sets_over_limit: int
    rms_over_limit: float
    max_over_limit: float


class Verdict(Record, frozen=True, kw_only=True):
    """Accepted, or rejected with one `reason`, and the evidence.

    `input_sets` counts the input sets that were run, `held_out_sets` those of other shapes that the problem declares;
    `golden` names the method of the expected result; `sandbox` lists the active protections; `call_us` is the median
    time of a call by the judge's own clock, if measured; `own_kernel_share` is the fraction of the work that ran in
    the candidate's own code, if requested and observable; `problem_warnings` are sentences on why the problem is a
    weak test; `near_limit` is set if the accuracy was close to its limit; `seed` reproduces inputs, parameters and
    order.
    """

    accepted: bool
    reason: Reason | None
    problem: str
    candidate: str
    device: Device
    input_sets: int
    golden: str
    held_out_sets: int = 0
    accuracy: Accuracy | None = None
    sandbox: tuple[str, ...] = ()
    call_us: float | None = None
    own_kernel_share: float | None = None
    problem_warnings: tuple[str, ...] = ()
    near_limit: NearLimit | None = None
    seed: int | None = None
    notes: tuple[str, ...] = ()
    time_s: float = 0.0

    def __post_init__(self) -> None:
        require(self.accepted == (self.reason is None), "a verdict has a reason exactly if it is rejected")
        require(0 <= (self.own_kernel_share or 0) <= 1, f"own_kernel_share is {self.own_kernel_share}")


# ---- Benchmark


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
        rejected = {one.candidate for one in self.verdicts if not one.accepted}
        require(not rejected & {one.name for one in self.variants}, "a rejected candidate is not timed")


# ---- Diagnosis


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


class Floors(Record, frozen=True, kw_only=True):
    """Floors of a program, per operator as written and as one fused pass, and the limiter."""

    as_written_us: float
    fused_us: float
    limiter: str


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


# ---- Evidence


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
