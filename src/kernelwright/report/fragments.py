"""What instructions and counters said of the layouts, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from kernelwright.core.layout import FragmentRecord


def markdown(records: Iterable[FragmentRecord]) -> str:
    """A paragraph and two tables for each machine."""
    return "\n".join(map(_machine, records))


def _machine(record: FragmentRecord) -> str:
    elements = sum(one.elements for one in record.fragments)
    wrong = sum(one.wrong for one in record.fragments)
    agree = sum(one.predicted == one.counted for one in record.accesses)
    software = ", ".join(f"{name} {version}" for name, version in record.software.items())
    rows = [
        f"## {record.machine}",
        "",
        f"{elements:,} elements of {len(record.fragments)} operands predicted, {wrong} wrong. "
        f"{agree} of {len(record.accesses)} accesses cost what was predicted. {record.date}, {software}.",
        "",
        "| instruction | operand | layout (thread, value) | elements | wrong |",
        "|---|---|---|---|---|",
        *(
            f"| {one.instruction} | {one.operand} | `{one.layout}` | {one.elements:,} | {one.wrong} |"
            for one in record.fragments
        ),
        "",
        "| memory | access (thread, value) | bytes a thread | predicted | counted |",
        "|---|---|---|---|---|",
        *(
            f"| {one.memory} | `{one.layout}` | {one.access_bytes} | {one.predicted} | {one.counted} |"
            for one in record.accesses
        ),
    ]
    return "\n".join(rows) + "\n"
