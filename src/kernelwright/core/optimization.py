"""Records of an optimised program: its regions, the attempts for each, and the result."""

from __future__ import annotations

import msgspec

from kernelwright.core.bench import Bench
from kernelwright.core.diagnosis import Diagnosis
from kernelwright.core.machine import Machine
from kernelwright.core.record import Record
from kernelwright.core.verdict import Verdict

TORCH, TORCH_COMPILE, OWN_KERNELS = "torch", "torch.compile", "kernels"
"""Winners: eager operators, torch.compile, and the kernels generated here."""
WHOLE_PROGRAM_PREFIX = "whole: "
"""Prefix of a winner that runs the whole program, in the list of the regions' winners."""
DEFAULT_BUDGET_S = {"cpu": 90.0, "cuda": 60.0}
"""Seconds of one optimisation, by device."""
ConfigValues = dict[str, str | int | float | bool]


class Attempt(Record, frozen=True, kw_only=True):
    """One implementation of a region: a generated kernel with its config, or torch (empty config).

    `time_us` is None if not timed, `accepted` if not verified. `device_time_us` is the time in a CUDA graph of many
    calls, for a kernel that is shorter than its launch.
    """

    name: str
    config: ConfigValues = msgspec.field(default_factory=dict)
    time_us: float | None = None
    device_time_us: float | None = None
    accepted: bool | None = None
    reason: str = ""


class RegionOutcome(Record, frozen=True, kw_only=True):
    """A region with its time before, predicted and after, and all attempts.

    `text` is the region as readable text, `num_occurrences` its number of occurrences in the program, `after_us` the
    time of the winner. `not_used` is why the written file does not run the kernel that won; empty if it does, or if
    none won.
    """

    name: str
    summary: str
    text: str
    bytes_moved: int
    floor_us: float
    limiter: str
    before_us: float
    predicted_us: float
    after_us: float
    winner: str
    winner_reason: str
    attempts: tuple[Attempt, ...] = ()
    num_occurrences: int = 1
    not_used: str = ""

    @property
    def has_kernel(self) -> bool:
        """Whether a generated kernel won: one with a config."""
        return any(attempt.config for attempt in self.attempts if attempt.name == self.winner)


class FallbackOperator(Record, frozen=True, kw_only=True):
    """Operators that torch runs, and why."""

    operator: str
    reason: str
    count: int = 1


class AppliedRewrite(Record, frozen=True, kw_only=True):
    """A rewrite of the program that was applied in `count` places; `not_used` states why the file does not contain it.

    `flops_saved` and `bytes_saved` compare all operators before and after it, each with its inputs and outputs in
    memory; negative where it costs some.
    """

    name: str
    count: int
    description: str
    flops_saved: int = 0
    bytes_saved: int = 0
    not_used: str = ""


class ModuleOutcome(Record, frozen=True, kw_only=True):
    """A module, or equal modules of a repeated stack, without the submodules that are listed themselves.

    `name` is a path such as `layers.0-11.mlp`, empty for the program's own operators. `before_us` is the time in the
    original program, `after_us` that of the operators left to torch, unchanged, and of the kernels, each timed alone;
    both are summed over `num_modules`, and None where they are not known. `share` is that of the program's time before,
    `limiter` what bounds it. `regions` names the regions with operators of the module, equal ones once; `num_regions`
    counts the occurrences that are mostly in it, `num_kernels` those of them that run as kernels. `fallbacks` stay with
    torch.
    """

    name: str
    num_modules: int = 1
    before_us: float | None = None
    after_us: float | None = None
    share: float | None = None
    limiter: str = ""
    regions: tuple[str, ...] = ()
    num_regions: int = 0
    num_kernels: int = 0
    fallbacks: tuple[FallbackOperator, ...] = ()


class StageTime(Record, frozen=True, kw_only=True):
    """The seconds that stages of one name took together."""

    name: str
    time_s: float


class BudgetUse(Record, frozen=True, kw_only=True):
    """The budget of an optimisation, the seconds that it took, on what, and what was not tried for want of time."""

    total_s: float
    spent_s: float
    left_out: tuple[str, ...] = ()
    stages: tuple[StageTime, ...] = ()


class Optimization(Record, frozen=True, kw_only=True):
    """Result of optimising a program: the file that was written, its `verdict` and its `bench`.

    `engine` is what computes in the file: `torch`, `torch.compile` or `kernels`; empty for a plan. `options` are those
    of the whole program, such as `channels-last`. `num_kernels` counts the kernels in the file; several regions may
    share one. `modules` are sorted by their time before, the longest first.
    `precision` is what the operands of FP32 products may be rounded to, empty for that of the program.
    `rewrites` are those of the captured graph, which the variants with kernels run.
    """

    problem: str
    machine: Machine
    diagnosis: Diagnosis | None
    regions: tuple[RegionOutcome, ...]
    fallbacks: tuple[FallbackOperator, ...]
    output_file: str
    source: str
    verdict: Verdict | None
    bench: Bench | None
    precision: str = ""
    engine: str = ""
    options: tuple[str, ...] = ()
    num_kernels: int = 0
    modules: tuple[ModuleOutcome, ...] = ()
    budget: BudgetUse | None = None
    notes: tuple[str, ...] = ()
    rewrites: tuple[AppliedRewrite, ...] = ()

    @property
    def variant(self) -> str:
        """Engine and options: `torch.compile, channels-last, in a CUDA graph`."""
        return ", ".join(filter(None, (self.engine, *self.options)))

    @property
    def whole_program_winner(self) -> str:
        """The torch variant that the file uses for the whole program; empty if it runs the regions' kernels."""
        return "" if self.engine == OWN_KERNELS else self.variant

    @property
    def is_unchanged(self) -> bool:
        """Whether the program runs unchanged because no variant was faster."""
        return self.variant == TORCH


class ProgramSuiteRow(Record, frozen=True, kw_only=True):
    """One program of a suite, timed in one process against eager, torch.compile and a copy of its compulsory bytes.

    `times_us` maps each variant to its median; empty if the program could not be optimised. An unchanged program is
    timed once, and that time is listed both as ours and as eager's.
    """

    name: str
    accepted: bool
    reason: str = ""
    compulsory_bytes: int = 0
    floor_us: float = 0.0
    times_us: dict[str, float] = msgspec.field(default_factory=dict)
    winners: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()

    def speedup_over(self, other: str) -> float:
        """Time of another variant over ours."""
        return self.times_us[other] / self.times_us["kernelwright"]
