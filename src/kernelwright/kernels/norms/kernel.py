"""RMSNorm and LayerNorm over rows: one read and one write, statistics in FP32.

Idea: a row stays in registers between its statistics and its result; see rows/tile.py for rows that are too long for
one program. Variance is taken in two passes over the registers, and parts of a row are merged by their means, so that
a large offset costs no accuracy. Bound: DRAM, 2 * M * N * itemsize bytes forward (4 with a residual), 3 backward.
Backward, each program keeps its share of the weight's gradient in registers over all its rows; the shares are added
in a fixed order afterwards, so that results repeat.

Source: Zhang & Sennrich 2019, arXiv:1910.07467; Ba et al. 2016, arXiv:1607.06450; merging of parts: Chan et al. 1979.
"""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import PUBLISH, begin_of, exchanged, place, tile


@triton.jit
def _scale_of(weight_ptr, columns, N: tl.constexpr, offset: tl.constexpr):
    return tl.load(weight_ptr + columns, mask=columns < N, other=0.0).to(tl.float32) + offset


@triton.jit
def _moments(
    x,
    there,
    first,
    part,
    found_ptr,
    notes_ptr,
    N: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PARTS: tl.constexpr,
    STEP: tl.constexpr,
    CENTRED: tl.constexpr,
):
    """Mean (0 where nothing is centred) and mean square around it of each row, (ROWS, 1)."""
    count = tl.minimum(N - part * BLOCK_N, BLOCK_N) if PARTS > 1 else N
    mean = tl.sum(x, 1, keep_dims=True) / count if CENTRED else tl.zeros_like(tl.max(x, 1, keep_dims=True))
    apart = tl.where(there, x - mean, 0.0)
    square = tl.sum(apart * apart, 1, keep_dims=True)
    if PARTS > 1:
        means, squares, _ = exchanged(mean, square, square, 0.0, first, part, found_ptr, notes_ptr, PARTS, STEP)
        if CENTRED:
            parts = tl.arange(0, triton.next_power_of_2(PARTS))[None, :]
            counts = tl.maximum(tl.minimum(N - parts * BLOCK_N, BLOCK_N), 0)
            mean = tl.sum(means * counts, 1, keep_dims=True) / N
            squares += counts * (means - mean) * (means - mean)
        square = tl.sum(squares, 1, keep_dims=True)
    return mean, square / N


@triton.jit(do_not_specialize=["M"])
def norm_forward(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, y_ptr, sum_ptr, mean_ptr, rstd_ptr,
    x_inner, x_outer_stride, x_inner_stride, r_inner, r_outer_stride, r_inner_stride,
    M, found_ptr, notes_ptr,
    N: tl.constexpr, eps: tl.constexpr, offset: tl.constexpr, CENTRED: tl.constexpr, CAST_FIRST: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    first, part = place(notes_ptr, PARTS, ROWS)
    rows, columns = tile(first, part, ROWS, BLOCK_N)
    there = (rows < M) & (columns < N)
    at = begin_of(rows, x_inner, x_outer_stride, x_inner_stride) + columns
    x = tl.load(x_ptr + at, mask=there, other=0.0).to(tl.float32)
    if residual_ptr is not None:
        at = begin_of(rows, r_inner, r_outer_stride, r_inner_stride) + columns
        x += tl.load(residual_ptr + at, mask=there, other=0.0).to(tl.float32)
        x = x.to(sum_ptr.dtype.element_ty)
        if STEP != PUBLISH:
            tl.store(sum_ptr + rows * N + columns, x, mask=there)
        x = x.to(tl.float32)
    mean, square = _moments(x, there, first, part, found_ptr, notes_ptr, N, BLOCK_N, PARTS, STEP, CENTRED)
    rstd = tl.rsqrt(square + eps)
    y = (x - mean) * rstd
    if CAST_FIRST:
        y = y.to(x_ptr.dtype.element_ty).to(tl.float32)
    if weight_ptr is not None:
        y *= _scale_of(weight_ptr, columns, N, offset)
    if bias_ptr is not None:
        y += tl.load(bias_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)
    if STEP != PUBLISH:
        tl.store(y_ptr + rows * N + columns, y.to(y_ptr.dtype.element_ty), mask=there)
        if rstd_ptr is not None and part == 0:
            tl.store(rstd_ptr + rows, rstd, mask=rows < M)
            if CENTRED:
                tl.store(mean_ptr + rows, mean, mask=rows < M)


@triton.jit(do_not_specialize=["M", "stride"])
def norm_backward(
    dy_ptr, dsum_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, dweight_ptr, dbias_ptr,
    dy_inner, dy_outer_stride, dy_inner_stride, x_inner, x_outer_stride, x_inner_stride,
    stride, M, found_ptr, notes_ptr,
    N: tl.constexpr, offset: tl.constexpr, CENTRED: tl.constexpr, CAST_FIRST: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    begin, part = place(notes_ptr, PARTS, ROWS)
    dweight = tl.zeros((ROWS, BLOCK_N), tl.float32)
    dbias = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for first in range(begin, M, stride):
        rows, columns = tile(first, part, ROWS, BLOCK_N)
        there = (rows < M) & (columns < N)
        at = begin_of(rows, dy_inner, dy_outer_stride, dy_inner_stride) + columns
        dy = tl.load(dy_ptr + at, mask=there, other=0.0).to(tl.float32)
        at = begin_of(rows, x_inner, x_outer_stride, x_inner_stride) + columns
        x = tl.load(x_ptr + at, mask=there, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
        if CENTRED:
            x -= tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
        x = tl.where(there, x * rstd, 0.0)
        shown = x.to(dy_ptr.dtype.element_ty).to(tl.float32) if CAST_FIRST else x
        dweight += dy * shown
        dbias += dy
        if weight_ptr is not None:
            dy *= _scale_of(weight_ptr, columns, N, offset)
        along, level = tl.sum(dy * x, 1, keep_dims=True), tl.sum(dy, 1, keep_dims=True)
        if PARTS > 1:
            alongs, levels, _ = exchanged(along, level, level, 0.0, first, part, found_ptr, notes_ptr, PARTS, STEP)
            along, level = tl.sum(alongs, 1, keep_dims=True), tl.sum(levels, 1, keep_dims=True)
        dx = dy - x * (along / N)
        if CENTRED:
            dx -= level / N
        dx *= rstd
        if STEP != PUBLISH:
            if dsum_ptr is not None:
                dx += tl.load(dsum_ptr + rows * N + columns, mask=there, other=0.0).to(tl.float32)
            tl.store(dx_ptr + rows * N + columns, dx.to(dx_ptr.dtype.element_ty), mask=there)
    if STEP != PUBLISH:
        columns = part * BLOCK_N + tl.arange(0, BLOCK_N)
        at = (begin // ROWS) * N + columns
        if dweight_ptr is not None:
            tl.store(dweight_ptr + at, tl.sum(dweight, 0), mask=columns < N)
        if dbias_ptr is not None:
            tl.store(dbias_ptr + at, tl.sum(dbias, 0), mask=columns < N)
