"""How the rows of a softmax lie on the chip."""

from __future__ import annotations

from dataclasses import replace

from kernelwright.kernels.rows.layout import NARROW_BYTES, WARP, RowLayout, in_vectors, lanes_one_by_one, row_layout

TWO_BLOCKS_AT_ONCE = 1024
"""Threads of a multiprocessor where a row's gradient takes the largest blocks: two of them, for a few spilled words."""

ROWS_OF_TILES = 8
"""Of a warp that has several tiles: with fewer, time goes into beginning programs, 1.5 of them in a nanosecond."""


def forward_layout(N: int, itemsize: int) -> tuple[RowLayout, int]:
    """The layout, and how many tiles a program has beside each other."""
    return _in_tiles(row_layout(N, itemsize), N, itemsize)


def backward_layout(N: int, itemsize: int) -> tuple[RowLayout, int]:
    """The result and its gradient are held at once."""
    return _in_tiles(row_layout(N, itemsize, operands=2), N, itemsize)


def _in_tiles(layout: RowLayout, N: int, itemsize: int) -> tuple[RowLayout, int]:
    lanes = lanes_one_by_one(N)
    if in_vectors(N, itemsize) or N * itemsize <= NARROW_BYTES or lanes >= WARP:
        return layout, 1
    return replace(layout, rows=ROWS_OF_TILES, columns=lanes, warps=1), -(-N // lanes)
