"""Gradients of RMSNorm and LayerNorm over rows.

Idea: each program keeps its share of the weight's gradient in registers over all its rows, while the next ones come;
the shares are added in a fixed order afterwards, so that results repeat. Of so few rows that shares would be as many
bytes, that gradient is a second reading. Bound: DRAM, 3 * M * N * itemsize bytes (4 with a residual). Formula as
kernel.py.
"""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import (
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


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def norm_backward(
    dy_ptr, dsum_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, dweight_ptr, dbias_ptr,
    dy_inner, dy_outer_stride, dy_inner_stride, x_inner, x_outer_stride, x_inner_stride,
    M, notes_ptr,
    N: tl.constexpr, offset: tl.constexpr, CENTRED: tl.constexpr, CAST_FIRST: tl.constexpr, TILES: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, AGAIN: tl.constexpr, STEP: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    wait_for_earlier()
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


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def weight_gradients(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, dweight_ptr, dbias_ptr,
    dy_inner, dy_outer_stride, dy_inner_stride, x_inner, x_outer_stride, x_inner_stride, M,
    N: tl.constexpr, CENTRED: tl.constexpr, CAST_FIRST: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradients by weight and bias of few rows, added down the columns in an order that is always the same."""
    wait_for_earlier()
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


@programmatic_launch
@triton.jit(do_not_specialize=["shares"])
def sums_of_shares(
    shares_ptr, sum_ptr, more_shares_ptr, more_sum_ptr, shares,
    N: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_SHARES: tl.constexpr,
):  # fmt: skip
    """Adds up (shares, N) over its rows, in an order that is always the same; a second one by as many programs more."""
    wait_for_earlier()
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
