"""Rows of diagnoses: what an example waits on, and what its recommendations predicted and achieved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelwright.core.cache import digest
from kernelwright.core.diagnosis import Diagnosis, RecommendationOutcome
from kernelwright.core.errors import NotFoundError
from kernelwright.core.evidence import EvidenceRow, encode_result
from kernelwright.core.progress import report_stage
from kernelwright.core.record import Record
from kernelwright.evidence.digests import source_digest
from kernelwright.evidence.instruments import current_versions
from kernelwright.evidence.kinds import BuildResult, MeasureRequest
from kernelwright.evidence.rows import current_commit, current_date

EXAMPLES = "examples"
CLOCK = {"cuda": "event clock", "cpu": "host clock"}
INSTRUMENTS = ("paired comparison", "ceilings", "work", "diagnosis", "recommendations")


class DiagnosisResult(Record, frozen=True, kw_only=True):
    """A diagnosis, and its recommendations as they were followed."""

    diagnosis: Diagnosis
    recommendation_outcomes: tuple[RecommendationOutcome, ...] = ()


class DiagnosisRows:
    name = "diagnosis"
    result_type = DiagnosisResult

    def sources_digest(self, row: EvidenceRow, root: Path) -> str:
        return (
            _build_example(row.workload, row.decode_result(DiagnosisResult).recommendation_outcomes, root).artifact
            or "gone"
        )

    def build(self, rows: Sequence[EvidenceRow], root: Path) -> list[BuildResult]:
        return [
            _build_example(row.workload, row.decode_result(DiagnosisResult).recommendation_outcomes, root)
            for row in rows
        ]

    def measure(self, request: MeasureRequest) -> Iterator[EvidenceRow]:
        from kernelwright.diagnosis import why
        from kernelwright.evidence.recommendation_check import apply_recommendations
        from kernelwright.machines import machine

        paths = _select_examples(request.root, request.names)
        machine(request.device, remeasure=True)  # ceilings that were measured on a busy machine would be in every row
        for path in paths:
            report_stage(f"evidence for {path.stem}")
            found = why(str(path), device=request.device)
            result = DiagnosisResult(
                diagnosis=found, recommendation_outcomes=tuple(apply_recommendations(path, found, request.device))
            )
            built = _build_example(path.stem, result.recommendation_outcomes, request.root)
            yield EvidenceRow(
                kind=self.name,
                workload=path.stem,
                machine=found.machine.name,
                device=found.machine.device,
                problem=built.problem,
                artifact=built.artifact,
                sources=built.artifact,
                instruments=current_versions([CLOCK[found.machine.device], *INSTRUMENTS]),
                environment=found.machine.software,
                commit=current_commit(request.root),
                date=current_date(),
                result=encode_result(result),
            )


KIND = DiagnosisRows()


def _build_example(workload: str, moves: Sequence[RecommendationOutcome], root: Path) -> BuildResult:
    """The example, and the candidates beside it that a recommendation was followed with."""
    path = root / EXAMPLES / f"{workload}.py"
    if not path.exists():
        return BuildResult(problem="gone")
    problem = source_digest(path)
    made = sorted({path.with_name(one.implemented_by) for one in moves if path.with_name(one.implemented_by).is_file()})
    return BuildResult(problem, digest(problem, *map(source_digest, made)))


def _select_examples(root: Path, names: Sequence[str]) -> list[Path]:
    there = {p.stem: p for p in sorted((root / EXAMPLES).glob("*.py")) if "def get_inputs" in p.read_text()}
    if unknown := [name for name in names if name not in there]:
        raise NotFoundError(f"no example {unknown[0]!r}", next=f"there are {', '.join(there)}")
    return [there[name] for name in names or there]
