"""Rows of `kw optimize` on a fixed sample of KernelBench problems: seconds, verdict and times of each problem's file.

The problems are not part of this repository: a row holds their names and digests, never their code. What a file runs,
and how long it takes to write it, depends on all of the compiler, so that each of its changes supersedes the rows: no
code can be built for comparison without the problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from kernelwright.core.cache import digest
from kernelwright.core.errors import NotFoundError, TimeLimitError, UsageError
from kernelwright.core.evidence import EvidenceRow, encode_result
from kernelwright.core.kernelbench import SAMPLE_STEPS, ProblemRun, is_in_sample, problem_number
from kernelwright.core.machine import Machine
from kernelwright.core.progress import report_stage
from kernelwright.core.units import number_text
from kernelwright.evidence import instruments
from kernelwright.evidence.kernelbench_runs import FinishedProblem, device_shares, measure_machine, run_problems
from kernelwright.evidence.kinds import BuildResult, MeasureRequest
from kernelwright.evidence.program_runs import CLOCKS
from kernelwright.evidence.programs import CODEGEN_FOLDERS
from kernelwright.evidence.rows import current_commit, current_date, read_rows
from kernelwright.evidence.source_digests import combined_digest, import_closure, normalize_python
from kernelwright.measure.clock import wall_s

VERB = "kernelwright.commands.optimization"
"""The module whose imports are all code that `kw optimize` runs."""
INSTRUMENTS = ("process time", "paired comparison", "work", "ceilings", "diagnosis", "verification")


class KernelbenchRows:
    """The rows of kind `kernelbench`."""

    name = "kernelbench"
    result_type = ProblemRun

    def sources_digest(self, row: EvidenceRow, root: Path) -> str:
        """Digest of all sources that can change the code of a row, without those of its instruments."""
        return _optimizer_digest(row.device)

    def build(self, rows: Sequence[EvidenceRow], root: Path) -> list[BuildResult]:
        """No code: it would need the problem and the device."""
        return [BuildResult(problem=row.problem) for row in rows]

    def measure(self, request: MeasureRequest) -> Iterator[EvidenceRow]:
        """Yield each row as soon as it is measured on this machine.

        Raises:
            UsageError: no folder of problems. NotFoundError: no problem of the sample in it, or none with such a name.
            TimeLimitError: some problems have no row yet; the same call continues with these.
        """
        end_s, files = wall_s() + request.limit_s, _select_problems(request)
        shares = device_shares(request.device)
        _optimizer_digest(request.device)  # cached from here on: it takes seconds, in which no end would be noticed
        report_stage("measuring the machine")
        machine = measure_machine(request.device, shares[0])
        known = {row.workload: row for row in read_rows(request.folder, self.name) if row.machine == machine.name}
        todo = {name: path for name, path in files.items() if _needs_row(known.get(name), path, machine, request)}
        report_stage(f"{number_text(len(todo), 'problem')} of {len(files)} to measure, {len(shares)} at a time")
        num_measured = 0
        for finished in run_problems(todo, request.device, shares, end_s):
            num_measured += 1
            report_stage(f"{num_measured} of {len(todo)}: {_progress_text(finished.run)}")
            yield _make_row(finished, files[finished.run.name], machine, request.root)
        if num_measured < len(todo):
            message = f"{number_text(len(todo) - num_measured, 'problem')} not measured within {request.limit_s:g} s"
            raise TimeLimitError(message, next="the same command continues with those that have no row")


KIND = KernelbenchRows()


def optimizer_sources(device: str) -> tuple[Path, ...]:
    """All that `kw optimize` runs for a device, without its instruments, which are compared by their versions."""
    others = [folder for other, folder in CODEGEN_FOLDERS.items() if other != device]
    measuring = [one for name in INSTRUMENTS for one in instruments.INSTRUMENT_SOURCES[name] if ":" not in one]
    return import_closure(VERB, leave_out=("report/", *others, *measuring))


def _select_problems(request: MeasureRequest) -> dict[str, Path]:
    """The files of the sample by name in order, or the requested ones: `level2/41_Gemm_...` or `level2/41`."""
    if not request.suite:
        raise UsageError(
            "the KernelBench problems are not in this repository",
            next="use --suite DIR, a folder with level1 to level3",
        )
    folder = Path(request.suite)
    paths = {f"{level}/{path.stem}": path for level in SAMPLE_STEPS for path in (folder / level).glob("*.py")}
    sample = {name: paths[name] for name in sorted(filter(is_in_sample, paths), key=problem_number)}
    if not sample:
        raise NotFoundError(f"no problem of the sample in {folder}", next="use the folder that holds level1 to level3")
    named = {one: [name for name in sample if one in (name, name.partition("_")[0])] for one in request.names}
    if unknown := [one for one, names in named.items() if not names]:
        raise NotFoundError(
            f"no problem {unknown[0]!r} in the sample: 1, 5, 9, ... of level1 and level2, 1, 3, 5, ... of level3",
            next=f"for example {next(iter(sample))}",
        )
    wanted = {name for names in named.values() for name in names} or set(sample)
    return {name: path for name, path in sample.items() if name in wanted}


def _needs_row(row: EvidenceRow | None, path: Path, machine: Machine, request: MeasureRequest) -> bool:
    if row is None or request.fresh or instruments.changes_since(row.instruments):
        return True
    current = (_problem_digest(row.workload, path), _optimizer_digest(row.device), machine.software)
    return current != (row.problem, row.sources, row.environment)


def _make_row(finished: FinishedProblem, path: Path, machine: Machine, root: Path) -> EvidenceRow:
    name = finished.run.name
    return EvidenceRow(
        kind=KernelbenchRows.name,
        workload=name,
        machine=machine.name,
        device=machine.device,
        problem=_problem_digest(name, path),
        artifact=digest(normalize_python(finished.source)) if finished.run.accepted else "",
        sources=_optimizer_digest(machine.device),
        instruments=instruments.current_versions([*CLOCKS[machine.device], *INSTRUMENTS]),
        environment=machine.software,
        commit=current_commit(root),
        date=current_date(),
        result=encode_result(finished.run),
    )


def _problem_digest(name: str, path: Path) -> str:
    return digest(name, normalize_python(path.read_text("utf-8")))


def _progress_text(run: ProblemRun) -> str:
    return f"{run.name} {'accepted' if run.accepted else run.reason} in {run.wall_s:.0f} s"


@cache
def _optimizer_digest(device: str) -> str:
    return combined_digest(optimizer_sources(device))
