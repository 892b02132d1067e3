"""Rows of the layout algebra: what it predicts of instructions and accesses, against what a GPU did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from kernelwright.core.cache import digest
from kernelwright.core.evidence import EvidenceRow, raw
from kernelwright.core.layout import AccessOutcome, FragmentOutcome
from kernelwright.core.records import Record
from kernelwright.evidence.digests import combined, import_closure
from kernelwright.evidence.instruments import versions
from kernelwright.evidence.kinds import Built, Request
from kernelwright.evidence.rows import current_commit, today

FRAGMENTS, ACCESSES = "fragments", "accesses"
INSTRUMENTS = {FRAGMENTS: ("layout probes",), ACCESSES: ("layout probes", "counters")}


class LayoutResult(Record, frozen=True, kw_only=True):
    """All operands of all instructions, or all accesses."""

    fragments: tuple[FragmentOutcome, ...] = ()
    accesses: tuple[AccessOutcome, ...] = ()


class LayoutRows:
    name = "layout"
    result = LayoutResult

    def sources(self, row: EvidenceRow, root: Path) -> str:
        return combined(import_closure("kernelwright.layouts", "kernelwright.layouts.atoms"))

    def build(self, rows: Sequence[EvidenceRow], root: Path) -> list[Built]:
        return [Built("layouts", _predicted(row.workload)) for row in rows]

    def measure(self, request: Request) -> Iterator[EvidenceRow]:
        from kernelwright.hwcheck.access_counters import access_outcomes
        from kernelwright.hwcheck.mma_fragments import device, outcomes

        machine, environment = device()
        results = {
            FRAGMENTS: lambda: LayoutResult(fragments=tuple(outcomes())),
            ACCESSES: lambda: LayoutResult(accesses=tuple(access_outcomes())),
        }
        for workload, result in results.items():
            if request.names and workload not in request.names:
                continue
            row = EvidenceRow(
                kind=self.name,
                workload=workload,
                machine=machine,
                device="cuda",
                problem="layouts",
                artifact=_predicted(workload),
                sources="",
                instruments=versions(INSTRUMENTS[workload]),
                environment=environment,
                commit=current_commit(request.root),
                date=today(),
                result=raw(result()),
            )
            yield msgspec.structs.replace(row, sources=self.sources(row, request.root))


KIND = LayoutRows()


def _predicted(workload: str) -> str:
    """Digest of what the algebra says of everything that is probed."""
    from kernelwright.hwcheck.access_counters import predictions
    from kernelwright.hwcheck.mma_fragments import WGMMA
    from kernelwright.layouts import COPY_ATOMS, MMA_ATOMS

    if workload == ACCESSES:
        return digest(*(f"{layout} {predicted}" for _, layout, _, predicted in predictions()))
    atoms = [*MMA_ATOMS.values(), *WGMMA, *COPY_ATOMS.values()]
    return digest(*map(repr, atoms))
