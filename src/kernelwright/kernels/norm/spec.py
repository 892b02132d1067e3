"""What a norm is given, what it must move, and where it is measured."""

from __future__ import annotations

from kernelwright.core.records import Work
from kernelwright.kernels.rows.shapes import SHAPES

__all__ = ["SHAPES", "work"]


def work(M: int, N: int, itemsize: int, *, backward: bool = False, residual: bool = False) -> Work:
    """Bytes that must pass for rows of N elements; weights and statistics are not worth counting."""
    whole = M * N * itemsize
    if backward:
        return Work(bytes_read=(3 if residual else 2) * whole, bytes_written=whole)
    tensors = 2 if residual else 1
    return Work(bytes_read=tensors * whole, bytes_written=tensors * whole)
