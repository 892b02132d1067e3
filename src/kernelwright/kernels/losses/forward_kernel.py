"""Cross-entropy of rows of logits alone: one read.

Idea: every lane knows the largest of its own logits and the sum of their exponentials, until the row has passed: at
once, or, where it is long, in chunks, the sum corrected whenever a larger logit comes. Lanes hear of each other once.
Bound: DRAM, M * N * itemsize bytes. Formula and names as kernel.py.
"""

import triton
import triton.language as tl

from kernelwright.kernels.losses.kernel import capped, losses_of, pivot_of, targets
from kernelwright.kernels.losses.total_kernel import store_total
from kernelwright.kernels.rows.tile import (
    PUBLISH,
    begin_of,
    collected,
    place,
    product,
    programmatic_launch,
    publish,
    read_along,
    wait_for_earlier,
)
from kernelwright.kernels.softmaxes.kernel import INFINITY, LOG2_E

LARGEST, LN_2 = tl.constexpr(3.4028234663852886e38), tl.constexpr(0.6931471805599453)
FAR = tl.constexpr(2.0**30)
"""Numbers in FP32 from here on are 64 apart and more: e^-64 of something is nothing beside it."""


@triton.jit
def _scaled(top):
    """By what exponentials of logits up to `top` are taken, exp2(x * factor - base), one fused operation each, and the
    power of two that their sum is of. Where products would overflow, logits that differ are so far apart that the
    smaller one counts for nothing, whatever the factor."""
    power = tl.minimum(tl.maximum(top * LOG2_E, -LARGEST), LARGEST)
    far = tl.abs(top) >= FAR
    base = tl.where(far, tl.where(top == -INFINITY, 0.0, top), power)
    return tl.where(far, 1.0, LOG2_E), base, power


@triton.jit
def _lowered(top, power, larger, larger_power):
    """By what a sum around `top` is multiplied to be one around a larger logit."""
    lowered = tl.exp2(power - larger_power)
    return tl.where(tl.abs(larger) < FAR, lowered, tl.where(top < larger, 0.0, lowered))


@triton.jit
def _tiles(
    x_ptr, begin, chunk, columns, there,
    N: tl.constexpr, softcap: tl.constexpr, BLOCK_N: tl.constexpr, TILES: tl.constexpr, SURE: tl.constexpr,
):  # fmt: skip
    """So many tiles (ROWS, LANES, ELEMENTS) beside each other, all under way at once; `SURE` columns are inside."""
    tiles = ()
    for i in tl.static_range(TILES):
        at = x_ptr + begin[:, None, None] + chunk + i * BLOCK_N + columns
        if begin.shape[0] == 1 and (i + 1) * BLOCK_N <= SURE:
            x = capped(tl.load(at), softcap)
        else:
            inside = there[:, None, None]
            if (i + 1) * BLOCK_N > SURE:
                inside = inside & (chunk + i * BLOCK_N + columns < N)
            x = tl.load(at, mask=inside, other=-INFINITY)
            x = x if softcap == 0.0 else tl.where(inside, capped(x, softcap), -INFINITY)
        tiles += (x,)
    return tiles


