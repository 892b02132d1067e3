"""The kernel library with the evidence for each kernel; does not import torch."""

from __future__ import annotations

import msgspec

from kernelwright.core.evidence import EvidenceRow, RowGroup
from kernelwright.core.library import KernelLibrary, KernelRow, LibraryKernel
from kernelwright.evidence.rows import DEFAULT_FOLDER, read_rows
from kernelwright.kernels import catalog
from kernelwright.report import kernels


def load_library(folder: str = DEFAULT_FOLDER) -> KernelLibrary:
    """All kernels, each with a summary of its newest rows if there are any."""
    rows = read_rows(folder, "kernel")
    library = catalog.list_kernels()
    return msgspec.structs.replace(library, kernels=tuple(_add_evidence(one, rows) for one in library.kernels))


def _add_evidence(kernel: LibraryKernel, rows: list[EvidenceRow]) -> LibraryKernel:
    own = [row for row in rows if row.workload.partition("/")[0] == kernel.name]
    if not own:
        return kernel
    machine = max(own, key=lambda row: row.date).machine
    own = [row for row in own if row.machine == machine]
    return msgspec.structs.replace(kernel, evidence=kernels.kernel_summary(_row_group(kernel.name, own)))


def _row_group(name: str, rows: list[EvidenceRow]) -> RowGroup:
    return RowGroup(
        name=name,
        machine=rows[0].machine,
        device="cuda",
        environment=rows[0].environment,
        results=tuple(row.decode_result(KernelRow) for row in rows),
        states=tuple(row.to_row_state("current") for row in rows),
    )
