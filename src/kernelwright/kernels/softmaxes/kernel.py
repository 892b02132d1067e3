"""Softmax over rows: one read and one write, in FP32.

Idea: a row stays in registers between its largest element, its sum and its result; the exponentials that were added up
are those that are written, only scaled, so each is computed once. Parts of a long row agree on the largest element and
the sum (rows/tile.py). Bound: DRAM, 2 * M * N * itemsize bytes forward, 3 backward.

Source: Milakov & Gimelshein 2018, arXiv:1805.02867.
"""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import PUBLISH, begin_of, exchanged, place, tile


@triton.jit
def exponentials(x, also, first, part, found_ptr, notes_ptr, PARTS: tl.constexpr, STEP: tl.constexpr):
    """exp(x - base) of a tile, and for each row what makes exp(x - top) of it, top, its largest element, the sum of
    exp(x - top), and the sum of what its parts have `also`. A row of -inf alone has no softmax: NaN, as torch."""
    top = tl.max(x, 1, keep_dims=True)
    base = tl.where(top == -float("inf"), 0.0, top) if PARTS > 1 else top
    powers = tl.exp(x - base)
    total = tl.sum(powers, 1, keep_dims=True)
    factor = tl.full(total.shape, 1.0, tl.float32)
    if PARTS > 1:
        nothing = -float("inf")
        own = top
        tops, totals, others = exchanged(top, total, also, nothing, first, part, found_ptr, notes_ptr, PARTS, STEP)
        top = tl.max(tops, 1, keep_dims=True)
        total = tl.sum(totals * tl.exp(tops - top), 1, keep_dims=True)
        factor = tl.exp(own - top)
        also = tl.sum(others, 1, keep_dims=True)
    return powers, factor, top, total, also


@triton.jit(do_not_specialize=["M"])
def softmax_forward(
    x_ptr, mask_ptr, y_ptr,
    x_inner, x_outer_stride, x_inner_stride,
    mask_inner, mask_middle, mask_outer_stride, mask_middle_stride, mask_inner_stride,
    scale, M, found_ptr, notes_ptr,
    N: tl.constexpr, LOG: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    first, part = place(notes_ptr, PARTS, ROWS)
    rows, columns = tile(first, part, ROWS, BLOCK_N)
    there = (rows < M) & (columns < N)
    at = begin_of(rows, x_inner, x_outer_stride, x_inner_stride) + columns
    x = tl.where(there, tl.load(x_ptr + at, mask=there, other=0.0).to(tl.float32) * scale, -float("inf"))
    if mask_ptr is not None:
        at = begin_of(rows // mask_inner, mask_middle, mask_outer_stride, mask_middle_stride)
        at += (rows % mask_inner) * mask_inner_stride + columns
        mask = tl.load(mask_ptr + at, mask=there, other=0)
        if mask.dtype == tl.int1:
            x = tl.where(mask, x, -float("inf"))
        else:
            x += mask.to(tl.float32)
    powers, factor, top, total, _ = exponentials(x, 0.0, first, part, found_ptr, notes_ptr, PARTS, STEP)
    y = (x - top) - tl.log(total) if LOG else powers * (factor / total)
    if STEP != PUBLISH:
        tl.store(y_ptr + rows * N + columns, y.to(y_ptr.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["M"])
def softmax_backward(
    dy_ptr, y_ptr, dx_ptr,
    dy_inner, dy_outer_stride, dy_inner_stride,
    scale, M, found_ptr, notes_ptr,
    N: tl.constexpr, LOG: tl.constexpr, MASKED: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    first, part = place(notes_ptr, PARTS, ROWS)
    rows, columns = tile(first, part, ROWS, BLOCK_N)
    there = (rows < M) & (columns < N)
    at = begin_of(rows, dy_inner, dy_outer_stride, dy_inner_stride) + columns
    dy = tl.load(dy_ptr + at, mask=there, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + rows * N + columns, mask=there, other=-float("inf") if LOG else 0.0).to(tl.float32)
    total = tl.sum(dy if LOG else dy * y, 1, keep_dims=True)
    if PARTS > 1:
        totals, _, _ = exchanged(total, total, total, 0.0, first, part, found_ptr, notes_ptr, PARTS, STEP)
        total = tl.sum(totals, 1, keep_dims=True)
    dx = dy - tl.exp(y) * total if LOG else y * (dy - total)
    if LOG and MASKED:
        dx = tl.where(y == -float("inf"), 0.0, dx)
    if STEP != PUBLISH:
        tl.store(dx_ptr + rows * N + columns, (dx * scale).to(dx_ptr.dtype.element_ty), mask=there)
