"""RMSNorm and LayerNorm over rows: one read and one write, statistics in FP32.

Idea: a row stays in registers between its statistics and its result; see rows/tile.py for rows that are too long for
one program. Variance is taken in two passes over the registers, the second of which also finds what the mean is off by
where equal elements need not add up exactly, and parts are merged by their means, so that neither a large offset nor an
outlier costs accuracy. Weights come with the
row where registers are left for them (`AHEAD`). Bound: DRAM, 2 * M * N * itemsize bytes forward (4 with a residual),
3 backward. Backward, each program keeps its share of the weight's gradient in registers over all its rows, while the
next ones come; the shares are added in a fixed order afterwards, so that results repeat. Of so few rows that shares
would be as many bytes, that gradient is a second reading.

Source: Zhang & Sennrich 2019, arXiv:1910.07467; Ba et al. 2016, arXiv:1607.06450; merging of parts: Chan et al. 1979.
"""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import (
    PUBLISH,
    collected,
    of_row,
    place,
    product,
    publish,
    read,
    read_along,
    sums,
    tile,
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
    x_inner, x_outer_stride, x_inner_stride, r_inner, r_outer_stride, r_inner_stride, AGAIN: tl.constexpr,
):  # fmt: skip
    """A tile of x, or of x + residual, rounded as the sum is stored, in FP32."""
    x = read(x_ptr, rows, columns, there, x_inner, x_outer_stride, x_inner_stride, 0.0, AGAIN)
    if residual_ptr is not None:
        x += read(residual_ptr, rows, columns, there, r_inner, r_outer_stride, r_inner_stride, 0.0, AGAIN)
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


