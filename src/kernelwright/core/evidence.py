"""Records of `kw evidence`: one measured row for each workload, variant and machine, and the state of each row."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from kernelwright.core.record import Record
from kernelwright.core.timing import Device

T = TypeVar("T")
State = Literal["current", "older instrument", "superseded", "unverified"]
STATES: tuple[State, ...] = ("current", "older instrument", "superseded", "unverified")


class EvidenceRow(Record, frozen=True, kw_only=True):
    """One measurement with everything that it depends on.

    Attributes:
        kind: the kind of result, such as `kernel` or `ladder`.
        workload: the computation and its size.
        variant: the implementation; empty if the result holds several variants of one comparison.
        problem: digest of the reference, its inputs and options.
        artifact: digest of the code that ran; empty if no code of this package ran.
        toolchain: the compilers that built the artifact; empty if it is the source text.
        sources: digest of the sources of the artifact. Equal sources build an equal artifact; different ones may.
        superseded_sources: digest of sources known to build different code, so that they are not rebuilt.
        instruments: versions of the instruments that measured it, by name.
        environment: versions of the GPU driver, torch and other software.
        commit: git commit of the sources; empty outside a repository.
        result: the measured values, encoded; their type depends on `kind`.
    """

    kind: str
    workload: str
    machine: str
    device: Device
    problem: str
    artifact: str
    sources: str
    instruments: dict[str, int]
    environment: dict[str, str]
    date: str
    result: msgspec.Raw
    variant: str = ""
    toolchain: str = ""
    commit: str = ""
    superseded_sources: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.kind, self.machine, self.workload, self.variant

    def to_row_state(self, state: State, reason: str = "") -> RowState:
        return RowState(
            kind=self.kind,
            workload=self.workload,
            variant=self.variant,
            machine=self.machine,
            state=state,
            reason=reason,
            date=self.date,
            commit=self.commit,
        )

    def decode_result(self, type: type[T]) -> T:
        """Decode the result.

        Raises:
            msgspec.ValidationError: the result has another type.
        """
        return msgspec.json.decode(self.result, type=type)


class RowState(Record, frozen=True, kw_only=True):
    """Whether a row is still valid for the current code; `reason` states why it is not, or may not be."""

    kind: str
    workload: str
    variant: str
    machine: str
    state: State
    reason: str = ""
    date: str = ""
    commit: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.kind, self.machine, self.workload, self.variant


class EvidenceStatus(Record, frozen=True, kw_only=True):
    """Every row with its state; `updated` counts rows whose sources changed while the code that ran did not."""

    rows: tuple[RowState, ...]
    counts: dict[str, int]
    updated: int = 0


class EvidenceRun(Record, frozen=True, kw_only=True):
    """Result of `kw evidence record`, `refresh` or `table`: rows (by workload) or pages written, and failures."""

    written: tuple[str, ...]
    failed: tuple[str, ...] = ()


def encode_result(result: Any) -> msgspec.Raw:
    """Encode a result for `EvidenceRow.result`."""
    return msgspec.Raw(msgspec.json.encode(result))


class RowGroup(Record, frozen=True, kw_only=True):
    """Rows of one table or section: results of one name on one machine, each with its state."""

    name: str
    machine: str
    device: Device
    environment: dict[str, str]
    results: tuple[Any, ...]
    states: tuple[RowState, ...]

    @property
    def date(self) -> str:
        """Date of the newest row; empty without rows."""
        return max((one.date for one in self.states), default="")
