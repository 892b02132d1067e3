"""Rows of the adversarial corpus: what the judge said of one sample, in how many rounds."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import msgspec

from kernelwright.core.cache import digest
from kernelwright.core.corpus import CorpusReport, SampleCounts, SampleOutcome
from kernelwright.core.evidence import EvidenceRow, raw
from kernelwright.core.records import Record
from kernelwright.evidence.digests import source_digest
from kernelwright.evidence.instruments import versions
from kernelwright.evidence.kinds import Built, Request
from kernelwright.evidence.rows import current_commit, read_rows, today
from kernelwright.machines import machine
from kernelwright.redteam.corpus import SAMPLES, Sample, check_corpus, samples

INSTRUMENTS = ("verification", "external clock")


class SampleResult(Record, frozen=True, kw_only=True):
    """Verdicts on one sample; `sandbox` names what confined it."""

    counts: SampleCounts
    sandbox: tuple[str, ...] = ()


class SampleRows:
    name = "redteam"
    result = SampleResult

    def sources(self, row: EvidenceRow, root: Path) -> str:
        return self.build([row], root)[0].artifact or "gone"

    def build(self, rows: Sequence[EvidenceRow], root: Path) -> list[Built]:
        there = _samples()
        return [_built(there[row.workload]) if row.workload in there else Built(problem="gone") for row in rows]

    def measure(self, request: Request) -> Iterator[EvidenceRow]:
        here, there = machine(request.device), _samples()
        known = {row.workload: row for row in read_rows(request.folder, self.name) if row.machine == here.name}
        for _ in range(request.rounds):
            report = check_corpus(device=request.device, only=request.names, workers=request.workers)
            for counts in _counted(report):
                built = _built(there[counts.name])
                row = EvidenceRow(
                    kind=self.name,
                    workload=counts.name,
                    machine=here.name,
                    device=here.device,
                    problem=built.problem,
                    artifact=built.artifact,
                    sources=built.artifact,
                    instruments=versions(INSTRUMENTS),
                    environment={"torch": here.software.get("torch", ""), "Python": platform.python_version()},
                    commit=current_commit(request.root),
                    date=today(),
                    result=raw(SampleResult(counts=counts, sandbox=report.sandbox)),
                )
                known[counts.name] = _added(known.get(counts.name), row)
                yield known[counts.name]


KIND = SampleRows()


@cache
def _samples() -> dict[str, Sample]:
    return {one.name: one for one in samples()}


def _built(sample: Sample) -> Built:
    problem = source_digest(SAMPLES / "problems" / f"{sample.problem}.py")
    return Built(problem, digest(source_digest(sample.path), problem))


def _counted(report: CorpusReport) -> Iterable[SampleCounts]:
    each: dict[str, list[SampleOutcome]] = {}
    for one in report.outcomes:
        each.setdefault(one.name, []).append(one)
    for name, outcomes in each.items():
        first = outcomes[0]
        yield SampleCounts(
            name=name,
            kind=first.kind,
            what=first.what,
            problem=first.problem,
            expected=first.expected,
            got=dict(Counter(one.got for one in outcomes)),
            slowest_s=round(max(one.time_s for one in outcomes), 2),
            faults=tuple(f"{one.got or 'accepted'} {one.detail}".strip() for one in outcomes if not one.right),
        )


def _added(before: EvidenceRow | None, row: EvidenceRow) -> EvidenceRow:
    """A row with the verdicts of an earlier one on the same sample by the same judge."""
    if before is None or (before.artifact, before.instruments) != (row.artifact, row.instruments):
        return row
    one, earlier = row.as_type(SampleResult), before.as_type(SampleResult).counts
    counts = msgspec.structs.replace(
        one.counts,
        got=dict(Counter(one.counts.got) + Counter(earlier.got)),
        slowest_s=max(one.counts.slowest_s, earlier.slowest_s),
        faults=earlier.faults + one.counts.faults,
    )
    return msgspec.structs.replace(row, result=raw(msgspec.structs.replace(one, counts=counts)))
