"""The kinds of rows: for each where its sources are, how its code is built without a device, and how it is measured."""

from __future__ import annotations

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
}
"""The module of each kind, in this package; its `KIND` is the kind."""


class BuildResult(NamedTuple):
    """What today's code is for a row: digests of its problem and of what would run, and the compilers that made it.

    `failure` says why it cannot be built here.
    """

    problem: str = ""
    artifact: str = ""
    toolchain: str = ""
    failure: str = ""


class RowKind(Protocol):
    """One kind of rows."""

    name: str
    result_type: type[Any]
    """Of `EvidenceRow.result`."""

    def sources_digest(self, row: EvidenceRow, root: Path) -> str:
        """Digest of everything in today's sources that can change the code of a row: quick."""
        ...

    def build(self, rows: Sequence[EvidenceRow], root: Path) -> Sequence[BuildResult]:
        """Today's code of rows, one for each."""
        ...

    def measure(self, request: MeasureRequest) -> Iterator[EvidenceRow]:
        """Rows measured on this machine, each as soon as it is there."""
        ...


class MeasureRequest(NamedTuple):
    """What to measure.

    Attributes:
        names: workloads, or parts of their names; all of the kind where nothing is named.
        suite: a folder of programs in place of the repository's own.
        rounds, workers: of the corpus.
    """

    device: str
    folder: str
    names: tuple[str, ...] = ()
    suite: str = ""
    fresh: bool = False
    rounds: int = 1
    workers: int = 1

    @property
    def root(self) -> Path:
        return Path(self.folder).resolve().parent


def get_kind(name: str) -> RowKind:
    """
    Raises:
        UsageError: no such kind.
    """
    if name not in KIND_MODULES:
        raise UsageError(f"no rows of kind {name!r}", next=f"--kind {' or --kind '.join(KIND_MODULES)}")
    return import_module(f"kernelwright.evidence.{KIND_MODULES[name]}").KIND
