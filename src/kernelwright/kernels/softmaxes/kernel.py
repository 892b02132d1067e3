"""Softmax over rows: one read and one write, in FP32.

Idea: a row stays in registers between its largest element, its sum and its result; the exponentials that were added up
are those that are written, only scaled, so each is computed once. Parts of a long row agree on the largest element and
the sum (rows/tile.py). Bound: DRAM, 2 * M * N * itemsize bytes forward, 3 backward.

Source: Milakov & Gimelshein 2018, arXiv:1805.02867.
"""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import (
    LEFT,
    ONCE,
    PUBLISH,
    begin_of,
    collected,
    of_row,
    place,
    product,
    programmatic_launch,
    publish,
    read,
    tile,
    wait_for_earlier,
)

INFINITY, LOG2_E = tl.constexpr(float("inf")), tl.constexpr(1.4426950408889634)


@triton.jit
def power_of_e(x):
    """What would be below normal is 0: to be exact there costs three instructions an element more."""
    return tl.exp2(x * LOG2_E)


@triton.jit
def _powers(tiles, base):
    """exp(x - base) of tiles that lie beside each other, and of each row their sum."""
    total = power_of_e(tiles[0] - base)
    powers = (total,)
    for i in tl.static_range(1, len(tiles)):
        powers += (power_of_e(tiles[i] - base),)
        total += powers[i]
    return powers, tl.sum(total, 1, keep_dims=True)


@triton.jit
def summed(tiles, also, row, part, notes_ptr, ALSO: tl.constexpr, PARTS: tl.constexpr, STEP: tl.constexpr):
    """exp(x - its largest) of tiles that lie beside each other; of each row its largest element and the sum of
    exp(x - largest), as numbers where it is in parts; and the sum of what its parts have `also`. A row of -inf alone
    has no softmax: NaN, as torch."""
    top = tiles[0]
    for i in tl.static_range(1, len(tiles)):
        top = tl.maximum(top, tiles[i])
    top = tl.max(top, 1, keep_dims=True)
    if PARTS == 1:
        powers, total = _powers(tiles, top)
    else:
        own = of_row(top)
        powers, total = _powers(tiles, tl.where(own == -INFINITY, 0.0, own))
        publish(own, 0, row, part, notes_ptr, PARTS, STEP)
        publish(of_row(total), 1, row, part, notes_ptr, PARTS, STEP)
        if ALSO:
            publish(also, 2, row, part, notes_ptr, PARTS, STEP)
        tops = collected(0, -INFINITY, row, notes_ptr, PARTS, STEP)
        top = tl.max(tops, 0)
        total = tl.sum(collected(1, 0.0, row, notes_ptr, PARTS, STEP) * power_of_e(tops - top), 0)
        if ALSO:
            also = tl.sum(collected(2, 0.0, row, notes_ptr, PARTS, STEP), 0)
    return powers, top, total, also


