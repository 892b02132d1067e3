"""Kinds of rows that are measured in processes of their own, one or more for each workload, with empty caches.

What such a row measures depends on all code that runs, so that each change of it supersedes the rows: no code can be
built for comparison without measuring.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from kernelwright.core.backend_run import BackendRun
from kernelwright.core.cache import digest
from kernelwright.core.errors import NotFoundError, TimeLimitError
from kernelwright.core.evidence import EvidenceRow, encode_result
from kernelwright.core.kernelbench import ProblemRun
from kernelwright.core.machine import Machine
from kernelwright.core.progress import report_stage
from kernelwright.core.units import number_text
from kernelwright.evidence import instruments
from kernelwright.evidence.fresh_processes import DeviceShare, device_shares, measure_machine
from kernelwright.evidence.kinds import BuildResult, MeasureRequest
from kernelwright.evidence.programs import CODEGEN_FOLDERS
from kernelwright.evidence.rows import current_commit, current_date, read_rows
from kernelwright.evidence.source_digests import combined_digest, import_closure, normalize_python
from kernelwright.measure.clock import wall_s

Run = TypeVar("Run", bound=ProblemRun | BackendRun)


class FinishedRun(NamedTuple, Generic[Run]):
    """The result of a workload, and the seconds of its processes.

    `code` is the text of the written program; empty without one.
    """

    run: Run
    wall_s: float
    code: str = ""


class ProcessRows(ABC, Generic[Run]):
    """The rows of such a kind.

    Attributes:
        noun: what a workload is: `problem`, `model`.
        entry_module: the module whose imports are all code that is measured.
        instruments: that measure a row, without clocks. Their sources are compared by their versions.
        clocks: instruments too, by device.
    """

    name: str
    result_type: type[Any]
    noun: ClassVar[str]
    entry_module: ClassVar[str]
    instruments: ClassVar[tuple[str, ...]]
    clocks: ClassVar[Mapping[str, tuple[str, ...]]]

    @abstractmethod
    def select_files(self, request: MeasureRequest) -> dict[str, Path]:
        """The file of each requested workload, by name in order.

        Raises:
            NotFoundError: no such workload.
        """

    @abstractmethod
    def run(
        self, files: Mapping[str, Path], machine: Machine, shares: list[DeviceShare], end_s: float
    ) -> Iterator[FinishedRun[Run]]:
        """Yield the result of each workload that ends before `end_s`, a time of `wall_s`."""

    def code_digest(self, device: str) -> str:
        """Digest of all code that a row measures; the first call takes seconds."""
        return _code_digest(self.entry_module, self.instruments, device)

    def sources_digest(self, row: EvidenceRow, root: Path) -> str:
        """Digest of all sources that can change the code of a row."""
        return self.code_digest(row.device)

    def build(self, rows: Sequence[EvidenceRow], root: Path) -> list[BuildResult]:
        """No code: it would need the device."""
        return [BuildResult(problem=row.problem) for row in rows]

    def measure(self, request: MeasureRequest) -> Iterator[EvidenceRow]:
        """Yield each row as soon as it is measured on this machine.

        Raises:
            NotFoundError: no such workload. DeviceError: the device is not available.
            TimeLimitError: some workloads have no row yet; the same call continues with these.
        """
        end_s, files = wall_s() + request.limit_s, self.select_files(request)
        shares = device_shares(request.device)
        self.code_digest(request.device)  # cached from here on: meanwhile no end of a process would be noticed
        report_stage("measuring the machine")
        machine = measure_machine(request.device, shares[0])
        known = {row.workload: row for row in read_rows(request.folder, self.name) if row.machine == machine.name}
        todo = {name: path for name, path in files.items() if self._needs_row(known.get(name), path, machine, request)}
        report_stage(f"{number_text(len(todo), self.noun)} of {len(files)} to measure, {len(shares)} at a time")
        num_measured = 0
        for finished in self.run(todo, machine, shares, end_s):
            num_measured += 1
            report_stage(f"{num_measured} of {len(todo)}: {_progress_text(finished)}")
            yield self._make_row(finished, files[finished.run.name], machine, request.root)
        if num_measured < len(todo):
            message = f"{number_text(len(todo) - num_measured, self.noun)} not measured within {request.limit_s:g} s"
            raise TimeLimitError(message, next="the same command continues with those that have no row")

    def _needs_row(self, row: EvidenceRow | None, path: Path, machine: Machine, request: MeasureRequest) -> bool:
        if row is None or request.fresh or instruments.changes_since(row.instruments):
            return True
        current = (_problem_digest(row.workload, path), self.code_digest(row.device), machine.software)
        return current != (row.problem, row.sources, row.environment)

    def _make_row(self, finished: FinishedRun[Any], path: Path, machine: Machine, root: Path) -> EvidenceRow:
        name = finished.run.name
        return EvidenceRow(
            kind=self.name,
            workload=name,
            machine=machine.name,
            device=machine.device,
            problem=_problem_digest(name, path),
            artifact=digest(normalize_python(finished.code)) if finished.code else "",
            sources=self.code_digest(machine.device),
            instruments=instruments.current_versions([*self.clocks[machine.device], *self.instruments]),
            environment=machine.software,
            commit=current_commit(root),
            date=current_date(),
            result=encode_result(finished.run),
        )


def choose_files(files: Mapping[str, Path], names: Sequence[str], separator: str, place: str) -> dict[str, Path]:
    """The files of the requested workloads, by their names or the part before a separator; all without names.

    Raises:
        NotFoundError: none has such a name.
    """
    named = {one: [name for name in files if one in (name, name.partition(separator)[0])] for one in names}
    if unknown := [one for one, found in named.items() if not found]:
        raise NotFoundError(f"no {unknown[0]!r} {place}", next=f"for example {next(iter(files))}")
    wanted = {name for found in named.values() for name in found} or set(files)
    return {name: path for name, path in files.items() if name in wanted}


def measured_sources(entry_module: str, instrument_names: Sequence[str], device: str) -> tuple[Path, ...]:
    """All that a module imports for a device, without the instruments, which are compared by their versions."""
    others = [folder for other, folder in CODEGEN_FOLDERS.items() if other != device]
    measuring = [one for name in instrument_names for one in instruments.INSTRUMENT_SOURCES[name] if ":" not in one]
    return import_closure(entry_module, leave_out=("report/", *others, *measuring))


@cache
def _code_digest(entry_module: str, instrument_names: tuple[str, ...], device: str) -> str:
    return combined_digest(measured_sources(entry_module, instrument_names, device))


def _problem_digest(name: str, path: Path) -> str:
    return digest(name, normalize_python(path.read_text("utf-8")))


def _progress_text(finished: FinishedRun[Any]) -> str:
    run = finished.run
    return f"{run.name} {'accepted' if run.accepted else run.reason} in {finished.wall_s:.0f} s"
