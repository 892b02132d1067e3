"""How much of a tensor one program takes."""

from __future__ import annotations

from kernelwright.kernels.rows.layout import WARP_SIZE, next_power_of_2

BLOCK, DROPOUT_BLOCK, WARPS = 1024, 2048, 4
"""Eight elements a thread, and sixteen where random numbers are drawn for them, whose work hides more loads."""


def choose_block(rows: int, N: int, multiprocessors: int, has_dropout: bool) -> int:
    """Elements of a program, of rows of N: no more than make one program for each multiprocessor, nor fewer than
    threads."""
    enough = next_power_of_2(-(-rows * N // multiprocessors))
    return min(max(WARP_SIZE * WARPS, enough), DROPOUT_BLOCK if has_dropout else BLOCK)
