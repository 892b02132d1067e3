"""Measured kernels of the library as Markdown: tables per use case and size, and a summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from statistics import geometric_mean
from textwrap import wrap

from kernelwright.core.evidence import RowGroup, RowState
from kernelwright.core.library import EAGER, KernelRow
from kernelwright.core.units import bytes_text, number_text, time_text
from kernelwright.report import row_states

LARGE_BYTES = 2**24
"""Rows that move fewer bytes do not saturate memory, so that a copy is no reference for them."""
NO_ROWS = "No rows yet: run `kw evidence record --kind kernel`.\n"
COLUMNS = (
    "size",
    "bytes",
    "ours",
    "TB/s",
    "of copy speed",
    "best baseline",
    "speedup",
    "error / eager error",
    "measured",
)


def markdown(records: Iterable[RowGroup]) -> str:
    """Return a section for each kernel, with a table for each use case."""
    parts = [part for record in records for part in _sections(record)]
    return "\n".join(parts) if parts else NO_ROWS


def summary_text(records: Iterable[RowGroup]) -> str:
    """Return the mean speedup of each kernel over the best baseline as one paragraph, and what is not current."""
    if not (records := list(records)):
        return NO_ROWS
    texts = []
    for record in records:
        backward = [row.speedup for row in record.results if "backward" in row.use_case]
        forward = [row.speedup for row in record.results if "backward" not in row.use_case]
        ratios = [f"{geometric_mean(each):.2f}x" for each in (forward, backward) if each]
        texts.append(f"{record.name} {' and '.join(ratios)}")
    states = [state for record in records for state in record.states]
    text = f"Geometric means, forward and backward: {', '.join(texts)} (measured {row_states.dates_text(states)})."
    return "\n".join([*wrap(text, 118, break_on_hyphens=False), *row_states.reason_lines(records)]) + "\n"


def kernel_summary(record: RowGroup) -> str:
    """`1.23x the best of eager, torch.compile, quack in 26 comparisons on NVIDIA H200, 2026-11-22`."""
    rows: tuple[KernelRow, ...] = record.results
    speedup = geometric_mean(row.speedup for row in rows)
    others = dict.fromkeys(variant.name for row in rows for variant in row.variants[1:])
    count = number_text(len(rows), "comparison")
    dates = row_states.dates_text(record.states)
    return f"{speedup:.2f}x the best of {', '.join(others)} in {count} on {record.machine}, {dates}"


def _rows_by_use_case(record: RowGroup) -> Iterator[tuple[str, list[KernelRow], list[RowState]]]:
    for use_case, pairs in groupby(zip(record.results, record.states, strict=True), lambda pair: pair[0].use_case):
        rows, states = zip(*pairs, strict=True)
        yield use_case, list(rows), list(states)


def _sections(record: RowGroup) -> Iterator[str]:
    yield f"## {record.name}: {record.machine}\n\n{row_states.dates_text(record.states)}.\n"
    for use_case, rows, states in _rows_by_use_case(record):
        yield f"### {use_case}\n"
        columns = [("TFLOP/s" if rows[0].flops and one == "TB/s" else one) for one in COLUMNS]
        yield "| " + " | ".join(columns) + " |\n|" + "---|" * len(columns)
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
        f"{row.flops / ours_us / 1e6:.0f}" if row.flops else f"{row.bytes / ours_us / 1e6:.2f}",
        f"{row.fraction_of_copy_speed:.2f}",
        f"{row.best_other.name}, {time_text(row.best_other.time_us or 0.0)}",
        f"{row.speedup:.2f}",
        error,
    ]


def _calls(rows: Iterable[KernelRow]) -> Iterator[str]:
    """Lines with the times of a call from Python, for rows that have one."""
    for row in rows:
        eager = next((variant.call_us for variant in row.variants if variant.name == EAGER), None)
        if row.ours.call_us and eager:
            size = "x".join(map(str, row.size))
            yield f"A call from Python at {size}: {time_text(row.ours.call_us)}, eager {time_text(eager)}.\n"
