"""How the rows of a softmax lie on the chip."""

from __future__ import annotations

from functools import lru_cache

from kernelwright.kernels.rows.layout import RowLayout, in_tiles, row_layout

TWO_BLOCKS_AT_ONCE = 1024
"""Threads of a multiprocessor where a row's gradient takes the largest blocks: two of them, for a few spilled words."""
TILES_ROWS = 8
"""Of a warp that has several tiles: with fewer, time goes into beginning programs, 1.5 of them in a nanosecond."""


@lru_cache(maxsize=4096)
def forward_layout(N: int, itemsize: int) -> tuple[RowLayout, int]:
    """The layout, and how many tiles a program has beside each other."""
    return in_tiles(row_layout(N, itemsize), N, itemsize, TILES_ROWS, 1)


def backward_layout(N: int, itemsize: int) -> tuple[RowLayout, int]:
    """The result and its gradient are held at once."""
    return in_tiles(row_layout(N, itemsize, operands=2), N, itemsize, TILES_ROWS, 1)
