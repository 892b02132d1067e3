"""Tile layouts of cross-entropy."""

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
"""Block, warps, and programs per SM of the in-place scaling: launching a program costs more than finding the scale
to be 1."""
TARGET_GRAD_BLOCK, TARGET_GRAD_WARPS = 1024, 4
LOGITS_BUFFER_BYTES = 2**29
"""Logits that a linear layer holds at a time: 2048 rows of 128256 in 16 bits, enough for full speed of the GEMMs. The
weight gradient is rounded, read and written once per buffer."""
CHUNK_BYTES, CHUNK_WARPS, CHUNK_STAGES = 2**11, 1, 3
"""Chunk of a row that is streamed, warps per program and pipeline stages: one warp needs no barrier."""
BYTES_PER_PROGRAM, MAX_SPLITS = 2**15, 64
"""Bytes of a row that one program streams if there are enough rows, and the maximum number of splits."""
MIN_PROGRAMS = 2**12
"""With fewer rows each is split."""
GRADIENT_WARPS = 16
ELEMENT_TILE_BYTES, ELEMENT_WARPS = 2**11, 2
SMALL_BATCH_ROWS = 8
"""Rows of a tile of the gradient if there are no more."""
TOTAL_BLOCK, TOTAL_WARPS = 4096, 8
"""Losses that a single program reduces, and its warps."""
SPLIT_BLOCK, SPLIT_WARPS, TOTAL_SPLITS = 1024, 4, 128
"""For more losses: block, warps and number of programs, whose partials a second launch reduces. A fused reduction
would need a workspace initialized to zero."""


def split_into_chunks(M: int, N: int, itemsize: int) -> list[int]:
    """Sizes of the chunks in which M rows of N logits are processed: as few as fit the buffer, multiples of a GEMM
    tile.

    The smallest chunk comes first, so that accumulated gradients are rounded while they are small.
    """
    max_rows = max(128, LOGITS_BUFFER_BYTES // max(1, N * itemsize) // 128 * 128)
    return [*([M % max_rows] if M % max_rows else []), *[max_rows] * (M // max_rows)]


def elements_per_load(N: int, itemsize: int) -> int:
    """Elements per 16-byte load; 1 for scalar loads."""
    return VECTOR_BYTES // itemsize if is_vectorizable(N, itemsize) else 1


def forward_layout(M: int, N: int, itemsize: int) -> RowLayout:
    """The layout of the loss without gradient; `block_n` is the number of columns that all lanes of a row load
    together."""
    return _forward_layout(_splits_for_few_rows(M), N, itemsize)


@lru_cache(maxsize=4096)
def _forward_layout(min_splits: int, N: int, itemsize: int) -> RowLayout:
    layout, elements = choose_row_layout(N, itemsize), elements_per_load(N, itemsize)
    if layout.num_splits > 1:
        num_splits = max(N * itemsize // BYTES_PER_PROGRAM, min_splits)
        max_splits = min(MAX_SPLITS, N * itemsize // (2 * CHUNK_BYTES))
        return RowLayout(1, WARP_SIZE * CHUNK_WARPS * elements, max(1, min(max_splits, num_splits)), CHUNK_WARPS)
    if layout.block_m == layout.num_warps == 1:  # an SM holds too few such programs to fill it
        layout = replace(layout, block_m=2, num_warps=2)
    max_lanes = choose_scalar_lanes(N) if elements == 1 else next_power_of_2(-(-N // elements))
    lanes = min(max_lanes, max(WARP_SIZE, WARP_SIZE * layout.num_warps // layout.block_m))
    if layout.block_m == 1 and 2 * lanes < max_lanes and N % (2 * lanes * elements) == 0:
        lanes *= 2  # two loads per thread, whose maxima are independent
    return replace(layout, block_n=lanes * elements)


def fits_one_program(M: int, layout: RowLayout) -> bool:
    """Whether one program has all rows, and can also reduce their losses."""
    return layout.num_programs(M) == 1


def choose_total_launch(M: int) -> tuple[int, int, int]:
    """(block, warps, programs) of the reduction of M losses."""
    return (TOTAL_BLOCK, TOTAL_WARPS, 1) if M <= TOTAL_BLOCK else (SPLIT_BLOCK, SPLIT_WARPS, TOTAL_SPLITS)


def tiles_in_flight(layout: RowLayout, N: int, itemsize: int) -> int:
    """Tiles that are loaded before any is processed."""
    load_bytes = CHUNK_BYTES if N * itemsize > MAX_ROW_BYTES else N * itemsize
    return -(-load_bytes // (layout.block_n * itemsize))


def has_few_rows(M: int, N: int, itemsize: int) -> bool:
    """Whether there are too few long rows for programs that stream them."""
    return _splits_for_few_rows(M) > N * itemsize // BYTES_PER_PROGRAM


def _splits_for_few_rows(M: int) -> int:
    return next_power_of_2(-(-MIN_PROGRAMS // M))


def gradient_layout(N: int, itemsize: int) -> RowLayout:
    """The layout where the gradient is computed with the loss."""
    layout = choose_row_layout(N, itemsize, max_warps=GRADIENT_WARPS)
    return replace(layout, block_m=max(1, layout.block_m // 2))


def backward_layout(M: int, N: int, itemsize: int) -> RowLayout:
    """The layout of the gradient alone: its tiles are independent, so they are small, and smaller for few rows."""
    columns = min(next_power_of_2(N), ELEMENT_TILE_BYTES // itemsize)
    rows = max(1, ELEMENT_TILE_BYTES // itemsize // columns)
    if M <= SMALL_BATCH_ROWS:
        rows = min(rows, SMALL_BATCH_ROWS)
    return RowLayout(rows, columns, -(-N // columns), ELEMENT_WARPS if columns > 2 * WARP_SIZE else 2 * ELEMENT_WARPS)
