"""Runs `kw optimize FILE` on many files as a user would: one process per GPU, each with empty caches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from kernelwright.core.document import decode
from kernelwright.core.errors import KernelwrightError
from kernelwright.core.kernelbench import ProblemRun
from kernelwright.core.median_times import OURS, MedianTime
from kernelwright.core.optimization import DEFAULT_BUDGET_S, Optimization
from kernelwright.evidence import fresh_processes
from kernelwright.evidence.command_process import CommandProcess
from kernelwright.evidence.fresh_processes import DeviceShare, failure_of, first_line
from kernelwright.evidence.process_rows import FinishedRun

PROBLEM_LIMIT_S = 180.0
"""Seconds after which `kw optimize` is killed: three times its budget, and beyond the longest time that is a target."""
CANDIDATE = "candidate"
"""Name of the written file in its benchmark."""


def run_problems(
    files: Mapping[str, Path], device: str, shares: list[DeviceShare], end_s: float
) -> Iterator[FinishedRun[ProblemRun]]:
    """Optimise each file, and yield each result, with the text of the written file, as soon as it is known.

    Problems that are running at `end_s`, a time of `wall_s`, are killed and have no result; none starts with less time
    left than its budget.
    """
    budget_s = DEFAULT_BUDGET_S[device]

    def make_command(job: tuple[str, Path], folder: Path) -> tuple[str, ...]:
        command = (*fresh_processes.KW, "optimize", str(job[1].resolve()), "--out", str(folder / "optimized.py"))
        return *command, "--device", device, "--budget", f"{budget_s:g}", "--json"

    for (name, _), process in fresh_processes.run_jobs(
        files.items(), make_command, shares, end_s, min_left_s=budget_s, limit_s=PROBLEM_LIMIT_S
    ):
        yield _finish(name, process)


def _finish(name: str, process: CommandProcess) -> FinishedRun[ProblemRun]:
    found = None
    with suppress(KernelwrightError):
        found = decode(process.output, Optimization)
    spent_s = round(process.wall_s, 2)
    if found is None or process.timed_out:
        code, detail = failure_of(process, PROBLEM_LIMIT_S)
        return FinishedRun(ProblemRun(name=name, wall_s=spent_s, accepted=False, reason=code, detail=detail), spent_s)
    reason = found.verdict.reason if found.verdict else None
    run = ProblemRun(
        name=name,
        wall_s=spent_s,
        accepted=found.verdict is not None and found.verdict.accepted,
        reason=reason.code if reason else "",
        detail=first_line(reason.detail) if reason else "",
        winner=found.variant,
        num_regions=len(found.regions),
        num_kernels=found.num_kernels,
        times={
            OURS if one.name == CANDIDATE else one.name: MedianTime(
                time_us=one.time_us, low_us=one.low_us, high_us=one.high_us
            )
            for one in (found.bench.variants if found.bench else ())
        },
        left_out=found.budget.left_out if found.budget else (),
    )
    return FinishedRun(run, spent_s, found.source if run.accepted else "")
