"""How the rows of a softmax lie on the chip."""

from __future__ import annotations

from kernelwright.kernels.rows.layout import RowLayout, row_layout

TWO_BLOCKS_AT_ONCE = 1024
"""Threads of a multiprocessor where a row's gradient takes the largest blocks: two of them, for a few spilled words."""


def forward_layout(N: int, itemsize: int) -> RowLayout:
    return row_layout(N, itemsize)


def backward_layout(N: int, itemsize: int) -> RowLayout:
    """The result and its gradient are held at once."""
    return row_layout(N, itemsize, operands=2)
