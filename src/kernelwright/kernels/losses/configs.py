"""How rows of logits lie on the chip."""

from __future__ import annotations

from kernelwright.kernels.rows.layout import RowLayout, row_layout

SCALE_BLOCK, SCALE_WARPS = 4096, 4
LOGITS_BYTES = 2**29
"""Of logits that a linear layer holds at once."""


def rows_at_once(N: int, itemsize: int) -> int:
    """Rows of N logits that fit, a multiple of what a matrix product's tile takes."""
    return max(128, LOGITS_BYTES // max(1, N * itemsize) // 128 * 128)


def forward_layout(N: int, itemsize: int) -> RowLayout:
    return row_layout(N, itemsize)


def backward_layout(N: int, itemsize: int) -> RowLayout:
    """Its tiles have nothing to tell each other, so they are small."""
    return row_layout(N, itemsize, operands=4)
