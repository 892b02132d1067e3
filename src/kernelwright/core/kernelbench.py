"""Records of `kw optimize` on KernelBench problems, and the fixed sample of 75 problems."""

from __future__ import annotations

import re

from kernelwright.core.median_times import MedianTimes

SAMPLE_STEPS = {"level1": 4, "level2": 4, "level3": 2}
"""Of each level the problems 1, 1 + step, 1 + 2 * step, ...: 25 of the 100, 100 and 50 problems."""
SAMPLE_SIZE = 75
_NAME = re.compile(r"(level\d)/(\d+)(?!\d)")


class ProblemRun(MedianTimes, frozen=True, kw_only=True):
    """One run of `kw optimize FILE` in a process of its own.

    Attributes:
        name: `level2/41_Gemm_BatchNorm_GELU_ReLU`.
        wall_s: seconds from the start of the process to its end.
        reason: code of the rejection, or of the error that ended the run; empty if the file was accepted.
        detail: first line of the reason's text.
        winner: what the written file runs: engine and options.
        num_regions: different regions, of which `num_kernels` run as kernels in the file.
        times: of the written file (`kernelwright`), `eager` and `torch.compile`; without those that did not compile in
            time.
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
    left_out: tuple[str, ...] = ()


def problem_number(name: str) -> tuple[str, int]:
    """Level and number of a problem, `("level2", 41)`; `("", 0)` if the name is not one of KernelBench's."""
    match = _NAME.match(name)
    return (match[1], int(match[2])) if match else ("", 0)


def is_in_sample(name: str) -> bool:
    """Whether a problem is one of the sample."""
    level, number = problem_number(name)
    return level in SAMPLE_STEPS and number % SAMPLE_STEPS[level] == 1
