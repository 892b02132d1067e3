"""How the rows of a norm lie on the chip."""

from __future__ import annotations

from kernelwright.kernels.rows.layout import RowLayout, row_layout

GROUPS_PER_MULTIPROCESSOR = 2
BACKWARD_STAGES = 2
"""Tiles of a program that are under way or in use."""
SHARES_COLUMNS, SHARES_ROWS, SHARES_WARPS = 32, 64, 4


def forward_layout(N: int, itemsize: int) -> RowLayout:
    return row_layout(N, itemsize)


def backward_layout(N: int, itemsize: int) -> RowLayout:
    """x, its gradient, and the weight's gradient in FP32 are held at once."""
    return row_layout(N, itemsize, operands=2)


def backward_groups(M: int, layout: RowLayout, multiprocessors: int) -> int:
    """Programs that share the rows out, each keeping its own sum of the weight's gradient."""
    most = max(1, GROUPS_PER_MULTIPROCESSOR * multiprocessors // layout.parts)
    return max(1, min(-(-M // layout.rows), most))
