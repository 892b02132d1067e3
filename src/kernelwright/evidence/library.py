"""The library of kernels with the evidence behind each of its members; torch is not touched."""

from __future__ import annotations

import msgspec

from kernelwright.core.evidence import EvidenceRow, Measured
from kernelwright.core.library import KernelRow, Library, LibraryKernel
from kernelwright.evidence.rows import FOLDER, read_rows
from kernelwright.kernels import catalog
from kernelwright.report import kernels


def library(folder: str = FOLDER) -> Library:
    """All kernels, each with what its newest rows say, where there are any."""
    rows = read_rows(folder, "kernel")
    found = catalog.library()
    return msgspec.structs.replace(found, kernels=tuple(_with_evidence(one, rows) for one in found.kernels))


def _with_evidence(kernel: LibraryKernel, rows: list[EvidenceRow]) -> LibraryKernel:
    own = [row for row in rows if row.workload.partition("/")[0] == kernel.name]
    if not own:
        return kernel
    machine = max(own, key=lambda row: row.date).machine
    own = [row for row in own if row.machine == machine]
    return msgspec.structs.replace(kernel, evidence=kernels.sentence(_measured(kernel.name, own)))


def _measured(name: str, rows: list[EvidenceRow]) -> Measured:
    return Measured(
        name=name,
        machine=rows[0].machine,
        device="cuda",
        environment=rows[0].environment,
        results=tuple(row.as_type(KernelRow) for row in rows),
        states=tuple(row.as_state("current") for row in rows),
    )
