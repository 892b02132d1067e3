"""Block sizes of the activations."""

from __future__ import annotations

from kernelwright.kernels.rows.layout import WARP_SIZE, next_power_of_2

BLOCK, DROPOUT_BLOCK, WARPS = 1024, 2048, 4
"""Eight elements per thread; sixteen with dropout, where computing random numbers hides more loads."""


def choose_block(rows: int, N: int, multiprocessors: int, has_dropout: bool) -> int:
    """Elements per program for `rows` rows of N: small inputs are spread over all SMs, with at least one element per
    thread."""
    elements_per_sm = next_power_of_2(-(-rows * N // multiprocessors))
    return min(max(WARP_SIZE * WARPS, elements_per_sm), DROPOUT_BLOCK if has_dropout else BLOCK)