@triton.jit
def _input(
    x_ptr, mask_ptr, rows, columns, there, x_inner, x_outer_stride, x_inner_stride,
    mask_inner, mask_middle, mask_outer_stride, mask_middle_stride, mask_inner_stride, scale, CACHED: tl.constexpr,
):  # fmt: skip
    """A tile of scale * x with its mask, in FP32."""
    x = read(x_ptr, rows, columns, there, x_inner, x_outer_stride, x_inner_stride, 0.0, CACHED) * scale
    x = tl.where(there, x, -INFINITY)
    if mask_ptr is not None:
        at = begin_of(rows // mask_inner, mask_middle, mask_outer_stride, mask_middle_stride)
        at += (rows % mask_inner) * mask_inner_stride + columns
        mask = tl.load(mask_ptr + at, mask=there, other=0)
        x = tl.where(mask, x, -INFINITY) if mask.dtype == tl.int1 else x + mask.to(tl.float32)
    return x


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def softmax_forward(
    x_ptr, mask_ptr, y_ptr,
    x_inner, x_outer_stride, x_inner_stride,
    mask_inner, mask_middle, mask_outer_stride, mask_middle_stride, mask_inner_stride,
    scale, M, notes_ptr,
    N: tl.constexpr, LOG: tl.constexpr, TILES: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, AGAIN: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    wait_for_earlier()
    first, part = place(ROWS, PARTS)
    lie = (
        x_inner, x_outer_stride, x_inner_stride,
        mask_inner, mask_middle, mask_outer_stride, mask_middle_stride, mask_inner_stride, scale,
    )  # fmt: skip
    tiles = ()
    for i in tl.static_range(TILES):
        rows, columns = tile(first, part * TILES + i, ROWS, BLOCK_N)
        tiles += (_input(x_ptr, mask_ptr, rows, columns, (rows < M) & (columns < N), *lie, ONCE),)
    powers, top, total, _ = summed(tiles, 0.0, first, part, notes_ptr, False, PARTS, STEP)
    log_total = tl.log(total) if LOG else total
    for i in tl.static_range(TILES):
        rows, columns = tile(first, part * TILES + i, ROWS, BLOCK_N)
        there = (rows < M) & (columns < N)
        x, power = tiles[i], powers[i]
        if AGAIN:
            x = _input(x_ptr, mask_ptr, rows, columns, there, *lie, LEFT)
            power = power_of_e(x - top)
        y = (x - top) - log_total if LOG else power * (1.0 / total)
        if STEP != PUBLISH:
            tl.store(y_ptr + rows * N + columns, y.to(y_ptr.dtype.element_ty), mask=there)


@triton.jit
def _given(
    dy_ptr, y_ptr, rows, columns, M, dy_inner, dy_outer_stride, dy_inner_stride,
    N: tl.constexpr, LOG: tl.constexpr, CACHED: tl.constexpr,
):  # fmt: skip
    """A tile of dy and of y, and where they are."""
    there = (rows < M) & (columns < N)
    nothing: tl.constexpr = -float("inf") if LOG else 0.0
    dy = read(dy_ptr, rows, columns, there, dy_inner, dy_outer_stride, dy_inner_stride, 0.0, CACHED)
    return dy, read(y_ptr, rows, columns, there, 1, N, 0, nothing, CACHED), there


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def softmax_backward(
    dy_ptr, y_ptr, dx_ptr,
    dy_inner, dy_outer_stride, dy_inner_stride,
    scale, M, notes_ptr,
    N: tl.constexpr, LOG: tl.constexpr, MASKED: tl.constexpr, TILES: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, AGAIN: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    wait_for_earlier()
    first, part = place(ROWS, PARTS)
    lie = M, dy_inner, dy_outer_stride, dy_inner_stride
    tiles = ()
    for i in tl.static_range(TILES):
        tiles += (_given(dy_ptr, y_ptr, *tile(first, part * TILES + i, ROWS, BLOCK_N), *lie, N, LOG, ONCE),)
    total = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for i in tl.static_range(TILES):
        dy, y, _ = tiles[i]
        total += dy if LOG else product(dy, y, TILES * BLOCK_N)
    total = tl.sum(total, 1, keep_dims=True)
    if PARTS > 1:
        publish(of_row(total), 0, first, part, notes_ptr, PARTS, STEP)
        total = tl.sum(collected(0, 0.0, first, notes_ptr, PARTS, STEP), 0)
    for i in tl.static_range(TILES):
        rows, columns = tile(first, part * TILES + i, ROWS, BLOCK_N)
        dy, y, there = tiles[i]
        if AGAIN:
            dy, y, _ = _given(dy_ptr, y_ptr, rows, columns, *lie, N, LOG, LEFT)
        dx = dy - power_of_e(y) * total if LOG else y * (dy - total)
        if LOG and MASKED:
            dx = tl.where(y == -INFINITY, 0.0, dx)
        if STEP != PUBLISH:
            tl.store(dx_ptr + rows * N + columns, (dx * scale).to(dx_ptr.dtype.element_ty), mask=there)
