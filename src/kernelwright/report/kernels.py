"""Members of the library as they were measured, as Markdown: each use on each size, and each kernel in one row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from statistics import geometric_mean

from kernelwright.core.library import EAGER, KernelRecord, KernelRow
from kernelwright.core.units import bytes_text, number_text, time_text
from kernelwright.report import waiting

LARGE_BYTES = 2**24
"""What moves less is over before memory is busy: no copy is a measure of it."""
NONE = "No kernel has a record yet: `kw evidence record --kind kernel`.\n"
HEAD = ("size", "bytes", "ours", "TB/s", "of a copy", "the best other", "times as fast", "error over eager's")


def markdown(records: Iterable[KernelRecord]) -> str:
    """A section for each kernel, a table for each of its uses."""
    parts = [part for record in records for part in _sections(record)]
    return "\n".join(parts) if parts else NONE


def brief(records: Iterable[KernelRecord]) -> str:
    """One row for each use of each kernel; below, whose figures wait to be measured again, and why."""
    if not (records := list(records)):
        return NONE
    lines = ["| kernel | use | sizes | beside the best of the others | least | of a copy | error over eager's |"]
    lines.append("|" + "---|" * 7)
    for record in records:
        for what, rows in _uses(record):
            gains, copies = [row.gain for row in rows], [row.of_copy for row in rows if row.bytes >= LARGE_BYTES]
            errors = [row.accuracy for row in rows if row.accuracy is not None]
            cells = [record.name, what, str(len(rows)), f"{geometric_mean(gains):.2f}x", f"{min(gains):.2f}x"]
            cells += [f"{geometric_mean(copies):.2f}" if copies else "-", f"{max(errors):.2f}" if errors else "-"]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, *waiting.paragraphs(records)]) + "\n"


def sentence(record: KernelRecord) -> str:
    """`1.23x the best of eager, torch.compile, quack in 26 comparisons on NVIDIA H200, 2026-11-22`."""
    if not record.rows:
        return waiting.reason(record)
    gain = geometric_mean(row.gain for row in record.rows)
    others = dict.fromkeys(arm.name for row in record.rows for arm in row.arms[1:])
    rows = number_text(len(record.rows), "comparison")
    found = f"{gain:.2f}x the best of {', '.join(others)} in {rows} on {record.machine}, {record.date}"
    return f"{found}; {waiting.reason(record)}" if record.state == "pending" else found


def _uses(record: KernelRecord) -> Iterator[tuple[str, list[KernelRow]]]:
    for what, rows in groupby(record.rows, lambda row: row.what):
        yield what, list(rows)


def _sections(record: KernelRecord) -> Iterator[str]:
    yield f"## {record.name}: {record.machine}\n\n{record.date}.\n"
    if record.state == "pending":
        yield f"{waiting.reason(record)}.\n"
    for what, rows in _uses(record):
        yield f"### {what}\n"
        yield "| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD)
        for row in rows:
            yield "| " + " | ".join(_cells(row)) + " |"
        yield ""
        yield from _calls(rows)


def _cells(row: KernelRow) -> list[str]:
    ours_us = row.ours.time_us or 0.0
    error = "-" if row.accuracy is None else f"{row.accuracy:.2f}"
    return [
        "x".join(map(str, row.size)),
        bytes_text(row.bytes),
        time_text(ours_us),
        f"{row.bytes / ours_us / 1e6:.2f}",
        f"{row.of_copy:.2f}",
        f"{row.best.name}, {time_text(row.best.time_us or 0.0)}",
        f"{row.gain:.2f}",
        error,
    ]


def _calls(rows: Iterable[KernelRow]) -> Iterator[str]:
    """How long a call takes from Python, where that is more than the kernel."""
    for row in rows:
        eager = next((arm.call_us for arm in row.arms if arm.name == EAGER), None)
        if row.ours.call_us and eager:
            size = "x".join(map(str, row.size))
            yield f"A call from Python at {size}: {time_text(row.ours.call_us)}, eager {time_text(eager)}.\n"
