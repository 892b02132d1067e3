"""The kinds of rows: for each its sources, how its code is built without a device, and how it is measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kernelwright.core.errors import UsageError
from kernelwright.core.evidence import EvidenceRow

KIND_MODULES = {
    "diagnosis": "diagnoses",
    "optimize": "programs",
    "layout": "layouts",
    "ladder": "ladders",
    "kernel": "kernels",
    "redteam": "redteam",
    "kernelbench": "kernelbench",
    "backend": "backend",
}
"""The module of each kind in this package; its `KIND` implements `RowKind`."""
WITHOUT_PROBLEMS = ("kernelbench",)
"""Kinds whose problems are not in the repository: only `record` with a folder measures them."""


class BuildResult(NamedTuple):
    """The current code of a row: digests of its problem and of its code, and the compilers that built it.

    `failure` is the reason if it cannot be built on this machine.
    """

    problem: str = ""
    artifact: str = ""
    toolchain: str = ""
    failure: str = ""


class RowKind(Protocol):
    """Interface of a kind of rows."""

    name: str
    result_type: type[Any]
    """Type of `EvidenceRow.result`."""

    def sources_digest(self, row: EvidenceRow, root: Path) -> str:
        """Digest of all current sources that can change the code of a row; fast."""
        ...

    def build(self, rows: Sequence[EvidenceRow], root: Path) -> Sequence[BuildResult]:
        """The current code of each row."""
        ...

    def measure(self, request: MeasureRequest) -> Iterator[EvidenceRow]:
        """Yield each row as soon as it is measured on this machine."""
        ...


class MeasureRequest(NamedTuple):
    """A request to measure rows.

    Attributes:
        names: workloads, or parts of their names; all of the kind if empty.
        suite: a folder of programs instead of the repository's own, or of the KernelBench problems.
        fresh: measure rows again that are current.
        rounds, workers: options of the corpus.
        limit_s: seconds for all KernelBench problems or models of this call.
    """

    device: str
    folder: str
    names: tuple[str, ...] = ()
    suite: str = ""
    fresh: bool = False
    rounds: int = 1
    workers: int = 1
    limit_s: float = math.inf

    @property
    def root(self) -> Path:
        """The root of the repository."""
        return Path(self.folder).resolve().parent


def get_kind(name: str) -> RowKind:
    """The implementation of a kind of rows.

    Raises:
        UsageError: no such kind.
    """
    if name not in KIND_MODULES:
        raise UsageError(f"no rows of kind {name!r}", next=f"--kind {' or --kind '.join(KIND_MODULES)}")
    return import_module(f"kernelwright.evidence.{KIND_MODULES[name]}").KIND


def record_step(kind: str) -> str:
    """How to measure rows of a kind again whose problems are not in the repository."""
    return f"measure it with: kw evidence record --kind {kind} --suite DIR"
