"""How the rows of a norm lie on the chip."""

from __future__ import annotations

from kernelwright.kernels.rows.layout import RowLayout, power_of_two, row_layout

BACKWARD_TILE_BYTES, BACKWARD_WARPS = 2**14, 8
"""One program to a multiprocessor, whose loads run ahead of it through shared memory."""
BACKWARD_PART_BYTES = 2**15
MOST_STAGES = 3
"""Tiles of a program that are under way or in use."""
CENTRED_AT_ONCE = 640
"""Threads of a multiprocessor where a cluster has the row: two rounds need more registers than one."""
SHARES_COLUMNS, SHARES_ROWS, SHARES_WARPS = 32, 64, 4


def forward_layout(N: int, itemsize: int) -> RowLayout:
    return row_layout(N, itemsize)


def backward_layout(N: int, itemsize: int) -> RowLayout:
    columns = power_of_two(N)
    if columns * itemsize > BACKWARD_PART_BYTES:
        columns = BACKWARD_PART_BYTES // itemsize
        return RowLayout(1, columns, -(-N // columns), BACKWARD_WARPS, again=True)
    rows = max(1, BACKWARD_TILE_BYTES // (columns * itemsize))
    return RowLayout(rows, columns, 1, BACKWARD_WARPS * max(1, columns * itemsize // BACKWARD_TILE_BYTES))


def backward_groups(M: int, layout: RowLayout, multiprocessors: int) -> int:
    """Programs that share the rows out, each keeping its own sum of the weight's gradient."""
    return max(1, min(-(-M // layout.rows), multiprocessors // layout.parts))


def backward_stages(layout: RowLayout, element_bytes: int, shared_bytes: int) -> int:
    """How many tiles of all tensors together, whose elements at one place have so many bytes, find room."""
    return max(1, min(MOST_STAGES, shared_bytes // (layout.rows * layout.columns * element_bytes)))
