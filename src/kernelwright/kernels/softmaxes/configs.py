"""Tile layouts of softmax."""

from __future__ import annotations

from functools import lru_cache

from kernelwright.kernels.rows.layout import RowLayout, choose_row_layout, split_into_tiles

TWO_BLOCK_THREADS_PER_SM = 1024
"""Resident threads per SM for the largest blocks of the gradient: two blocks, at the cost of a few spilled
registers."""
MULTI_TILE_ROWS = 8
"""Rows of a one-warp program with several tiles: with fewer, launching programs dominates, 1.5 per nanosecond."""


@lru_cache(maxsize=4096)
def forward_layout(N: int, itemsize: int) -> tuple[RowLayout, int]:
    """The layout and the number of tiles per program."""
    return split_into_tiles(choose_row_layout(N, itemsize), N, itemsize, MULTI_TILE_ROWS, 1)


def backward_layout(N: int, itemsize: int) -> tuple[RowLayout, int]:
    """As `forward_layout`, for a program that holds the result and its gradient."""
    return split_into_tiles(choose_row_layout(N, itemsize, operands=2), N, itemsize, MULTI_TILE_ROWS, 1)
