"""What cross-entropy must move, and where it is measured."""

from __future__ import annotations

from kernelwright.core.records import Work
from kernelwright.kernels.rows.shapes import SHAPES

__all__ = ["SHAPES", "work"]


def work(M: int, N: int, itemsize: int, *, backward: bool = False, both: bool = False) -> Work:
    """Bytes that must pass for M rows of N logits: the loss reads them, the gradient is written beside another read, or
    beside the loss's own where `both` come of one program."""
    whole = M * N * itemsize
    return Work(flops={"special/float32": M * N}, bytes_read=whole, bytes_written=whole if backward or both else 0)
