"""How rows of logits lie on the chip."""

from __future__ import annotations

from kernelwright.kernels.rows.layout import RowLayout, row_layout


def forward_layout(N: int, itemsize: int) -> RowLayout:
    return row_layout(N, itemsize)


def backward_layout(N: int, itemsize: int) -> RowLayout:
    """Its tiles have nothing to tell each other, so they are small."""
    return row_layout(N, itemsize, operands=4)
