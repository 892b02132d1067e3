"""RMSNorm and LayerNorm over rows: one read and one write, statistics in FP32.

Idea: a row stays in registers between its statistics and its result; see rows/tile.py for rows that are too long for
one program. Variance is taken in two passes over the registers, the second of which also finds what the mean is off by
where equal elements need not add up exactly, and parts are merged by their means, so that neither a large offset nor an
outlier costs accuracy. Weights come with the row where registers are left for them (`AHEAD`). Bound: DRAM, 2 * M * N *
itemsize bytes (4 with a residual). Gradients: backward_kernel.py.

Source: Zhang & Sennrich 2019, arXiv:1910.07467; Ba et al. 2016, arXiv:1607.06450; merging of parts: Chan et al. 1979.
"""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import (
    KEPT,
    LEFT,
    ONCE,
    PUBLISH,
    collected,
    of_row,
    place,
    product,
    programmatic_launch,
    publish,
    read,
    read_along,
    sums,
    tile,
    wait_for_earlier,
)

MOST_EXACT = tl.constexpr(2**13)
"""Equal numbers of 11 bits that add up exactly in FP32; of a power of two of them the mean is exact too."""


@triton.constexpr_function
def _has_16_bits(x_ptr, sum_ptr):
    """Whether what is normalised is stored in 16 bits."""
    return (x_ptr if sum_ptr is None else sum_ptr).dtype.element_ty.primitive_bitwidth == 16


@triton.jit
def _input(
    x_ptr, residual_ptr, sum_ptr, rows, columns, there,
    x_inner, x_outer_stride, x_inner_stride, r_inner, r_outer_stride, r_inner_stride, CACHED: tl.constexpr,
):  # fmt: skip
    """A tile of x, or of x + residual, rounded as the sum is stored, in FP32."""
    x = read(x_ptr, rows, columns, there, x_inner, x_outer_stride, x_inner_stride, 0.0, CACHED)
    if residual_ptr is not None:
        x += read(residual_ptr, rows, columns, there, r_inner, r_outer_stride, r_inner_stride, 0.0, CACHED)
        x = x.to(sum_ptr.dtype.element_ty).to(tl.float32)
    return x


@triton.jit
def _merged(
    square, base, off, row, part, notes_ptr,
    N: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, STEP: tl.constexpr, CENTRED: tl.constexpr,
):  # fmt: skip
    """Of a whole row the sum of squares around its mean, and what that is off this part's base, from what its parts
    found of themselves."""
    publish(square, 0, row, part, notes_ptr, PARTS, STEP)
    if CENTRED:
        publish(base + off, 1, row, part, notes_ptr, PARTS, STEP)
    squares = collected(0, 0.0, row, notes_ptr, PARTS, STEP)
    if CENTRED:
        parts = tl.arange(0, triton.next_power_of_2(PARTS))
        counts = tl.maximum(tl.minimum(N - parts * BLOCK_N, BLOCK_N), 0)
        apart = collected(1, 0.0, row, notes_ptr, PARTS, STEP) - base
        off = tl.sum(tl.where(counts > 0, apart * counts, 0.0), 0) * (1.0 / N)
        squares += counts * (apart - off) * (apart - off)
    return tl.sum(squares, 0), off


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def norm_forward(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, y_ptr, sum_ptr, mean_ptr, rstd_ptr,
    x_inner, x_outer_stride, x_inner_stride, r_inner, r_outer_stride, r_inner_stride,
    M, notes_ptr,
    N: tl.constexpr, eps: tl.constexpr, offset: tl.constexpr, CENTRED: tl.constexpr, CAST_FIRST: tl.constexpr,
    AHEAD: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, AGAIN: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    wait_for_earlier()
    first, part = place(ROWS, PARTS)
    rows, columns = tile(first, part, ROWS, BLOCK_N)
    there = (rows < M) & (columns < N)
    given = (
        x_ptr, residual_ptr, sum_ptr, rows, columns, there,
        x_inner, x_outer_stride, x_inner_stride, r_inner, r_outer_stride, r_inner_stride,
    )  # fmt: skip
    FIRST: tl.constexpr = KEPT if AGAIN and PARTS == 1 else ONCE
    x = _input(*given, FIRST)
    if AHEAD and weight_ptr is not None:
        weight = read_along(weight_ptr, columns, N) + offset
    if AHEAD and bias_ptr is not None:
        bias = read_along(bias_ptr, columns, N)
    if residual_ptr is not None and STEP != PUBLISH:
        tl.store(sum_ptr + rows * N + columns, x.to(sum_ptr.dtype.element_ty), mask=there)
    base = tl.zeros((ROWS, 1), tl.float32)
    off = base
    EXACT: tl.constexpr = PARTS == 1 and BLOCK_N == N and N <= MOST_EXACT and _has_16_bits(x_ptr, sum_ptr)
    if CENTRED:
        share = 1.0 / (tl.minimum(N - part * BLOCK_N, BLOCK_N) if PARTS > 1 else N)
        base = tl.sum(x, 1, keep_dims=True) * share
        x = tl.where(columns < N, x - base, 0.0)
        if EXACT:
            square = tl.sum(product(x, x, BLOCK_N), 1, keep_dims=True)
        else:
            off, square = sums(x, product(x, x, BLOCK_N))
            off *= share
            square = tl.maximum(square - off * off * (1.0 / share), 0.0)
    else:
        square = tl.sum(product(x, x, BLOCK_N), 1, keep_dims=True)
    if PARTS > 1:
        square, off = _merged(
            of_row(square), of_row(base), of_row(off), first, part, notes_ptr, N, BLOCK_N, PARTS, STEP, CENTRED
        )  # fmt: skip
    if AGAIN:
        x = _input(*given, LEFT)
        if CENTRED:
            x -= base
    rstd = tl.rsqrt(square * (1.0 / N) + eps)
    y = x * rstd
    if CENTRED and not EXACT:
        y -= off * rstd
    if CAST_FIRST:
        y = y.to(x_ptr.dtype.element_ty).to(tl.float32)
    if weight_ptr is not None:
        y *= weight if AHEAD else read_along(weight_ptr, columns, N) + offset
    if bias_ptr is not None:
        y += bias if AHEAD else read_along(bias_ptr, columns, N)
    if STEP != PUBLISH:
        tl.store(y_ptr + rows * N + columns, y.to(y_ptr.dtype.element_ty), mask=there)
        if rstd_ptr is not None and part == 0:
            zeros = tl.zeros((ROWS, 1), tl.float32)
            tl.store(rstd_ptr + rows, rstd + zeros, mask=rows < M)
            if CENTRED:
                tl.store(mean_ptr + rows, base + off, mask=rows < M)
