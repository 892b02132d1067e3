"""How rows of logits lie on the chip."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from kernelwright.kernels.rows.layout import (
    MAX_ROW_BYTES,
    VECTOR_BYTES,
    WARP_SIZE,
    RowLayout,
    choose_row_layout,
    choose_scalar_lanes,
    is_vectorizable,
    next_power_of_2,
)

SCALE_BLOCK, SCALE_WARPS, SCALE_PROGRAMS = 4096, 4, 8
"""Programs of a multiprocessor: each that begins costs more than to learn that there is nothing to do."""
TARGET_GRAD_BLOCK, TARGET_GRAD_WARPS = 1024, 4
LOGITS_BUFFER_BYTES = 10**9
"""Of logits that a linear layer holds at once: the weight's gradient is rounded once for each buffer of them."""
CHUNK_BYTES, CHUNK_WARPS, CHUNK_STAGES = 2**11, 1, 3
"""Of rows that are read through, several chunks under way: of one warp, which has nobody to wait for."""
BYTES_PER_PROGRAM, MAX_SPLITS = 2**15, 64
"""Of a row that one program reads through, where there are rows enough."""
MIN_PROGRAMS = 2**12
"""Where rows are fewer, each is shared out."""
GRADIENT_WARPS = 16
ELEMENT_TILE_BYTES, ELEMENT_WARPS = 2**11, 2
SMALL_BATCH_ROWS = 8
"""Of a tile of the gradient, where there are no more."""
TOTAL_BLOCK, TOTAL_WARPS = 4096, 8
"""Losses that one program adds up alone."""
SPLIT_BLOCK, SPLIT_WARPS, TOTAL_SPLITS = 1024, 4, 128
"""Of more than these, a program's at once, and how many programs share them out, however many there are, for one that
begins after them: to wait for each other they would need notes that somebody has made zero."""


def split_into_chunks(M: int, N: int, itemsize: int) -> list[int]:
    """M rows of N logits in as few parts as fit, multiples of what a matrix product's tile takes. The smallest comes
    first: what is added up meanwhile is rounded while it is small."""
    most = max(128, LOGITS_BUFFER_BYTES // max(1, N * itemsize) // 128 * 128)
    return [*([M % most] if M % most else []), *[most] * (M // most)]


def elements_per_load(N: int, itemsize: int) -> int:
    return VECTOR_BYTES // itemsize if is_vectorizable(N, itemsize) else 1


def forward_layout(M: int, N: int, itemsize: int) -> RowLayout:
    """Where the loss alone is wanted: the columns are those that all lanes of a row load at once."""
    return _forward_layout(_splits_for_few_rows(M), N, itemsize)


@lru_cache(maxsize=4096)
def _forward_layout(min_splits: int, N: int, itemsize: int) -> RowLayout:
    layout, elements = choose_row_layout(N, itemsize), elements_per_load(N, itemsize)
    if layout.num_splits > 1:
        parts = max(N * itemsize // BYTES_PER_PROGRAM, min_splits)
        most = min(MAX_SPLITS, N * itemsize // (2 * CHUNK_BYTES))
        return RowLayout(1, WARP_SIZE * CHUNK_WARPS * elements, max(1, min(most, parts)), CHUNK_WARPS)
    if layout.block_m == layout.num_warps == 1:  # a multiprocessor has no more programs than would be half of it
        layout = replace(layout, block_m=2, num_warps=2)
    wanted = choose_scalar_lanes(N) if elements == 1 else next_power_of_2(-(-N // elements))
    lanes = min(wanted, max(WARP_SIZE, WARP_SIZE * layout.num_warps // layout.block_m))
    if layout.block_m == 1 and 2 * lanes < wanted and N % (2 * lanes * elements) == 0:
        lanes *= 2  # two to a thread, whose maxima do not wait for each other
    return replace(layout, block_n=lanes * elements)


def fits_one_program(M: int, layout: RowLayout) -> bool:
    """Whether one program has all rows, and can write what their losses come to."""
    return layout.num_programs(M) == 1


def choose_total_launch(M: int) -> tuple[int, int, int]:
    """Of the programs that add up M losses how many each takes at once, their warps, and how many they are."""
    return (TOTAL_BLOCK, TOTAL_WARPS, 1) if M <= TOTAL_BLOCK else (SPLIT_BLOCK, SPLIT_WARPS, TOTAL_SPLITS)


def tiles_in_flight(layout: RowLayout, N: int, itemsize: int) -> int:
    """How many tiles are read before any is worked on."""
    at_once = CHUNK_BYTES if N * itemsize > MAX_ROW_BYTES else N * itemsize
    return -(-at_once // (layout.block_n * itemsize))


def has_few_rows(M: int, N: int, itemsize: int) -> bool:
    """Whether long rows are too few for programs that read them through."""
    return _splits_for_few_rows(M) > N * itemsize // BYTES_PER_PROGRAM


def _splits_for_few_rows(M: int) -> int:
    return next_power_of_2(-(-MIN_PROGRAMS // M))


def gradient_layout(N: int, itemsize: int) -> RowLayout:
    """Where the gradient is written with the loss."""
    layout = choose_row_layout(N, itemsize, max_warps=GRADIENT_WARPS)
    return replace(layout, block_m=max(1, layout.block_m // 2))


def backward_layout(M: int, N: int, itemsize: int) -> RowLayout:
    """Its tiles have nothing to tell each other, so they are small, and smaller for few rows."""
    columns = min(next_power_of_2(N), ELEMENT_TILE_BYTES // itemsize)
    rows = max(1, ELEMENT_TILE_BYTES // itemsize // columns)
    if M <= SMALL_BATCH_ROWS:
        rows = min(rows, SMALL_BATCH_ROWS)
    return RowLayout(rows, columns, -(-N // columns), ELEMENT_WARPS if columns > 2 * WARP_SIZE else 2 * ELEMENT_WARPS)
