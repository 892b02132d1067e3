"""Layouts as grids of coloured cells: offsets, banks, or owning threads."""

from __future__ import annotations

from typing import Any

from kernelwright.core.layout import Cell, LayoutDrawing
from kernelwright.layouts.access import CACHE_LINE_BYTES, NUM_BANKS, WORD_BYTES
from kernelwright.layouts.atoms import element_owners
from kernelwright.layouts.errors import LayoutError
from kernelwright.layouts.layout import size
from kernelwright.layouts.tuples import format_tuple, idx2crd

NUM_COLOURS = 8
MAX_ROWS, MAX_COLUMNS = 64, 64
COLOUR_MODES = ("offset", "bank", "thread", "line")


def draw_grid(layout: Any, *, colour: str = "offset", element_bytes: int = 4) -> LayoutDrawing:
    """A layout as a table of offsets: the first mode down, all others across.

    Args:
        layout: Layout or composed layout.
        colour: by `offset` (eight shades over the cosize), `bank` of shared memory (printed below the offset),
            `line` of 128 bytes, or `thread` (the coordinate of the first mode).
        element_bytes: element size, for banks and lines.
    Raises:
        LayoutError: unknown colour mode.
    """
    if colour not in COLOUR_MODES:
        raise LayoutError(f"unknown colour {colour!r}: one of {', '.join(COLOUR_MODES)}")
    down = size(layout[0]) if len(layout) > 1 else 1
    across = size(layout) // down
    offsets, reach = layout.offsets(), 1 + max(layout.offsets())
    shade = {
        "offset": lambda offset, _: offset * NUM_COLOURS // reach,
        "bank": lambda offset, _: offset * element_bytes // WORD_BYTES % NUM_BANKS * NUM_COLOURS // NUM_BANKS,
        "line": lambda offset, _: offset * element_bytes // CACHE_LINE_BYTES % NUM_COLOURS,
        "thread": lambda _, row: row % NUM_COLOURS,
    }[colour]

    def cell(row: int, column: int) -> Cell:
        offset = offsets[row + down * column]
        bank = f"b{offset * element_bytes // WORD_BYTES % NUM_BANKS}" if colour == "bank" else ""
        return Cell(str(offset), bank, shade(offset, row))

    legend = {
        "offset": "colour: from low offsets to high",
        "bank": f"colour and bN: bank, with {element_bytes}-byte elements",
        "line": f"colour: line of 128 bytes, with {element_bytes}-byte elements",
        "thread": "colour: coordinate of the first mode",
    }[colour]
    return _build_drawing(str(layout), down, across, cell, legend, lambda column: _column_label(layout, column))


def _column_label(layout: Any, column: int) -> str:
    """The coordinate of a column in all modes but the first."""
    shape = layout.shape
    if not isinstance(shape, tuple) or len(shape) == 1:
        return str(column)
    rest = shape[1] if len(shape) == 2 else shape[1:]
    return format_tuple(idx2crd(column, rest))


def draw_owners(name: str, tv_layout: Any, shape: tuple[int, int]) -> LayoutDrawing:
    """A matrix with the thread and value index that hold each element (T0 V1), coloured by thread.

    Args:
        tv_layout: (thread, value) -> row + rows * column.
        shape: (rows, columns) of the matrix.
    Raises:
        LayoutError: an element that no thread or more than one holds.
    """
    owners = element_owners(tv_layout, shape)

    def cell(row: int, column: int) -> Cell:
        thread, value = owners[row][column]
        return Cell(f"T{thread}", f"V{value}", thread % NUM_COLOURS)

    return _build_drawing(
        f"{name}  {tv_layout}", *shape, cell, "T: thread, V: value index; colour: thread modulo 8", str
    )


def _build_drawing(title: str, down: int, across: int, cell: Any, legend: str, label: Any) -> LayoutDrawing:
    rows, columns = min(down, MAX_ROWS), min(across, MAX_COLUMNS)
    cells = [[cell(row, column) for column in range(columns)] for row in range(rows)]
    return LayoutDrawing(
        title=title,
        rows=tuple(map(str, range(rows))),
        columns=tuple(map(label, range(columns))),
        texts=tuple(tuple(one.text for one in row) for row in cells),
        subtexts=tuple(tuple(one.subtext for one in row) for row in cells) if cells[0][0].subtext else (),
        colours=tuple(tuple(one.colour for one in row) for row in cells),
        legend=legend,
        truncation_note=""
        if (rows, columns) == (down, across)
        else f"{rows}x{columns} of {down}x{across} cells are drawn",
    )
