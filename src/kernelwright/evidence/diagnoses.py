"""Rows of diagnoses: what an example waits on, and what its recommendations predicted and achieved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelwright.core.cache import digest
from kernelwright.core.errors import NotFoundError
from kernelwright.core.evidence import EvidenceRow, raw
from kernelwright.core.progress import stage
from kernelwright.core.records import Diagnosis, MoveOutcome, Record
from kernelwright.evidence.digests import source_digest
from kernelwright.evidence.instruments import versions
from kernelwright.evidence.kinds import Built, Request
from kernelwright.evidence.rows import current_commit, today

EXAMPLES = "examples"
CLOCK = {"cuda": "event clock", "cpu": "host clock"}
INSTRUMENTS = ("paired comparison", "ceilings", "work", "diagnosis", "recommendations")


class DiagnosisResult(Record, frozen=True, kw_only=True):
    """A diagnosis, and its recommendations as they were followed."""

    diagnosis: Diagnosis
    moves: tuple[MoveOutcome, ...] = ()


class DiagnosisRows:
    name = "diagnosis"
    result = DiagnosisResult

    def sources(self, row: EvidenceRow, root: Path) -> str:
        return _code(row.workload, row.as_type(DiagnosisResult).moves, root).artifact or "gone"

    def build(self, rows: Sequence[EvidenceRow], root: Path) -> list[Built]:
        return [_code(row.workload, row.as_type(DiagnosisResult).moves, root) for row in rows]

    def measure(self, request: Request) -> Iterator[EvidenceRow]:
        from kernelwright.diagnosis import why
        from kernelwright.evidence.recommendation_check import make_moves
        from kernelwright.machines import machine

        paths = _examples(request.root, request.names)
        machine(request.device, remeasure=True)  # ceilings that were measured on a busy machine would be in every row
        for path in paths:
            stage(f"evidence for {path.stem}")
            found = why(str(path), device=request.device)
            result = DiagnosisResult(diagnosis=found, moves=tuple(make_moves(path, found, request.device)))
            built = _code(path.stem, result.moves, request.root)
            yield EvidenceRow(
                kind=self.name,
                workload=path.stem,
                machine=found.machine.name,
                device=found.machine.device,
                problem=built.problem,
                artifact=built.artifact,
                sources=built.artifact,
                instruments=versions([CLOCK[found.machine.device], *INSTRUMENTS]),
                environment=found.machine.software,
                commit=current_commit(request.root),
                date=today(),
                result=raw(result),
            )


KIND = DiagnosisRows()


def _code(workload: str, moves: Sequence[MoveOutcome], root: Path) -> Built:
    """The example, and the candidates beside it that a recommendation was followed with."""
    path = root / EXAMPLES / f"{workload}.py"
    if not path.exists():
        return Built(problem="gone")
    problem = source_digest(path)
    made = sorted({path.with_name(one.made_by) for one in moves if path.with_name(one.made_by).is_file()})
    return Built(problem, digest(problem, *map(source_digest, made)))


def _examples(root: Path, names: Sequence[str]) -> list[Path]:
    there = {p.stem: p for p in sorted((root / EXAMPLES).glob("*.py")) if "def get_inputs" in p.read_text()}
    if unknown := [name for name in names if name not in there]:
        raise NotFoundError(f"no example {unknown[0]!r}", next=f"there are {', '.join(there)}")
    return [there[name] for name in names or there]
