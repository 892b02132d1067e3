"""How the rows of a softmax lie on the chip."""

from __future__ import annotations

from functools import lru_cache

from kernelwright.kernels.rows.layout import RowLayout, choose_row_layout, split_into_tiles

TWO_BLOCK_THREADS_PER_SM = 1024
"""Threads of a multiprocessor where a row's gradient takes the largest blocks: two of them, for a few spilled words."""
MULTI_TILE_ROWS = 8
"""Of a warp that has several tiles: with fewer, time goes into beginning programs, 1.5 of them in a nanosecond."""


@lru_cache(maxsize=4096)
def forward_layout(N: int, itemsize: int) -> tuple[RowLayout, int]:
    """The layout, and how many tiles a program has beside each other."""
    return split_into_tiles(choose_row_layout(N, itemsize), N, itemsize, MULTI_TILE_ROWS, 1)


def backward_layout(N: int, itemsize: int) -> tuple[RowLayout, int]:
    """The result and its gradient are held at once."""
    return split_into_tiles(choose_row_layout(N, itemsize, operands=2), N, itemsize, MULTI_TILE_ROWS, 1)
