"""The records of an optimised program: its regions, what was tried for each, and what came of it."""

from __future__ import annotations

import msgspec

from kernelwright.core.records import Bench, Diagnosis, Machine, Record, Verdict

TORCH, TORCH_COMPILE = "torch", "torch.compile"
"""Winners that are no kernel: torch's own operators, and what torch.compile makes of them."""
WHOLE_PROGRAM_PREFIX = "whole: "
"""Before the winner of a whole program, among those of its regions."""
ConfigValues = dict[str, str | int | float | bool]


class Attempt(Record, frozen=True, kw_only=True):
    """One way to compute a region: a generator's with its choices, or torch's own (no choices).

    `outputs_read_us` is None for what was not timed; `accepted` is None for what nobody asked about. `device_time_us`
    is what a kernel shorter than its launch takes the device, in a CUDA graph of many.
    """

    name: str
    config: ConfigValues = msgspec.field(default_factory=dict)
    time_us: float | None = None
    device_time_us: float | None = None
    accepted: bool | None = None
    reason: str = ""


class RegionOutcome(Record, frozen=True, kw_only=True):
    """A region before, predicted and after, with everything that was tried. `text` is the region as people read it;
    `num_occurrences` says how often it stands in the program; `after_us` is that of the winner."""

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
    """Operators that stay with torch, and why."""

    operator: str
    reason: str
    count: int = 1


class Optimization(Record, frozen=True, kw_only=True):
    """What became of a program: the file that was written, proved by `verdict` and timed by `bench`.

    `whole_program_winner` names the way of torch's that the file takes for all of the program, because it is faster
    than its kernels; empty where these run.
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

    @property
    def is_unchanged(self) -> bool:
        """Whether the program runs as it was: nothing was faster."""
        return (
            self.whole_program_winner == TORCH
            if self.whole_program_winner
            else all(region.winner == TORCH for region in self.regions)
        )


class ProgramSuiteRow(Record, frozen=True, kw_only=True):
    """One program of a suite, timed in one process beside eager, torch.compile and a copy of its compulsory bytes.

    `times_us` holds the median of every arm by its name; it is empty where the program could not be optimised. A
    program that runs as it was is eager's own, and both names have its one time.
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
        """How many times faster than another arm."""
        return self.times_us[other] / self.times_us["kernelwright"]
