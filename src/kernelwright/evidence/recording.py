"""Measures rows on this machine: the named ones, or those that are no longer current."""

from __future__ import annotations

from kernelwright.core.backend_run import BackendRun
from kernelwright.core.errors import UsageError
from kernelwright.core.evidence import EvidenceRun
from kernelwright.core.kernelbench import ProblemRun
from kernelwright.core.optimization import ProgramSuiteRow
from kernelwright.evidence.kinds import KIND_MODULES, WITHOUT_PROBLEMS, MeasureRequest, get_kind, record_step
from kernelwright.evidence.rows import write_rows
from kernelwright.evidence.status import compute_status
from kernelwright.machines import machine

UNCHANGED_STATES = ("current", "unverified")


def record_rows(kind: str, request: MeasureRequest) -> EvidenceRun:
    """Measure rows of one kind and write each as soon as it is measured.

    Raises:
        UsageError: no such kind.
        NotFoundError: no workload with that name.
        DeviceError: the device is not available.
    """
    written, failed = [], {}
    for row in get_kind(kind).measure(request):
        write_rows([row], request.folder)
        name = f"{row.workload}{f'/{row.variant}' if row.variant else ''}"
        written.append(name)
        failed.pop(name, None)
        result = row.decode_result(get_kind(kind).result_type)
        if isinstance(result, ProgramSuiteRow | ProblemRun | BackendRun) and not result.accepted:
            failed[name] = result.reason
    return EvidenceRun(
        written=tuple(dict.fromkeys(written)), failed=tuple(f"{name}: {reason}" for name, reason in failed.items())
    )


def refresh_rows(request: MeasureRequest, *, kind: str = "") -> EvidenceRun:
    """Measure the rows of this machine and device that are not current.

    Rows whose problems are not in the repository are left as they are.

    Raises:
        UsageError: `kind` has only such rows.
        NotFoundError: there are no rows.
    """
    if kind in WITHOUT_PROBLEMS:
        raise UsageError(f"the problems of kind {kind!r} are not in this repository", next=record_step(kind))
    current = machine(request.device)
    names: dict[str, list[str]] = {}
    for one in compute_status(request.folder, update=True, kind=kind).rows:
        if one.kind not in WITHOUT_PROBLEMS and one.machine == current.name and one.state not in UNCHANGED_STATES:
            names.setdefault(one.kind, []).append(_request_name(one.kind, one.workload, one.variant))
    runs = [
        record_rows(name, request._replace(names=tuple(dict.fromkeys(names[name])), fresh=True))
        for name in KIND_MODULES
        if name in names
    ]
    return EvidenceRun(
        written=tuple(name for run in runs for name in run.written),
        failed=tuple(line for run in runs for line in run.failed),
    )


def _request_name(kind: str, workload: str, variant: str) -> str:
    """The name of a row in a `MeasureRequest` of its kind."""
    if kind == "optimize":
        return workload.partition("/")[2]
    return f"{workload}/{variant}" if variant else workload
