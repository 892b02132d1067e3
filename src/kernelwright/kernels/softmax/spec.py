"""What softmax must move, and where it is measured."""

from __future__ import annotations

from kernelwright.core.records import Work
from kernelwright.kernels.rows.shapes import SHAPES

__all__ = ["SHAPES", "work"]


def work(M: int, N: int, itemsize: int, *, backward: bool = False) -> Work:
    """Bytes that must pass for rows of N elements, and an exponential for each."""
    whole = M * N * itemsize
    return Work(flops={"special/float32": M * N}, bytes_read=(2 if backward else 1) * whole, bytes_written=whole)
