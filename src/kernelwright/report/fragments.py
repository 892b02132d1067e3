"""What instructions and counters said of the layouts, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from kernelwright.core.evidence import RowGroup
from kernelwright.report import row_states


def markdown(records: Iterable[RowGroup]) -> str:
    """A paragraph and two tables for each machine."""
    return "\n".join(map(_machine_section, records))


def _machine_section(record: RowGroup) -> str:
    fragments = [one for result in record.results for one in result.fragments]
    accesses = [one for result in record.results for one in result.accesses]
    elements, wrong = sum(one.elements for one in fragments), sum(one.mismatches for one in fragments)
    agree = sum(one.predicted == one.measured for one in accesses)
    software = ", ".join(f"{name} {version}" for name, version in record.environment.items())
    when = row_states.dates_text(record.states)
    rows = [
        f"## {record.machine}",
        "",
        f"{elements:,} elements of {len(fragments)} operands predicted, {wrong} wrong. "
        f"{agree} of {len(accesses)} accesses cost what was predicted. {when}, {software}.",
        "",
        "| instruction | operand | layout (thread, value) | elements | wrong |",
        "|---|---|---|---|---|",
        *(
            f"| {one.instruction} | {one.operand} | `{one.layout}` | {one.elements:,} | {one.mismatches} |"
            for one in fragments
        ),
        "",
        "| memory | access (thread, value) | bytes a thread | predicted | counted |",
        "|---|---|---|---|---|",
        *(
            f"| {one.memory} | `{one.layout}` | {one.access_bytes} | {one.predicted} | {one.measured} |"
            for one in accesses
        ),
    ]
    return "\n".join(rows) + "\n"
