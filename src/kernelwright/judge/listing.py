"""The library with the evidence behind each of its members; torch is not touched."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kernelwright.core.document import decode
from kernelwright.core.library import KernelRecord, Library, LibraryKernel
from kernelwright.kernels import catalog
from kernelwright.report import kernels


def library(folder: str = "evidence") -> Library:
    """All kernels, each with what its newest record says, where there is one."""
    found = catalog.library()
    return msgspec.structs.replace(found, kernels=tuple(_with_evidence(one, folder) for one in found.kernels))


def _with_evidence(kernel: LibraryKernel, folder: str) -> LibraryKernel:
    paths = Path(folder).glob(f"*/kernel/{kernel.name}.json")
    records = [decode(path.read_bytes(), KernelRecord) for path in paths]
    newest = max(records, key=lambda one: one.date, default=None)
    return kernel if newest is None else msgspec.structs.replace(kernel, evidence=kernels.sentence(newest))
