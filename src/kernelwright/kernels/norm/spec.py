"""What a norm is given, what it must move, and where it is measured."""

from __future__ import annotations

from kernelwright.core.records import Work

SHAPES = (
    (16384, 4096), (8192, 8192), (131072, 128), (32768, 1024), (4096, 16384), (8192, 65536), (4096, 131072),
    (4096, 2560), (2048, 5120), (1, 4096), (64, 128256), (7, 13), (100003, 33),
)  # fmt: skip
"""(M, N), as the peers are measured."""


def work(M: int, N: int, itemsize: int, *, backward: bool = False, residual: bool = False) -> Work:
    """Bytes that must pass for rows of N elements; weights and statistics are not worth counting."""
    whole = M * N * itemsize
    if backward:
        return Work(bytes_read=(3 if residual else 2) * whole, bytes_written=whole)
    tensors = 2 if residual else 1
    return Work(bytes_read=tensors * whole, bytes_written=tensors * whole)
