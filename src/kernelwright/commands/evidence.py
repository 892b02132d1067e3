"""`kw evidence`: measured rows, each tied to the code that ran."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelwright.commands.result import CommandResult, select_device
from kernelwright.core.errors import UsageError
from kernelwright.core.evidence import EvidenceRun, EvidenceStatus

KINDS = ("diagnosis", "optimize", "layout", "ladder", "kernel", "redteam", "kernelbench", "backend")
KINDS_WITH_COMMANDS = ("kernelbench", "backend")
"""Kinds that are measured in further processes, to which the memory limit of this one must not apply."""


def evidence_record(
    kind: str = "diagnosis",
    names: Sequence[str] = (),
    *,
    suite: str = "",
    fresh: bool = False,
    rounds: int = 1,
    workers: int = 1,
    limit_s: float = math.inf,
    device: str = "cpu",
    folder: str = "evidence",
) -> CommandResult[EvidenceRun]:
    """Measures workloads on this machine and writes one row for each.

    Args:
        names: workloads of that kind; all by default.
        suite: a folder of programs in place of examples/suite; the folder of the KernelBench problems.
        fresh: measure programs again that have a current row.
        rounds: how often to verify the corpus.
        workers: how many samples to verify at once.
        limit_s: seconds for the KernelBench problems or the models of `backend`; the next call continues.
    Raises:
        UsageError: unknown kind or device. NotFoundError: no such workload. TimeLimitError: `limit_s` is over.
    """
    from kernelwright.evidence.kinds import MeasureRequest
    from kernelwright.evidence.recording import record_rows

    _require_kind(kind)
    request = MeasureRequest(select_device(device), folder, tuple(names), suite, fresh, rounds, workers, limit_s)
    return _run_result(record_rows(kind, request))


def evidence_status(kind: str = "", *, update: bool = False, folder: str = "evidence") -> CommandResult[EvidenceStatus]:
    """The state of every row, derived offline: current, superseded, older instrument or unverified.

    Args:
        update: write today's digest of the sources into rows whose code is the same.
    Raises:
        UsageError: unknown kind.
    """
    from kernelwright.evidence.kinds import WITHOUT_PROBLEMS, record_step
    from kernelwright.evidence.status import compute_status

    _require_kind(kind or KINDS[0])
    found = compute_status(folder, update=update, kind=kind)
    stale = {row.kind for row in found.rows if row.state in ("superseded", "older instrument")}
    steps = tuple(
        record_step(one) if one in WITHOUT_PROBLEMS else f"kw evidence refresh --kind {one}"
        for one in KINDS
        if one in stale
    )
    return CommandResult(found, "finding" if stale else "ok", steps)


def evidence_refresh(kind: str = "", *, device: str = "cpu", folder: str = "evidence") -> CommandResult[EvidenceRun]:
    """Measures the rows of this machine that are not current.

    Raises:
        UsageError: unknown kind or device.
    """
    from kernelwright.evidence.kinds import MeasureRequest
    from kernelwright.evidence.recording import refresh_rows

    _require_kind(kind or KINDS[0])
    return _run_result(refresh_rows(MeasureRequest(select_device(device), folder), kind=kind))


def evidence_table(
    kind: str = "", *, into: str = "", check: bool = False, folder: str = "evidence"
) -> CommandResult[EvidenceRun]:
    """Writes the tables of all rows into their pages.

    Args:
        into: the page that holds the table, in place of the usual one.
        check: write nothing; a finding where README.md quotes rows that are not current.
    Raises:
        UsageError: unknown kind.
    """
    from kernelwright.evidence.tables import PAGES, outdated_tables, write_tables

    _require_kind(kind or KINDS[0])
    if check:
        found = EvidenceRun(written=(), failed=tuple(f"README.md: {one}" for one in outdated_tables(folder)))
    else:
        kinds = [kind or KINDS[0]] if into else [one for one in PAGES if one.startswith(kind)]
        found = EvidenceRun(written=tuple(write_tables(folder, kinds, into)))
    return CommandResult(found, "finding", ("kw evidence table",)) if found.failed else CommandResult(found)


def evidence_instrument(name: str, *, same: str = "", new: str = "", bound: str = "") -> CommandResult[EvidenceRun]:
    """Notes that the changed sources of an instrument measure the same, or gives it a new version.

    Args:
        same: why it measures the same.
        new: what it measures differently.
        bound: by how much at most, with `new`.
    Raises:
        UsageError: neither or both of `same` and `new`. NotFoundError: no such instrument.
    """
    from kernelwright.evidence.instruments import record_change

    if bool(same) == bool(new):
        raise UsageError("use either --same WHY or --new WHAT", next="kw evidence instrument --help")
    return CommandResult(
        EvidenceRun(written=(f"{name} {record_change(name, same=same, new=new, bound=bound).version}",))
    )


def _require_kind(kind: str) -> None:
    if kind not in KINDS:
        raise UsageError(f"no rows of kind {kind!r}", next=f"--kind {' or --kind '.join(KINDS)}")


def _run_result(found: EvidenceRun) -> CommandResult[EvidenceRun]:
    return CommandResult(found, "finding" if found.failed else "ok", ("kw evidence table",))
