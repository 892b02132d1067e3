"""Layout predictions checked against instructions and hardware counters, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from kernelwright.core.evidence import RowGroup
from kernelwright.report import row_states


def markdown(records: Iterable[RowGroup]) -> str:
    """Return a section for each machine: a summary and two tables."""
    return "\n".join(map(_machine_section, records))


def _machine_section(record: RowGroup) -> str:
    fragments = [one for result in record.results for one in result.fragments]
    accesses = [one for result in record.results for one in result.accesses]
    elements, mismatches = sum(one.elements for one in fragments), sum(one.mismatches for one in fragments)
    matches = sum(one.predicted == one.measured for one in accesses)
    software = ", ".join(f"{name} {version}" for name, version in record.environment.items())
    dates = row_states.dates_text(record.states)
    rows = [
        f"## {record.machine}",
        "",
        f"{elements:,} elements of {len(fragments)} operands predicted, {mismatches} mismatches. "
        f"{matches} of {len(accesses)} accesses match the predicted count. {dates}, {software}.",
        "",
        "| instruction | operand | layout (thread, value) | elements | mismatches |",
        "|---|---|---|---|---|",
        *(
            f"| {one.instruction} | {one.operand} | `{one.layout}` | {one.elements:,} | {one.mismatches} |"
            for one in fragments
        ),
        "",
        "| memory | access (thread, value) | bytes per thread | predicted | measured |",
        "|---|---|---|---|---|",
        *(
            f"| {one.memory} | `{one.layout}` | {one.access_bytes} | {one.predicted} | {one.measured} |"
            for one in accesses
        ),
    ]
    return "\n".join(rows) + "\n"