@triton.jit
def _joined(
    top, total, weighed, tiles, pivot, weight_ptr, chunk, columns,
    N: tl.constexpr, BLOCK_N: tl.constexpr, label_smoothing: tl.constexpr,
):  # fmt: skip
    """What lanes know of their rows, with tiles more: the largest logit, the sum of exponentials as `_scaled` has them,
    and, for label_smoothing, the sum of the weighed logits around the pivot."""
    larger = top
    for i in tl.static_range(len(tiles)):
        larger = tl.maximum(larger, tl.max(tiles[i].to(tl.float32), 2))
    factor, base, power = _scaled(larger)
    total *= _lowered(top, _scaled(top)[2], larger, power)
    for i in tl.static_range(len(tiles)):
        x = tiles[i].to(tl.float32)
        total += tl.sum(tl.exp2(tl.fma(x, factor[:, :, None], -base[:, :, None])), 2)
        if label_smoothing != 0.0:
            here = chunk + i * BLOCK_N + columns
            weights = 1.0 if weight_ptr is None else read_along(weight_ptr, here, N)
            weighed += tl.sum(tl.where(here < N, weights * (x - pivot[:, None, None]), 0.0), 2)
    return larger, total, weighed


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def cross_entropy_forward(
    x_ptr, target_ptr, weight_ptr, everyone_ptr, loss_ptr, lse_ptr, total_ptr, scale_ptr,
    x_inner, x_outer_stride, x_inner_stride,
    M, notes_ptr,
    N: tl.constexpr, ignore_index: tl.constexpr, label_smoothing: tl.constexpr, z_loss: tl.constexpr,
    softcap: tl.constexpr,
    MEAN: tl.constexpr, ELEMENTS: tl.constexpr, TILES: tl.constexpr, STAGES: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, AGAIN: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Writes losses, or, where `loss_ptr` is None since this program has all rows, what they come to."""
    wait_for_earlier()
    first, part = place(ROWS, PARTS)
    rows = (first + tl.arange(0, ROWS)).to(tl.int64)
    there, begin = rows < M, begin_of(rows, x_inner, x_outer_stride, x_inner_stride)
    target, counted, valid, own, everyone = targets(rows, target_ptr, weight_ptr, everyone_ptr, M, N, ignore_index)
    LANES: tl.constexpr = BLOCK_N // ELEMENTS
    columns = tl.arange(0, LANES)[None, :, None] * ELEMENTS + tl.arange(0, ELEMENTS)[None, None, :]
    pivot = pivot_of(x_ptr, begin, target, valid, softcap, label_smoothing) + tl.zeros((ROWS,), tl.float32)
    top, total = tl.full((ROWS, LANES), -INFINITY, tl.float32), tl.zeros((ROWS, LANES), tl.float32)
    weighed = tl.zeros((ROWS, LANES), tl.float32)
    CHUNK: tl.constexpr = TILES * BLOCK_N
    OWN: tl.constexpr = (N + PARTS * CHUNK - 1) // (PARTS * CHUNK) * CHUNK
    SURE: tl.constexpr = CHUNK if N % CHUNK == 0 else 0
    if CHUNK >= N:
        tiles = _tiles(x_ptr, begin, 0, columns, there, N, softcap, BLOCK_N, TILES, N)
        logit = tl.load(x_ptr + begin + target, mask=valid, other=0.0).to(tl.float32)
        top, total, weighed = _joined(
            top, total, weighed, tiles, pivot, weight_ptr, 0, columns, N, BLOCK_N, label_smoothing
        )  # fmt: skip
    else:
        for chunk in tl.range(part * OWN, tl.minimum(part * OWN + OWN, N), CHUNK, num_stages=STAGES):
            tiles = _tiles(x_ptr, begin, chunk, columns, there, N, softcap, BLOCK_N, TILES, SURE)
            top, total, weighed = _joined(
                top, total, weighed, tiles, pivot, weight_ptr, chunk, columns, N, BLOCK_N, label_smoothing
            )  # fmt: skip
        logit = tl.load(x_ptr + begin + target, mask=valid, other=0.0).to(tl.float32)
    largest = tl.max(top, 1)
    power = _scaled(largest)[2]
    total = tl.sum(product(total, _lowered(top, _scaled(top)[2], largest[:, None], power[:, None]), LANES), 1)
    top, weighed = largest, tl.sum(weighed, 1)
    if PARTS > 1:
        publish(tl.max(top, 0), 0, first, part, notes_ptr, PARTS, STEP)
        publish(tl.sum(total, 0), 1, first, part, notes_ptr, PARTS, STEP)
        if label_smoothing != 0.0:
            publish(tl.sum(weighed, 0), 2, first, part, notes_ptr, PARTS, STEP)
    if STEP != PUBLISH and part == 0:
        if PARTS > 1:
            tops, one = collected(0, -INFINITY, first, notes_ptr, PARTS, STEP), tl.zeros((ROWS,), tl.float32)
            top = tl.max(tops, 0) + one
            power = _scaled(top)[2]
            lowered = _lowered(tops, _scaled(tops)[2], tl.max(top, 0), tl.max(power, 0))
            total = tl.sum(collected(1, 0.0, first, notes_ptr, PARTS, STEP) * lowered, 0) + one
            if label_smoothing != 0.0:
                weighed = tl.sum(collected(2, 0.0, first, notes_ptr, PARTS, STEP), 0) + one
        log_total = tl.log(total) + tl.where(tl.abs(top) < FAR, tl.fma(top, -LOG2_E, power), 0.0) * LN_2
        loss = losses_of(
            top, log_total, capped(logit, softcap), pivot, weighed, counted, valid, own, everyone, N,
            label_smoothing, z_loss
        )  # fmt: skip
        if loss_ptr is None:
            store_total(loss, own, total_ptr, scale_ptr, MEAN)
        else:
            tl.store(loss_ptr + rows, loss, mask=there)
        if lse_ptr is not None:
            tl.store(lse_ptr + rows, top, mask=there)
            tl.store(lse_ptr + M + rows, log_total, mask=there)
