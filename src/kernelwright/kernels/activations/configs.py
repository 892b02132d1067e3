"""How much of a tensor one program takes."""

from __future__ import annotations

from kernelwright.kernels.rows.layout import WARP, power_of_two

BLOCK, DRAWN_BLOCK, WARPS = 1024, 2048, 4
"""Eight elements a thread, and sixteen where random numbers are drawn for them, whose work hides more loads."""


def block_of(rows: int, N: int, multiprocessors: int, drawn: bool) -> int:
    """Elements of a program, of rows of N: no more than make one program for each multiprocessor, nor fewer than
    threads."""
    enough = power_of_two(-(-rows * N // multiprocessors))
    return min(max(WARP * WARPS, enough), DRAWN_BLOCK if drawn else BLOCK)
