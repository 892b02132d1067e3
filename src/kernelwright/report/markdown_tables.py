"""Parts of pages with a section for each machine: its head, the lines of a table, and a measured time in a cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernelwright.core.evidence import RowGroup
from kernelwright.core.median_times import MedianTime
from kernelwright.core.units import percent_text, time_text
from kernelwright.report import format, row_states


def head_lines(entry: RowGroup) -> list[str]:
    """The heading of a machine's section, and a line with dates and software."""
    software = ", ".join(f"{name} {version}" for name, version in sorted(entry.environment.items()))
    line = format.sanitize_line(f"{row_states.dates_text(entry.states)}; {software}.")
    return [f"## {entry.machine}", "", line, ""]


def table_lines(columns: Sequence[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """A Markdown table; a cell may contain any text."""
    return [_row(columns), "|" + "---|" * len(columns), *map(_row, rows)]


def median_text(time: MedianTime | None) -> str:
    """`885 us ±0.4 %`: the median and half of its interval; a dash for None."""
    if time is None:
        return "-"
    return f"{time_text(time.time_us)} ±{percent_text((time.high_us - time.low_us) / 2 / time.time_us)}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(format.sanitize_line(cell).replace('|', chr(92) + '|') for cell in cells)} |"