@triton.jit(do_not_specialize=["M"])
def norm_forward(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, y_ptr, sum_ptr, mean_ptr, rstd_ptr,
    x_inner, x_outer_stride, x_inner_stride, r_inner, r_outer_stride, r_inner_stride,
    M, notes_ptr,
    N: tl.constexpr, eps: tl.constexpr, offset: tl.constexpr, CENTRED: tl.constexpr, CAST_FIRST: tl.constexpr,
    AHEAD: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, AGAIN: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    first, part = place(ROWS, PARTS)
    rows, columns = tile(first, part, ROWS, BLOCK_N)
    there = (rows < M) & (columns < N)
    given = (
        x_ptr, residual_ptr, sum_ptr, rows, columns, there,
        x_inner, x_outer_stride, x_inner_stride, r_inner, r_outer_stride, r_inner_stride,
    )  # fmt: skip
    x = _input(*given, False)
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
        x = _input(*given, True)
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


@triton.jit
def _zeros(ROWS: tl.constexpr, BLOCK_N: tl.constexpr, TILES: tl.constexpr):
    """So many tiles of them."""
    tiles = ()
    for _ in tl.static_range(TILES):
        tiles += (tl.zeros((ROWS, BLOCK_N), tl.float32),)
    return tiles


@triton.jit
def _normalised(x, mean, rstd, there, CENTRED: tl.constexpr):
    """Zero where nothing is, so that it adds nothing to sums."""
    return tl.where(there, (x - mean) * rstd, 0.0) if CENTRED else x * rstd


@triton.jit(do_not_specialize=["M"])
def norm_backward(
    dy_ptr, dsum_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, dweight_ptr, dbias_ptr,
    dy_inner, dy_outer_stride, dy_inner_stride, x_inner, x_outer_stride, x_inner_stride,
    M, notes_ptr,
    N: tl.constexpr, offset: tl.constexpr, CENTRED: tl.constexpr, CAST_FIRST: tl.constexpr, TILES: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, AGAIN: tl.constexpr, STEP: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    begin, part = place(ROWS, PARTS)
    dweight, dbias = _zeros(ROWS, BLOCK_N, TILES), _zeros(ROWS, BLOCK_N, TILES)
    for first in tl.range(begin, M, tl.num_programs(0) // PARTS * ROWS, num_stages=STAGES):
        rows, _ = tile(first, part, ROWS, BLOCK_N)
        rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
        mean = 0.0
        if CENTRED:
            mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
        tiles, dweights, dbiases = (), (), ()
        along, level = tl.zeros((ROWS, BLOCK_N), tl.float32), tl.zeros((ROWS, BLOCK_N), tl.float32)
        for i in tl.static_range(TILES):
            _, columns = tile(first, part * TILES + i, ROWS, BLOCK_N)
            there = (rows < M) & (columns < N)
            dy = read(dy_ptr, rows, columns, there, dy_inner, dy_outer_stride, dy_inner_stride, 0.0)
            x = read(x_ptr, rows, columns, there, x_inner, x_outer_stride, x_inner_stride, 0.0)
            x = _normalised(x, mean, rstd, there, CENTRED)
            dweights += (dweight[i] + dy * (x.to(dy_ptr.dtype.element_ty).to(tl.float32) if CAST_FIRST else x),)
            dbiases += (dbias[i] + dy,)
            if weight_ptr is not None:
                dy *= read_along(weight_ptr, columns, N) + offset
            along = product(dy, x, BLOCK_N) if TILES == 1 else along + dy * x
            level = dy if TILES == 1 else level + dy
            tiles += ((dy, x, columns, there),)
        dweight, dbias = dweights, dbiases
        if CENTRED:
            along, level = sums(along, level)
        else:
            along = tl.sum(along, 1, keep_dims=True)
        if PARTS > 1:
            publish(of_row(along), 0, first, part, notes_ptr, PARTS, STEP)
            if CENTRED:
                publish(of_row(level), 1, first, part, notes_ptr, PARTS, STEP)
            along = tl.sum(collected(0, 0.0, first, notes_ptr, PARTS, STEP), 0)
            if CENTRED:
                level = tl.sum(collected(1, 0.0, first, notes_ptr, PARTS, STEP), 0)
        for i in tl.static_range(TILES):
            dy, x, columns, there = tiles[i]
            dx = dy - x * (along * (1.0 / N))
            if CENTRED:
                dx -= level * (1.0 / N)
            dx *= rstd
            if STEP != PUBLISH:
                if dsum_ptr is not None:
                    dx += read(dsum_ptr, rows, columns, there, 1, N, 0, 0.0)
                tl.store(dx_ptr + rows * N + columns, dx.to(dx_ptr.dtype.element_ty), mask=there)
    if STEP != PUBLISH:
        for i in tl.static_range(TILES):
            columns = (part * TILES + i) * BLOCK_N + tl.arange(0, BLOCK_N)
            at = (begin // ROWS) * N + columns
            if dweight_ptr is not None:
                tl.store(dweight_ptr + at, tl.sum(dweight[i], 0), mask=columns < N)
            if dbias_ptr is not None:
                tl.store(dbias_ptr + at, tl.sum(dbias[i], 0), mask=columns < N)


@triton.jit(do_not_specialize=["M"])
def weight_gradients(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, dweight_ptr, dbias_ptr,
    dy_inner, dy_outer_stride, dy_inner_stride, x_inner, x_outer_stride, x_inner_stride, M,
    N: tl.constexpr, CENTRED: tl.constexpr, CAST_FIRST: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Those of few rows, down the columns, in an order that is always the same."""
    dweight, dbias = tl.zeros((ROWS, BLOCK_N), tl.float32), tl.zeros((ROWS, BLOCK_N), tl.float32)
    for first in range(0, M, ROWS):
        rows, columns = tile(first, tl.program_id(0), ROWS, BLOCK_N)
        there = (rows < M) & (columns < N)
        rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
        mean = 0.0
        if CENTRED:
            mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
        dy = read(dy_ptr, rows, columns, there, dy_inner, dy_outer_stride, dy_inner_stride, 0.0)
        x = read(x_ptr, rows, columns, there, x_inner, x_outer_stride, x_inner_stride, 0.0)
        x = _normalised(x, mean, rstd, there, CENTRED)
        dweight += dy * (x.to(dy_ptr.dtype.element_ty).to(tl.float32) if CAST_FIRST else x)
        dbias += dy
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    if dweight_ptr is not None:
        tl.store(dweight_ptr + columns, tl.sum(dweight, 0).to(dweight_ptr.dtype.element_ty), mask=columns < N)
    if dbias_ptr is not None:
        tl.store(dbias_ptr + columns, tl.sum(dbias, 0).to(dbias_ptr.dtype.element_ty), mask=columns < N)


@triton.jit(do_not_specialize=["shares"])
def sums_of_shares(
    shares_ptr, sum_ptr, more_shares_ptr, more_sum_ptr, shares,
    N: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_SHARES: tl.constexpr,
):  # fmt: skip
    """Adds up (shares, N) over its rows, in an order that is always the same; a second one by as many programs more."""
    BLOCKS: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    columns = tl.program_id(0) % BLOCKS * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    if more_shares_ptr is not None:
        of_more = tl.program_id(0) >= BLOCKS
        if of_more:
            shares_ptr, sum_ptr = more_shares_ptr, more_sum_ptr
    total = tl.zeros((BLOCK_SHARES, BLOCK_N), tl.float32)
    for first in range(0, shares, BLOCK_SHARES):
        rows = first + tl.arange(0, BLOCK_SHARES)[:, None]
        total += tl.load(shares_ptr + rows * N + columns, mask=(rows < shares) & (columns < N), other=0.0)
    total = tl.sum(total, 0, keep_dims=True)
    tl.store(sum_ptr + columns, total.to(sum_ptr.dtype.element_ty), mask=columns < N)
