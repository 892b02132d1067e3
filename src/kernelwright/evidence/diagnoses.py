"""Rows of diagnoses: the regime of an example, and the predicted and achieved times of its recommendations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelwright.core.cache import digest
from kernelwright.core.diagnosis import Diagnosis, RecommendationOutcome
from kernelwright.core.errors import NotFoundError
from kernelwright.core.evidence import EvidenceRow, encode_result
from kernelwright.core.progress import report_stage
from kernelwright.core.record import Record
from kernelwright.evidence.instruments import current_versions
from kernelwright.evidence.kinds import BuildResult, MeasureRequest
from kernelwright.evidence.rows import current_commit, current_date
from kernelwright.evidence.source_digests import source_digest

EXAMPLES = "examples"
CLOCK = {"cuda": "event clock", "cpu": "host clock"}
INSTRUMENTS = ("paired comparison", "ceilings", "work", "diagnosis", "recommendations")


class DiagnosisResult(Record, frozen=True, kw_only=True):
    """A diagnosis with the outcomes of its applied recommendations."""

    diagnosis: Diagnosis
    recommendation_outcomes: tuple[RecommendationOutcome, ...] = ()


class DiagnosisRows:
    """The rows of kind `diagnosis`."""

    name = "diagnosis"
    result_type = DiagnosisResult

    def sources_digest(self, row: EvidenceRow, root: Path) -> str:
        """Digest of all sources that can change the code of a row."""
        return (
            _build_example(row.workload, row.decode_result(DiagnosisResult).recommendation_outcomes, root).artifact
            or "missing"
        )

    def build(self, rows: Sequence[EvidenceRow], root: Path) -> list[BuildResult]:
        """Build the current code of each row."""
        return [
            _build_example(row.workload, row.decode_result(DiagnosisResult).recommendation_outcomes, root)
            for row in rows
        ]

    def measure(self, request: MeasureRequest) -> Iterator[EvidenceRow]:
        """Yield each row as soon as it is measured on this machine."""
        from kernelwright.diagnosis import why
        from kernelwright.evidence.recommendation_check import apply_recommendations
        from kernelwright.machines import machine

        paths = _select_examples(request.root, request.names)
        machine(request.device, remeasure=True)  # ceilings measured on a busy machine would affect every row
        for path in paths:
            report_stage(f"evidence for {path.stem}")
            diagnosis = why(str(path), device=request.device)
            result = DiagnosisResult(
                diagnosis=diagnosis,
                recommendation_outcomes=tuple(apply_recommendations(path, diagnosis, request.device)),
            )
            built = _build_example(path.stem, result.recommendation_outcomes, request.root)
            yield EvidenceRow(
                kind=self.name,
                workload=path.stem,
                machine=diagnosis.machine.name,
                device=diagnosis.machine.device,
                problem=built.problem,
                artifact=built.artifact,
                sources=built.artifact,
                instruments=current_versions([CLOCK[diagnosis.machine.device], *INSTRUMENTS]),
                environment=diagnosis.machine.software,
                commit=current_commit(request.root),
                date=current_date(),
                result=encode_result(result),
            )


KIND = DiagnosisRows()


def _build_example(workload: str, outcomes: Sequence[RecommendationOutcome], root: Path) -> BuildResult:
    """Digests of the example and of the candidates in its folder that implement its recommendations."""
    path = root / EXAMPLES / f"{workload}.py"
    if not path.exists():
        return BuildResult(problem="missing")
    problem = source_digest(path)
    paths = {path.with_name(one.implemented_by) for one in outcomes}
    candidates = sorted(one for one in paths if one.is_file())
    return BuildResult(problem, digest(problem, *map(source_digest, candidates)))


def _select_examples(root: Path, names: Sequence[str]) -> list[Path]:
    examples = {p.stem: p for p in sorted((root / EXAMPLES).glob("*.py")) if "def get_inputs" in p.read_text()}
    if unknown := [name for name in names if name not in examples]:
        raise NotFoundError(f"no example {unknown[0]!r}", next=f"one of {', '.join(examples)}")
    return [examples[name] for name in names or examples]
