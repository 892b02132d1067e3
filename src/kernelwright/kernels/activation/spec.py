"""What an activation must move, and where it is measured."""

from __future__ import annotations

from kernelwright.core.records import Work
from kernelwright.kernels.rows.shapes import SHAPES as ROWS

KINDS = ("silu", "gelu", "gelu_tanh", "relu_squared", "identity")
SHAPES = ((8192, 14336), *ROWS)


def work(M: int, N: int, itemsize: int, *, gated: bool = False, residual: bool = False, backward: bool = False) -> Work:
    """Bytes that must pass for M rows of N elements."""
    whole, operands = M * N * itemsize, 1 + gated
    if backward:
        return Work(bytes_read=(1 + operands) * whole, bytes_written=operands * whole)
    return Work(bytes_read=(operands + residual) * whole, bytes_written=whole)
