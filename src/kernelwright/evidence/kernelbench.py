"""Rows of `kw optimize` on a fixed sample of KernelBench problems: seconds, verdict and times of each problem's file.

The problems are not part of this repository: a row holds their names and digests, never their code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from kernelwright.core.errors import NotFoundError, UsageError
from kernelwright.core.kernelbench import SAMPLE_STEPS, ProblemRun, is_in_sample, problem_number
from kernelwright.core.machine import Machine
from kernelwright.evidence.fresh_processes import DeviceShare
from kernelwright.evidence.kernelbench_runs import run_problems
from kernelwright.evidence.kinds import MeasureRequest
from kernelwright.evidence.process_rows import FinishedRun, ProcessRows, choose_files
from kernelwright.evidence.program_runs import CLOCKS

SAMPLE = "in the sample: 1, 5, 9, ... of level1 and level2, 1, 3, 5, ... of level3"


class KernelbenchRows(ProcessRows[ProblemRun]):
    """The rows of kind `kernelbench`."""

    name = "kernelbench"
    result_type = ProblemRun
    noun = "problem"
    entry_module = "kernelwright.commands.optimization"
    instruments = ("process time", "paired comparison", "work", "ceilings", "diagnosis", "verification")
    clocks = CLOCKS

    def select_files(self, request: MeasureRequest) -> dict[str, Path]:
        """The files of the sample, or the requested ones: `level2/41_Gemm_...` or `level2/41`.

        Raises:
            UsageError: no folder of problems. NotFoundError: no problem of the sample in it, or none with such a name.
        """
        if not request.suite:
            raise UsageError(
                "the KernelBench problems are not in this repository",
                next="use --suite DIR, a folder with level1 to level3",
            )
        folder = Path(request.suite)
        paths = {f"{level}/{path.stem}": path for level in SAMPLE_STEPS for path in (folder / level).glob("*.py")}
        sample = {name: paths[name] for name in sorted(filter(is_in_sample, paths), key=problem_number)}
        if not sample:
            raise NotFoundError(
                f"no problem of the sample in {folder}", next="use the folder that holds level1 to level3"
            )
        return choose_files(sample, request.names, "_", SAMPLE)

    def run(
        self, files: Mapping[str, Path], machine: Machine, shares: list[DeviceShare], end_s: float
    ) -> Iterator[FinishedRun[ProblemRun]]:
        """Yield the result of each problem that ends before `end_s`; see `run_problems`."""
        return run_problems(files, machine.device, shares, end_s)


KIND = KernelbenchRows()
