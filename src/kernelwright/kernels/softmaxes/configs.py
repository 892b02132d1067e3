"""How the rows of a softmax lie on the chip."""

from __future__ import annotations

from dataclasses import replace

from kernelwright.kernels.rows.layout import NARROW_BYTES, WARP, RowLayout, in_vectors, lanes_one_by_one, row_layout

TWO_BLOCKS_AT_ONCE = 1024
"""Threads of a multiprocessor where a row's gradient takes the largest blocks: two of them, for a few spilled words."""


def forward_layout(N: int, itemsize: int) -> tuple[RowLayout, int]:
    """The layout, and how many tiles a program has beside each other."""
    layout, lanes = row_layout(N, itemsize), lanes_one_by_one(N)
    if in_vectors(N, itemsize) or N * itemsize <= NARROW_BYTES or lanes >= WARP:
        return layout, 1
    return replace(layout, columns=lanes), -(-N // lanes)


def backward_layout(N: int, itemsize: int) -> RowLayout:
    """The result and its gradient are held at once."""
    return row_layout(N, itemsize, operands=2)
