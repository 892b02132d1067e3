"""How rows of logits lie on the chip."""

from __future__ import annotations

from kernelwright.kernels.rows.layout import RowLayout, power_of_two, row_layout

SCALE_BLOCK, SCALE_WARPS = 4096, 4
LOGITS_BYTES = 2**29
"""Of logits that a linear layer holds at once."""
ONLINE_FROM_BYTES = 2**15
"""Longer rows are read through in chunks, several under way: for the loss alone nothing has to stay."""
CHUNK_BYTES, CHUNK_WARPS, CHUNK_STAGES = 2**13, 4, 4
ENOUGH_PROGRAMS = 256
"""Where rows are fewer, each is shared out."""
MOST_PARTS = 32
ELEMENT_TILE_BYTES, ELEMENT_WARPS = 2**13, 4
TOTAL_BLOCK, TOTAL_WARPS, MOST_TOTALS = 4096, 8, 64
"""Losses that a program adds up at once, and how many programs share them out."""


def rows_at_once(N: int, itemsize: int) -> int:
    """Rows of N logits that fit, a multiple of what a matrix product's tile takes."""
    return max(128, LOGITS_BYTES // max(1, N * itemsize) // 128 * 128)


def forward_layout(N: int, itemsize: int) -> RowLayout:
    return row_layout(N, itemsize)


def online_layout(M: int, N: int, itemsize: int) -> RowLayout | None:
    """Chunks and parts of rows that are read through; None for rows that fit into registers."""
    if N * itemsize <= ONLINE_FROM_BYTES:
        return None
    columns = CHUNK_BYTES // itemsize
    parts = min(MOST_PARTS, power_of_two(-(-ENOUGH_PROGRAMS // M)), -(-N // columns))
    return RowLayout(1, columns, parts, CHUNK_WARPS)


def backward_layout(N: int, itemsize: int) -> RowLayout:
    """Its tiles have nothing to tell each other, so they are small."""
    columns = min(power_of_two(N), ELEMENT_TILE_BYTES // itemsize)
    rows = max(1, ELEMENT_TILE_BYTES // itemsize // 4 // columns)
    return RowLayout(rows, columns, -(-N // columns), ELEMENT_WARPS)
