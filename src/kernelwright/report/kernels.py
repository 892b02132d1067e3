"""Members of the library as they were measured, as Markdown: each use on each size, and each kernel in one row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from statistics import geometric_mean

from kernelwright.core.evidence import RowGroup, RowState
from kernelwright.core.library import EAGER, KernelRow
from kernelwright.core.units import bytes_text, number_text, time_text
from kernelwright.report import row_states

LARGE_BYTES = 2**24
"""What moves less is over before memory is busy: no copy is a measure of it."""
NO_ROWS = "No kernel has a row yet: `kw evidence record --kind kernel`.\n"
COLUMNS = (
    "size",
    "bytes",
    "ours",
    "TB/s",
    "of a copy",
    "the best other",
    "times as fast",
    "error over eager's",
    "measured",
)


def markdown(records: Iterable[RowGroup]) -> str:
    """A section for each kernel, a table for each of its uses."""
    parts = [part for record in records for part in _sections(record)]
    return "\n".join(parts) if parts else NO_ROWS


def summary_table(records: Iterable[RowGroup]) -> str:
    """One row for each use of each kernel; below, which rows are not current, and why."""
    if not (records := list(records)):
        return NO_ROWS
    head = ("kernel", "use", "sizes", "beside the best of the others", "least", "of a copy", "error over eager's")
    lines = ["| " + " | ".join((*head, "measured")) + " |", "|" + "---|" * (len(head) + 1)]
    for record in records:
        for what, rows, states in _rows_by_use_case(record):
            gains, copies = (
                [row.speedup for row in rows],
                [row.fraction_of_copy_speed for row in rows if row.bytes >= LARGE_BYTES],
            )
            errors = [row.error_over_eager for row in rows if row.error_over_eager is not None]
            cells = [record.name, what, str(len(rows)), f"{geometric_mean(gains):.2f}x", f"{min(gains):.2f}x"]
            cells += [f"{geometric_mean(copies):.2f}" if copies else "-", f"{max(errors):.2f}" if errors else "-"]
            lines.append("| " + " | ".join([*cells, row_states.dates_text(states)]) + " |")
    return "\n".join([*lines, *row_states.reason_lines(records)]) + "\n"


def kernel_summary(record: RowGroup) -> str:
    """`1.23x the best of eager, torch.compile, quack in 26 comparisons on NVIDIA H200, 2026-11-22`."""
    rows: tuple[KernelRow, ...] = record.results
    gain = geometric_mean(row.speedup for row in rows)
    others = dict.fromkeys(arm.name for row in rows for arm in row.variants[1:])
    count = number_text(len(rows), "comparison")
    when = row_states.dates_text(record.states)
    return f"{gain:.2f}x the best of {', '.join(others)} in {count} on {record.machine}, {when}"


def _rows_by_use_case(record: RowGroup) -> Iterator[tuple[str, list[KernelRow], list[RowState]]]:
    for what, pairs in groupby(zip(record.results, record.states, strict=True), lambda pair: pair[0].use_case):
        rows, states = zip(*pairs, strict=True)
        yield what, list(rows), list(states)


def _sections(record: RowGroup) -> Iterator[str]:
    yield f"## {record.name}: {record.machine}\n\n{row_states.dates_text(record.states)}.\n"
    for what, rows, states in _rows_by_use_case(record):
        yield f"### {what}\n"
        yield "| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS)
        for row, state in zip(rows, states, strict=True):
            yield "| " + " | ".join([*_cells(row), row_states.row_state_text(state)]) + " |"
        yield ""
        yield from _calls(rows)


def _cells(row: KernelRow) -> list[str]:
    ours_us = row.ours.time_us or 0.0
    error = "-" if row.error_over_eager is None else f"{row.error_over_eager:.2f}"
    return [
        "x".join(map(str, row.size)),
        bytes_text(row.bytes),
        time_text(ours_us),
        f"{row.bytes / ours_us / 1e6:.2f}",
        f"{row.fraction_of_copy_speed:.2f}",
        f"{row.best_other.name}, {time_text(row.best_other.time_us or 0.0)}",
        f"{row.speedup:.2f}",
        error,
    ]


def _calls(rows: Iterable[KernelRow]) -> Iterator[str]:
    """How long a call takes from Python, where that is more than the kernel."""
    for row in rows:
        eager = next((arm.call_us for arm in row.variants if arm.name == EAGER), None)
        if row.ours.call_us and eager:
            size = "x".join(map(str, row.size))
            yield f"A call from Python at {size}: {time_text(row.ours.call_us)}, eager {time_text(eager)}.\n"
