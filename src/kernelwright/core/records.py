"""The nouns as records: immutable, typed, with the unit in each name, and the same in Python and in JSON.

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
"""Every code that `Reason.code` may hold; `docs/verdicts.md` says what each means."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all records. Printing one, or showing it in a notebook, draws it wherever `report` is there."""

    def __str__(self) -> str:
        return renderers.render_record("text", self) or repr(self)

    def _repr_html_(self) -> str | None:
        return renderers.render_record("html", self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


# ---- Machine


class MemoryLevel(Record, frozen=True, kw_only=True):
    """One level of the memory system; bandwidths count the bytes that the program names, read plus written."""

    name: str
    capacity_bytes: int | None = None
    read_gb_s: float | None = None
    write_gb_s: float | None = None
    copy_gb_s: float | None = None
    triad_gb_s: float | None = None


class Spec(Record, frozen=True, kw_only=True):
    """A datasheet: dense figures only, each as the vendor prints it."""

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

    `levels` runs from the nearest cache to main memory, which is last. `matrix_tflop_s` is the rate of a large
    product per dtype, `vector_tflop_s` that of multiply-adds outside of products. `special_tflop_s` is what torch's own
    exp reaches, at 8 FLOPs each: what a program can wait on, not a floor, since better code exists. `spec` names the
    datasheet, if one is known.
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
    """What must be done: FLOPs per unit (`matrix/float32`, `vector/float32`, `special/float32`), bytes to move."""

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
    """One call of one operator as the program made it.

    `reads` and `writes` number the storages it touches, so that a reader can follow a value from one call to the
    next; `flops_known` is False when nobody registered a formula for its FLOPs; `module` is the path of the nn.Module
    that made the call, empty outside one; `allocated_bytes` is what it allocated. A span says which bytes of a storage:
    its number, the first byte, the end, and how many are touched between; no byte is in two spans of one call.
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
    """The work of one run of a program: operator by operator as written, and as one ideal fused pass.

    `coverage` is the share of the calls (by bytes moved) whose FLOPs are known. `inputs` numbers the storages that
    were there before, `arguments` those of them that the program was called with, `outputs` those whose contents
    count afterwards: returned, left behind or written in place.
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
    """The least time that a machine allows for some work, and what limits it (`DRAM`, `matrix/float32`)."""

    time_us: float
    limiter: str
    memory_us: float
    compute_us: float
    provenance: Provenance


# ---- Timing


class Conditions(Record, frozen=True, kw_only=True):
    """Under what conditions samples were taken; the clock of a process that only watched is `outside`."""

    device: Device
    clock: Literal["host", "events", "graph", "outside"]
    cache: Literal["cold", "warm"]
    allocation: str
    threads: int | None
    processes: int = 1


class Timing(Record, frozen=True, kw_only=True):
    """Samples of one arm. `external_low_us` and `external_high_us` bound the median at 95 %.

    `disturbed` counts samples during which others took the processor or the clock was held back: they are kept in
    `samples_us` and left out of the median, unless too few would be left.
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


EQUIVALENCE_MARGIN = 0.02
"""Differences below this are not worth a claim: FASTER and SLOWER need the whole interval beyond it, SAME inside it."""


class Comparison(Record, frozen=True, kw_only=True):
    """`speedup` is time of `baseline` over time of `variant`: above 1, `variant` is faster. The interval is at 99 %."""

    variant: str
    baseline: str
    verdict: ComparisonVerdict
    speedup: float
    low: float
    high: float
    pairs: int
    method: str


# ---- Verdict


class Reason(Record, frozen=True, kw_only=True):
    """Why a candidate was rejected: `code` is one of `REJECTIONS`."""

    code: str
    detail: str


class Accuracy(Record, frozen=True, kw_only=True):
    """The error of the worst input set. `error_over_reference` is the candidate's error over the reference's own,
    both against the golden; `error_over_limit` above 1 rejects."""

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
    """Accuracy so near to its limit that `input_sets` input sets of one distribution were drawn to decide: in how many
    it was `sets_over_limit`, and its largest share of the limit in each, by root mean square and in the worst. It is
    rejected where `rms_over_limit` is above 1, or where half of the sets or more are over."""

    distribution: str
    input_sets: int
    sets_over_limit: int
    rms_over_limit: float
    max_over_limit: float


class Verdict(Record, frozen=True, kw_only=True):
    """`accepted`, or rejected with one named reason and the evidence.

    `input_sets` counts the input sets that were run, `held_out_sets` those of other shapes, which the problem declares;
    `golden` names how the right answer was made; `sandbox` lists the protections that were active; `call_us` is the
    median time of a call, where the judge's own clock ran beside; `own_kernel_share` is how much of the work the
    candidate's own code did, where that was asked and can be seen; `problem_warnings` says why the problem itself
    proves little, each in a sentence; `near_limit` is what was drawn besides where the accuracy was near its limit;
    `seed` draws the same inputs, parameters and order again.
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


# ---- Benchmark


class VariantTiming(Record, frozen=True, kw_only=True):
    """One arm of a benchmark beside its floor and its hard bound; `suspicious` says why, or is None. `timing` is None
    for a prediction."""

    name: str
    time_us: float
    low_us: float
    high_us: float
    floor_us: float | None
    datasheet_bound_us: float | None
    suspicious: str | None = None
    timing: Timing | None = None


class Bench(Record, frozen=True, kw_only=True):
    """Arms timed against each other; only candidates that were accepted (or not asked about) have an arm.

    `predicted` for a machine that is not there: then nothing was timed and nothing is claimed of who is faster.
    """

    problem: str
    machine: Machine
    variants: tuple[VariantTiming, ...]
    comparisons: tuple[Comparison, ...]
    verdicts: tuple[Verdict, ...] = ()
    predicted: bool = False
    notes: tuple[str, ...] = ()


# ---- Diagnosis


class OperatorSummary(Record, frozen=True, kw_only=True):
    """One line of the operator table; `calls` operators of one name and module together."""

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
        """FLOP per byte; None when it moves nothing."""
        return self.flops / self.bytes if self.bytes else None


class ModuleSummary(Record, frozen=True, kw_only=True):
    """The calls that one nn.Module made itself, without its children's; `gain_us` is what could be saved there."""

    module: str
    calls: int
    time_us: float
    share: float
    gain_us: float
    regime: Regime


class MetricEvidence(Record, frozen=True, kw_only=True):
    """One metric with the threshold that it was held against and where it comes from."""

    metric: str
    value: str
    threshold: str
    source: str


class Recommendation(Record, frozen=True, kw_only=True):
    """What to do next. `kind` is stable (`fuse`, `graph`, `dtype`, `batch`, `layout`, `split`, `stop`)."""

    kind: str
    action: str
    predicted_us: float
    reason: str = ""
    command: str = ""
    operators: tuple[int, ...] = ()


class Floors(Record, frozen=True, kw_only=True):
    as_written_us: float
    fused_us: float
    limiter: str


class WorkSummary(Record, frozen=True, kw_only=True):
    flops: int
    bytes_as_written: int
    bytes_fused: int


class Diagnosis(Record, frozen=True, kw_only=True):
    """What a program waits on, how far it is from the floor, and what to do next.

    `outputs_read_us` is None for a predicted machine, where nothing was run. `page_fault_us` is the part of the time
    that goes to page faults, `overhead_us` the part in which the device waits for the host. `input_summary` says what
    it works on (`float32, 16.8 M elements`).
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
    """A move of a diagnosis, predicted and then made: `implemented_by` says with what."""

    kind: str
    action: str
    before_us: float
    predicted_us: float
    achieved_us: float
    implemented_by: str

    @property
    def prediction_error(self) -> float:
        """How far the prediction was off, as a share of what was achieved."""
        return abs(self.predicted_us - self.achieved_us) / self.achieved_us
