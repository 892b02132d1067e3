"""Records of `kw optimize` on KernelBench problems, and the fixed sample of 75 problems."""

from __future__ import annotations

import re

import msgspec

from kernelwright.core.record import Record

OURS, EAGER, TORCH_COMPILE = "kernelwright", "eager", "torch.compile"
SAMPLE_STEPS = {"level1": 4, "level2": 4, "level3": 2}
"""Of each level the problems 1, 1 + step, 1 + 2 * step, ...: 25 of the 100, 100 and 50 problems."""
SAMPLE_SIZE = 75
_NAME = re.compile(r"(level\d)/(\d+)(?!\d)")


class MedianTime(Record, frozen=True, kw_only=True):
    """The median time of a variant; `low_us` and `high_us` bound it at 95 %."""

    time_us: float
    low_us: float
    high_us: float


class ProblemRun(Record, frozen=True, kw_only=True):
    """One run of `kw optimize FILE` in a process of its own.

    Attributes:
        name: `level2/41_Gemm_BatchNorm_GELU_ReLU`.
        wall_s: seconds from the start of the process to its end.
        reason: code of the rejection, or of the error that ended the run; empty if the file was accepted.
        detail: first line of the reason's text.
        winner: what the written file runs: engine and options.
        num_regions: different regions, of which `num_kernels` run as kernels in the file.
        times: of the written file (`kernelwright`), `eager` and `torch.compile`, interleaved in one process; without
            the variants that failed or did not compile in time.
        left_out: what was not tried within the budget.
    """

    name: str
    wall_s: float
    accepted: bool
    reason: str = ""
    detail: str = ""
    winner: str = ""
    num_regions: int = 0
    num_kernels: int = 0
    times: dict[str, MedianTime] = msgspec.field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def speedup_over(self, *others: str) -> float | None:
        """The least time of other variants over ours; None if ours was not timed or none of them was."""
        known = [self.times[other].time_us for other in others if other in self.times]
        return min(known) / self.times[OURS].time_us if known and OURS in self.times else None


def problem_number(name: str) -> tuple[str, int]:
    """Level and number of a problem, `("level2", 41)`; `("", 0)` if the name is not one of KernelBench's."""
    match = _NAME.match(name)
    return (match[1], int(match[2])) if match else ("", 0)


def is_in_sample(name: str) -> bool:
    """Whether a problem is one of the sample."""
    level, number = problem_number(name)
    return level in SAMPLE_STEPS and number % SAMPLE_STEPS[level] == 1
