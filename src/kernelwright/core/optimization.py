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
    time of the winner.
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


class FallbackOperator(Record, frozen=True, kw_only=True):
    """Operators that torch runs, and why."""

    operator: str
    reason: str
    count: int = 1


class AppliedRewrite(Record, frozen=True, kw_only=True):
    """A rewrite of the program that was applied in `count` places.

    `flops_saved` and `bytes_saved` compare all operators before and after it, each with its inputs and outputs in
    memory; negative where it costs some.
    """

    name: str
    count: int
    description: str
    flops_saved: int = 0
    bytes_saved: int = 0


class Optimization(Record, frozen=True, kw_only=True):
    """Result of optimising a program: the file that was written, its `verdict` and its `bench`.

    `whole_program_winner` names the torch variant that the file uses for the whole program because it is faster than
    the kernels; empty if the kernels are used. `rewrites` are those of the captured graph,
    which the variants with kernels run.
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
    whole_program_winner: str = ""
    notes: tuple[str, ...] = ()
    rewrites: tuple[AppliedRewrite, ...] = ()

    @property
    def is_unchanged(self) -> bool:
        """Whether the program runs unchanged because no variant was faster."""
        return (
            self.whole_program_winner == TORCH
            if self.whole_program_winner
            else not self.rewrites and all(region.winner == TORCH for region in self.regions)
        )


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
