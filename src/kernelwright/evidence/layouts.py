"""Rows of the layout algebra: its predictions for instructions and accesses against measurements on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from kernelwright.core.cache import digest
from kernelwright.core.evidence import EvidenceRow, encode_result
from kernelwright.core.layout import AccessOutcome, FragmentOutcome
from kernelwright.core.record import Record
from kernelwright.evidence.instruments import current_versions
from kernelwright.evidence.kinds import BuildResult, MeasureRequest
from kernelwright.evidence.rows import current_commit, current_date
from kernelwright.evidence.source_digests import combined_digest, import_closure

FRAGMENTS, ACCESSES = "fragments", "accesses"
INSTRUMENTS = {FRAGMENTS: ("layout probes",), ACCESSES: ("layout probes", "counters")}


class LayoutResult(Record, frozen=True, kw_only=True):
    """Outcomes of all operands of all instructions, or of all accesses."""

    fragments: tuple[FragmentOutcome, ...] = ()
    accesses: tuple[AccessOutcome, ...] = ()


class LayoutRows:
    """The rows of kind `layout`."""

    name = "layout"
    result_type = LayoutResult

    def sources_digest(self, row: EvidenceRow, root: Path) -> str:
        """Digest of all sources that can change the code of a row."""
        return combined_digest(import_closure("kernelwright.layouts", "kernelwright.layouts.atoms"))

    def build(self, rows: Sequence[EvidenceRow], root: Path) -> list[BuildResult]:
        """Build the current code of each row."""
        return [BuildResult("layouts", _predictions_digest(row.workload)) for row in rows]

    def measure(self, request: MeasureRequest) -> Iterator[EvidenceRow]:
        """Yield each row as soon as it is measured on this machine."""
        from kernelwright.hwcheck.access_counters import measure_accesses
        from kernelwright.hwcheck.mma_fragments import check_fragments, describe_device

        machine, environment = describe_device()
        results = {
            FRAGMENTS: lambda: LayoutResult(fragments=tuple(check_fragments())),
            ACCESSES: lambda: LayoutResult(accesses=tuple(measure_accesses())),
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
                artifact=_predictions_digest(workload),
                sources="",
                instruments=current_versions(INSTRUMENTS[workload]),
                environment=environment,
                commit=current_commit(request.root),
                date=current_date(),
                result=encode_result(result()),
            )
            yield msgspec.structs.replace(row, sources=self.sources_digest(row, request.root))


KIND = LayoutRows()


def _predictions_digest(workload: str) -> str:
    """Digest of the predictions of the layout algebra for everything that is measured."""
    from kernelwright.hwcheck.access_counters import predict_accesses
    from kernelwright.hwcheck.mma_fragments import WGMMA_ATOMS
    from kernelwright.layouts import COPY_ATOMS, MMA_ATOMS

    if workload == ACCESSES:
        return digest(*(f"{layout} {predicted}" for _, layout, _, predicted in predict_accesses()))
    atoms = [*MMA_ATOMS.values(), *WGMMA_ATOMS, *COPY_ATOMS.values()]
    return digest(*map(repr, atoms))
