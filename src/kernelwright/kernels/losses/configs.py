"""How rows of logits lie on the chip."""

from __future__ import annotations

from dataclasses import replace

from kernelwright.kernels.rows.layout import LONGEST_BYTES, WARP, RowLayout, power_of_two, row_layout

SCALE_BLOCK, SCALE_WARPS = 4096, 4
APART_BLOCK, APART_WARPS = 1024, 4
LOGITS_BYTES = 10**9
"""Of logits that a linear layer holds at once: the weight's gradient is rounded once for each buffer of them."""
ONLINE_FROM_BYTES = 2**12
"""Longer rows are read through in chunks, several under way: for the loss alone nothing has to stay."""
CHUNK_BYTES, CHUNK_WARPS, CHUNK_STAGES = 2**11, 1, 3
"""Of one warp, which has nobody to wait for."""
READER_BYTES, MOST_PARTS = 2**15, 64
"""Of a row that one program reads through, where there are rows enough."""
ENOUGH_PROGRAMS = 2**12
"""Where rows are fewer, each is shared out."""
FEW_ROWS = 128
GRADIENT_WARPS = 16
ELEMENT_TILE_BYTES, ELEMENT_WARPS = 2**11, 2
TOTAL_BLOCK, TOTAL_WARPS, MOST_TOTALS = 4096, 8, 64
"""Losses that a program adds up at once, and how many programs share them out."""


def rows_at_once(M: int, N: int, itemsize: int) -> list[int]:
    """M rows of N logits in as few parts as fit, multiples of what a matrix product's tile takes. The smallest comes
    first: what is added up meanwhile is rounded while it is small."""
    most = max(128, LOGITS_BYTES // max(1, N * itemsize) // 128 * 128)
    return [*([M % most] if M % most else []), *[most] * (M // most)]


def forward_layout(N: int, itemsize: int) -> RowLayout:
    return row_layout(N, itemsize)


def gradient_layout(N: int, itemsize: int) -> RowLayout:
    """Where the gradient is written with the loss."""
    layout = row_layout(N, itemsize, most_warps=GRADIENT_WARPS)
    return replace(layout, rows=max(1, layout.rows // 2))


def online_layout(M: int, N: int, itemsize: int) -> RowLayout | None:
    """Chunks and parts of rows that are read through; None for rows that stay in registers."""
    if N * itemsize <= (LONGEST_BYTES if M < FEW_ROWS else ONLINE_FROM_BYTES):
        return None
    columns = CHUNK_BYTES // itemsize
    parts = max(N * itemsize // READER_BYTES, power_of_two(-(-ENOUGH_PROGRAMS // M)))
    return RowLayout(1, columns, max(1, min(MOST_PARTS, parts, N // (2 * columns))), CHUNK_WARPS)


def backward_layout(N: int, itemsize: int) -> RowLayout:
    """Its tiles have nothing to tell each other, so they are small."""
    columns = min(power_of_two(N), ELEMENT_TILE_BYTES // itemsize)
    rows = max(1, ELEMENT_TILE_BYTES // itemsize // columns)
    return RowLayout(rows, columns, -(-N // columns), ELEMENT_WARPS if columns > 2 * WARP else 2 * ELEMENT_WARPS)
