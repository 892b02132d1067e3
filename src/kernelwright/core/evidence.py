"""The records of evidence: one measured row for each workload, variant and machine, and what `kw evidence` says of
them."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from kernelwright.core.records import Device, Record

T = TypeVar("T")
State = Literal["current", "older instrument", "superseded", "unverified"]
STATES: tuple[State, ...] = ("current", "older instrument", "superseded", "unverified")


class EvidenceRow(Record, frozen=True, kw_only=True):
    """One measurement with all that it depends on.

    Attributes:
        kind: of result, such as `kernel` or `ladder`.
        workload: what was computed, on which size.
        variant: whose code; empty where the result holds all that were timed beside each other.
        problem: digest of the reference, its inputs and options.
        artifact: digest of the code that ran; empty where none of this package ran.
        toolchain: the compilers that made the artifact from the sources; empty for text.
        sources: digest of the sources that made the artifact. Equal sources make an equal artifact; others may.
        superseded_sources: digest of sources that were found to make other code, so that they are not built again.
        instruments: versions of what measured it, by name.
        environment: versions of GPU driver, torch and the like.
        commit: of the sources, as git names it; empty where there was no repository.
        result: the measured values, of the type that its kind has.
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
        """The result.

        Raises:
            msgspec.ValidationError: it is of another type.
        """
        return msgspec.json.decode(self.result, type=type)


class RowState(Record, frozen=True, kw_only=True):
    """Whether a row still says what today's code does: `reason` where it does not, or may not."""

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
    """What `kw evidence record`, `refresh` or `table` wrote: rows by their workload, or pages, and what failed."""

    written: tuple[str, ...]
    failed: tuple[str, ...] = ()


def encode_result(result: Any) -> msgspec.Raw:
    """A result as a row holds it."""
    return msgspec.Raw(msgspec.json.encode(result))


class RowGroup(Record, frozen=True, kw_only=True):
    """Rows that one table or section shows: results of one name on one machine, each with its state."""

    name: str
    machine: str
    device: Device
    environment: dict[str, str]
    results: tuple[Any, ...]
    states: tuple[RowState, ...]

    @property
    def date(self) -> str:
        """Of the newest row."""
        return max((one.date for one in self.states), default="")
