"""Measures rows on this machine: the named ones, or those that are no longer current."""

from __future__ import annotations

from kernelwright.core.evidence import EvidenceRun
from kernelwright.core.optimization import ProgramSuiteRow
from kernelwright.evidence.kinds import KIND_MODULES, MeasureRequest, get_kind
from kernelwright.evidence.rows import write_rows
from kernelwright.evidence.status import compute_status
from kernelwright.machines import machine


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
        if row.kind == "optimize" and not (result := row.decode_result(ProgramSuiteRow)).accepted:
            failed[name] = result.reason
    return EvidenceRun(
        written=tuple(dict.fromkeys(written)), failed=tuple(f"{name}: {reason}" for name, reason in failed.items())
    )


def refresh_rows(request: MeasureRequest, *, kind: str = "") -> EvidenceRun:
    """Measure the rows of this machine and device that are not current.

    Raises:
        NotFoundError: there are no rows.
    """
    current = machine(request.device)
    names: dict[str, list[str]] = {}
    for one in compute_status(request.folder, update=True, kind=kind).rows:
        if one.machine == current.name and one.state not in ("current", "unverified"):
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
