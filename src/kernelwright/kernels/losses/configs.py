"""How rows of logits lie on the chip."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from kernelwright.kernels.rows.layout import (
    LONGEST_BYTES,
    VECTOR_BYTES,
    WARP,
    RowLayout,
    in_vectors,
    lanes_one_by_one,
    power_of_two,
    row_layout,
)

SCALE_BLOCK, SCALE_WARPS, SCALE_PROGRAMS = 4096, 4, 8
"""Programs of a multiprocessor: each that begins costs more than to learn that there is nothing to do."""
APART_BLOCK, APART_WARPS = 1024, 4
LOGITS_BYTES = 10**9
"""Of logits that a linear layer holds at once: the weight's gradient is rounded once for each buffer of them."""
CHUNK_BYTES, CHUNK_WARPS, CHUNK_STAGES = 2**11, 1, 3
"""Of rows that are read through, several chunks under way: of one warp, which has nobody to wait for."""
READER_BYTES, MOST_PARTS = 2**15, 64
"""Of a row that one program reads through, where there are rows enough."""
ENOUGH_PROGRAMS = 2**12
"""Where rows are fewer, each is shared out."""
GRADIENT_WARPS = 16
ELEMENT_TILE_BYTES, ELEMENT_WARPS = 2**11, 2
FEWEST_ROWS = 8
"""Of a tile of the gradient, where there are no more."""
TOTAL_BLOCK, TOTAL_WARPS = 4096, 8
"""Losses that one program adds up alone."""
PART_BLOCK, PART_WARPS, TOTAL_PARTS = 1024, 4, 128
"""Of more than these, a program's at once, and how many programs share them out, however many there are, for one that
begins after them: to wait for each other they would need notes that somebody has made zero."""


def rows_at_once(M: int, N: int, itemsize: int) -> list[int]:
    """M rows of N logits in as few parts as fit, multiples of what a matrix product's tile takes. The smallest comes
    first: what is added up meanwhile is rounded while it is small."""
    most = max(128, LOGITS_BYTES // max(1, N * itemsize) // 128 * 128)
    return [*([M % most] if M % most else []), *[most] * (M // most)]


def elements_of_a_load(N: int, itemsize: int) -> int:
    return VECTOR_BYTES // itemsize if in_vectors(N, itemsize) else 1


def forward_layout(M: int, N: int, itemsize: int) -> RowLayout:
    """Where the loss alone is wanted: the columns are those that all lanes of a row load at once."""
    return _forward_layout(_parts_for_few(M), N, itemsize)


@lru_cache(maxsize=4096)
def _forward_layout(parts_for_few: int, N: int, itemsize: int) -> RowLayout:
    layout, elements = row_layout(N, itemsize), elements_of_a_load(N, itemsize)
    if layout.parts > 1:
        parts = max(N * itemsize // READER_BYTES, parts_for_few)
        most = min(MOST_PARTS, N * itemsize // (2 * CHUNK_BYTES))
        return RowLayout(1, WARP * CHUNK_WARPS * elements, max(1, min(most, parts)), CHUNK_WARPS)
    if layout.rows == layout.warps == 1:  # a multiprocessor has no more programs than would be half of it
        layout = replace(layout, rows=2, warps=2)
    wanted = lanes_one_by_one(N) if elements == 1 else power_of_two(-(-N // elements))
    lanes = min(wanted, max(WARP, WARP * layout.warps // layout.rows))
    if layout.rows == 1 and 2 * lanes < wanted and N % (2 * lanes * elements) == 0:
        lanes *= 2  # two to a thread, whose maxima do not wait for each other
    return replace(layout, columns=lanes * elements)


def one_program(M: int, layout: RowLayout) -> bool:
    """Whether one program has all rows, and can write what their losses come to."""
    return layout.programs(M) == 1


def total_parts(M: int) -> tuple[int, int, int]:
    """Of the programs that add up M losses how many each takes at once, their warps, and how many they are."""
    return (TOTAL_BLOCK, TOTAL_WARPS, 1) if M <= TOTAL_BLOCK else (PART_BLOCK, PART_WARPS, TOTAL_PARTS)


def tiles_at_once(layout: RowLayout, N: int, itemsize: int) -> int:
    """How many tiles are read before any is worked on."""
    at_once = CHUNK_BYTES if N * itemsize > LONGEST_BYTES else N * itemsize
    return -(-at_once // (layout.columns * itemsize))


def few_rows(M: int, N: int, itemsize: int) -> bool:
    """Whether long rows are too few for programs that read them through."""
    return _parts_for_few(M) > N * itemsize // READER_BYTES


def _parts_for_few(M: int) -> int:
    return power_of_two(-(-ENOUGH_PROGRAMS // M))


def gradient_layout(N: int, itemsize: int) -> RowLayout:
    """Where the gradient is written with the loss."""
    layout = row_layout(N, itemsize, most_warps=GRADIENT_WARPS)
    return replace(layout, rows=max(1, layout.rows // 2))


def backward_layout(M: int, N: int, itemsize: int) -> RowLayout:
    """Its tiles have nothing to tell each other, so they are small, and smaller for few rows."""
    columns = min(power_of_two(N), ELEMENT_TILE_BYTES // itemsize)
    rows = max(1, ELEMENT_TILE_BYTES // itemsize // columns)
    if M <= FEWEST_ROWS:
        rows = min(rows, FEWEST_ROWS)
    return RowLayout(rows, columns, -(-N // columns), ELEMENT_WARPS if columns > 2 * WARP else 2 * ELEMENT_WARPS)
