"""Rows of the adversarial corpus: the verdicts on one sample over several rounds."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import msgspec

from kernelwright.core.cache import digest
from kernelwright.core.corpus import CorpusReport, SampleCounts, SampleOutcome
from kernelwright.core.evidence import EvidenceRow, encode_result
from kernelwright.core.record import Record
from kernelwright.evidence.instruments import current_versions
from kernelwright.evidence.kinds import BuildResult, MeasureRequest
from kernelwright.evidence.rows import current_commit, current_date, read_rows
from kernelwright.evidence.source_digests import source_digest
from kernelwright.machines import machine
from kernelwright.redteam.corpus import SAMPLES_DIR, CorpusSample, check_corpus, load_samples

INSTRUMENTS = ("verification", "external clock")


class SampleResult(Record, frozen=True, kw_only=True):
    """Verdicts on one sample; `sandbox` lists the isolation mechanisms used."""

    counts: SampleCounts
    sandbox: tuple[str, ...] = ()


class SampleRows:
    """The rows of kind `redteam`."""

    name = "redteam"
    result_type = SampleResult

    def sources_digest(self, row: EvidenceRow, root: Path) -> str:
        """Digest of all sources that can change the code of a row."""
        return self.build([row], root)[0].artifact or "missing"

    def build(self, rows: Sequence[EvidenceRow], root: Path) -> list[BuildResult]:
        """Build the current code of each row."""
        samples = _samples()
        return [
            _build_sample(samples[row.workload]) if row.workload in samples else BuildResult(problem="missing")
            for row in rows
        ]

    def measure(self, request: MeasureRequest) -> Iterator[EvidenceRow]:
        """Yield each row as soon as it is measured on this machine."""
        current, samples = machine(request.device), _samples()
        known = {row.workload: row for row in read_rows(request.folder, self.name) if row.machine == current.name}
        for _ in range(request.rounds):
            report = check_corpus(device=request.device, only=request.names, workers=request.workers)
            for counts in _count_verdicts(report):
                built = _build_sample(samples[counts.name])
                row = EvidenceRow(
                    kind=self.name,
                    workload=counts.name,
                    machine=current.name,
                    device=current.device,
                    problem=built.problem,
                    artifact=built.artifact,
                    sources=built.artifact,
                    instruments=current_versions(INSTRUMENTS),
                    environment={"torch": current.software.get("torch", ""), "Python": platform.python_version()},
                    commit=current_commit(request.root),
                    date=current_date(),
                    result=encode_result(SampleResult(counts=counts, sandbox=report.sandbox)),
                )
                known[counts.name] = _merge_verdicts(known.get(counts.name), row)
                yield known[counts.name]


KIND = SampleRows()


@cache
def _samples() -> dict[str, CorpusSample]:
    return {one.name: one for one in load_samples()}


def _build_sample(sample: CorpusSample) -> BuildResult:
    problem = source_digest(SAMPLES_DIR / "problems" / f"{sample.problem}.py")
    return BuildResult(problem, digest(source_digest(sample.path), problem))


def _count_verdicts(report: CorpusReport) -> Iterable[SampleCounts]:
    by_name: dict[str, list[SampleOutcome]] = {}
    for one in report.outcomes:
        by_name.setdefault(one.name, []).append(one)
    for name, outcomes in by_name.items():
        first = outcomes[0]
        yield SampleCounts(
            name=name,
            kind=first.kind,
            description=first.description,
            problem=first.problem,
            expected=first.expected,
            verdict_counts=dict(Counter(one.got for one in outcomes)),
            slowest_s=round(max(one.time_s for one in outcomes), 2),
            wrong_verdicts=tuple(
                f"{one.got or 'accepted'} {one.detail}".strip() for one in outcomes if not one.is_correct
            ),
        )


def _merge_verdicts(before: EvidenceRow | None, row: EvidenceRow) -> EvidenceRow:
    """Add the verdicts of an earlier row if its sample and instruments are the same."""
    if before is None or (before.artifact, before.instruments) != (row.artifact, row.instruments):
        return row
    result, earlier = row.decode_result(SampleResult), before.decode_result(SampleResult).counts
    counts = msgspec.structs.replace(
        result.counts,
        verdict_counts=dict(Counter(result.counts.verdict_counts) + Counter(earlier.verdict_counts)),
        slowest_s=max(result.counts.slowest_s, earlier.slowest_s),
        wrong_verdicts=earlier.wrong_verdicts + result.counts.wrong_verdicts,
    )
    return msgspec.structs.replace(row, result=encode_result(msgspec.structs.replace(result, counts=counts)))
