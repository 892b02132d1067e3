"""How blocks share the FP32 matrices that `split.cu` splits; needs no torch."""

from __future__ import annotations

from enum import IntEnum

FIND_LARGEST, SPLIT = "find_largest", "split_operands"
THREADS, WARPS = 256, 8
MAX_WARP_K = 2048
"""Rows along K up to which a warp splits one: 16 vectors for each thread."""
MIN_TILED_ELEMENTS, TILE_COLUMNS, MIN_CHUNK, TILES_PER_SM = 1 << 20, 128, 64, 8
"""Columns are split in tiles from so many elements on, and K in chunks of so many lines at least: so many blocks for
each multiprocessor keep the memory busy."""


class Layout(IntEnum):
    """`Layout` of split.cu."""

    BLOCK_ROWS, WARP_ROWS, COLUMNS, COLUMN_TILES, NONE = range(5)

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return (1, WARPS, 8, TILE_COLUMNS, THREADS)[self]


def choose_layout(batch: int, count: int, k: int, *, is_transposed: bool) -> Layout:
    """How blocks share so many rows of K."""
    if is_transposed:
        return Layout.COLUMN_TILES if batch * count * k >= MIN_TILED_ELEMENTS else Layout.COLUMNS
    return Layout.WARP_ROWS if k <= MAX_WARP_K else Layout.BLOCK_ROWS
