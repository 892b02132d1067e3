"""Cross-entropy of rows of logits: one read for the loss, and one write more for the gradient too.

Idea: the loss of a row needs its largest element, its sum of exponentials and one logit; what is held in registers for
that gives the gradient as well, so that whoever wants both reads the logits once. For the loss alone every lane knows
the largest element and the sum of its own ones, until the row has passed: at once, or, where it is long, in chunks, the
sum corrected whenever a larger element comes. The gradient is a second, element-wise pass over the logits with the
largest element and the logarithm of the sum, which were kept. Bound: DRAM, M * N * itemsize bytes for the loss, twice
that with its gradient.

A row's loss, with p = softmax(capped x), t its target, w the classes' weights and s the smoothing:
    (1 - s) w_t (-log p_t) + s / N sum_c w_c (-log p_c) + z (log sum exp)^2
"""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import PUBLISH, begin_of, collected, of_row, place, publish, read, read_along, tile
from kernelwright.kernels.softmaxes.kernel import INFINITY, LOG2_E, power_of_e, summed

LARGEST, LN_2 = tl.constexpr(3.4028234663852886e38), tl.constexpr(0.6931471805599453)
FAR = tl.constexpr(2.0**30)
"""Numbers in FP32 from here on are 64 apart and more: e^-64 of something is nothing beside it."""


@triton.jit
def _tanh(x):
    """Of what exp keeps finite; right to a rounding or two for small x, where 1 - exp(-2x) would cancel."""
    small = tl.abs(x) < 0.0625
    power = tl.exp(-2.0 * tl.abs(x))
    far = (1.0 - power) / (1.0 + power)
    square = x * x
    near = x * (1.0 + square * (-1.0 / 3.0 + square * (2.0 / 15.0 - square * (17.0 / 315.0))))
    return tl.where(small, near, tl.where(x < 0, -far, far))


@triton.jit
def _slopes(p, is_target, weights, lse, own, everyone, N: tl.constexpr, smoothing: tl.constexpr, z: tl.constexpr):
    """The gradient of a row's loss by its capped logits.

    `weights` are the classes', `own` that of the row's class, `everyone` their sum."""
    slopes = (1.0 - smoothing) * own * (p - is_target)
    if smoothing != 0.0:
        slopes += smoothing / N * (p * everyone - weights)
    if z != 0.0:
        slopes += 2.0 * z * lse * p
    return slopes


@triton.jit
def _targets(
    rows, target_ptr, weight_ptr, everyone_ptr, M,
    N: tl.constexpr, ignore_index: tl.constexpr,
):  # fmt: skip
    """Of rows the targets, whether they count, whether they are classes, their weights, and the sum of all weights."""
    target = tl.load(target_ptr + rows, mask=rows < M, other=ignore_index)
    counted = target != ignore_index
    valid = (target >= 0) & (target < N)
    own, everyone = tl.where(counted, 1.0, 0.0), 1.0 * N
    if weight_ptr is not None:
        own = tl.where(counted, tl.load(weight_ptr + target, mask=valid, other=0.0).to(tl.float32), 0.0)
        everyone = tl.load(everyone_ptr)
    return target, counted, valid, own, everyone


@triton.jit
def _capped(x, cap: tl.constexpr):
    return x if cap == 0.0 else cap * _tanh(x.to(tl.float32) * (1.0 / cap))


@triton.jit
def _pivot(x_ptr, begin, there, cap: tl.constexpr, smoothing: tl.constexpr):
    """The first logit of a row: around it the others are added up for smoothing, whatever all of them are large by."""
    first = 0.0
    if smoothing != 0.0:
        first = _capped(tl.load(x_ptr + begin, mask=there, other=0.0).to(tl.float32), cap)
        first = tl.where(tl.abs(first) < INFINITY, first, 0.0)
    return first


@triton.jit
def _store_losses(
    loss_ptr, rows, top, log_total, logit, pivot, weighed, counted, valid, own, everyone, M,
    N: tl.constexpr, smoothing: tl.constexpr, z: tl.constexpr,
):  # fmt: skip
    """Differences of logits come first: two large ones are as exact as two small ones."""
    loss = (1.0 - smoothing) * own * ((top - logit) + log_total)
    if smoothing != 0.0:
        loss += smoothing / N * (everyone * ((top - pivot) + log_total) - weighed)
    if z != 0.0:
        loss += z * (top + log_total) * (top + log_total)
    loss = tl.where(counted, tl.where(valid, loss, float("nan")), 0.0)
    tl.store(loss_ptr + rows, loss, mask=rows < M)


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
def _tiles(
    x_ptr, begin, chunk, columns, there,
    N: tl.constexpr, cap: tl.constexpr, BLOCK_N: tl.constexpr, TILES: tl.constexpr, SURE: tl.constexpr,
):  # fmt: skip
    """So many tiles (ROWS, LANES, ELEMENTS) beside each other, all under way at once; `SURE` columns are inside."""
    tiles = ()
    for i in tl.static_range(TILES):
        at = x_ptr + begin[:, None, None] + chunk + i * BLOCK_N + columns
        if begin.shape[0] == 1 and (i + 1) * BLOCK_N <= SURE:
            x = _capped(tl.load(at), cap)
        else:
            inside = there[:, None, None]
            if (i + 1) * BLOCK_N > SURE:
                inside = inside & (chunk + i * BLOCK_N + columns < N)
            x = tl.load(at, mask=inside, other=-INFINITY)
            x = x if cap == 0.0 else tl.where(inside, _capped(x, cap), -INFINITY)
        tiles += (x,)
    return tiles


@triton.jit
def _joined(
    top, total, weighed, tiles, pivot, weight_ptr, chunk, columns,
    N: tl.constexpr, BLOCK_N: tl.constexpr, smoothing: tl.constexpr,
):  # fmt: skip
    """What lanes know of their rows, with tiles more: the largest logit, the sum of exponentials as `_scaled` has them,
    and, for smoothing, the sum of the weighed logits around the pivot."""
    larger = top
    for i in tl.static_range(len(tiles)):
        larger = tl.maximum(larger, tl.max(tiles[i].to(tl.float32), 2))
    factor, base, power = _scaled(larger)
    total *= tl.exp2(_scaled(top)[2] - power)
    for i in tl.static_range(len(tiles)):
        x = tiles[i].to(tl.float32)
        total += tl.sum(tl.exp2(tl.fma(x, factor[:, :, None], -base[:, :, None])), 2)
        if smoothing != 0.0:
            here = chunk + i * BLOCK_N + columns
            weights = 1.0 if weight_ptr is None else read_along(weight_ptr, here, N)
            weighed += tl.sum(tl.where(here < N, weights * (x - pivot[:, None, None]), 0.0), 2)
    return larger, total, weighed


@triton.jit(do_not_specialize=["M"])
def cross_entropy_forward(
    x_ptr, target_ptr, weight_ptr, everyone_ptr, loss_ptr, lse_ptr,
    x_inner, x_outer_stride, x_inner_stride,
    M, notes_ptr,
    N: tl.constexpr, ignore_index: tl.constexpr, smoothing: tl.constexpr, z: tl.constexpr, cap: tl.constexpr,
    ELEMENTS: tl.constexpr, TILES: tl.constexpr, STAGES: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, AGAIN: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    first, part = place(ROWS, PARTS)
    rows = (first + tl.arange(0, ROWS)).to(tl.int64)
    there, begin = rows < M, begin_of(rows, x_inner, x_outer_stride, x_inner_stride)
    target, counted, valid, own, everyone = _targets(rows, target_ptr, weight_ptr, everyone_ptr, M, N, ignore_index)
    LANES: tl.constexpr = BLOCK_N // ELEMENTS
    columns = tl.arange(0, LANES)[None, :, None] * ELEMENTS + tl.arange(0, ELEMENTS)[None, None, :]
    pivot = _pivot(x_ptr, begin, there, cap, smoothing) + tl.zeros((ROWS,), tl.float32)
    top, total = tl.full((ROWS, LANES), -INFINITY, tl.float32), tl.zeros((ROWS, LANES), tl.float32)
    weighed = tl.zeros((ROWS, LANES), tl.float32)
    CHUNK: tl.constexpr = TILES * BLOCK_N
    OWN: tl.constexpr = (N + PARTS * CHUNK - 1) // (PARTS * CHUNK) * CHUNK
    SURE: tl.constexpr = CHUNK if N % CHUNK == 0 else 0
    if CHUNK >= N:
        tiles = _tiles(x_ptr, begin, 0, columns, there, N, cap, BLOCK_N, TILES, N)
        logit = tl.load(x_ptr + begin + target, mask=valid, other=0.0).to(tl.float32)
        top, total, weighed = _joined(
            top, total, weighed, tiles, pivot, weight_ptr, 0, columns, N, BLOCK_N, smoothing
        )  # fmt: skip
    else:
        for chunk in tl.range(part * OWN, tl.minimum(part * OWN + OWN, N), CHUNK, num_stages=STAGES):
            tiles = _tiles(x_ptr, begin, chunk, columns, there, N, cap, BLOCK_N, TILES, SURE)
            top, total, weighed = _joined(
                top, total, weighed, tiles, pivot, weight_ptr, chunk, columns, N, BLOCK_N, smoothing
            )  # fmt: skip
        logit = tl.load(x_ptr + begin + target, mask=valid, other=0.0).to(tl.float32)
    largest = tl.max(top, 1)
    power = _scaled(largest)[2]
    total = tl.sum(total * tl.exp2(_scaled(top)[2] - power[:, None]), 1)
    top, weighed = largest, tl.sum(weighed, 1)
    if PARTS > 1:
        publish(tl.max(top, 0), 0, first, part, notes_ptr, PARTS, STEP)
        publish(tl.sum(total, 0), 1, first, part, notes_ptr, PARTS, STEP)
        if smoothing != 0.0:
            publish(tl.sum(weighed, 0), 2, first, part, notes_ptr, PARTS, STEP)
    if STEP != PUBLISH and part == 0:
        if PARTS > 1:
            tops, one = collected(0, -INFINITY, first, notes_ptr, PARTS, STEP), tl.zeros((ROWS,), tl.float32)
            top = tl.max(tops, 0) + one
            power = _scaled(top)[2]
            totals = collected(1, 0.0, first, notes_ptr, PARTS, STEP)
            total = tl.sum(totals * tl.exp2(_scaled(tops)[2] - tl.max(power, 0)), 0) + one
            if smoothing != 0.0:
                weighed = tl.sum(collected(2, 0.0, first, notes_ptr, PARTS, STEP), 0) + one
        log_total = tl.log(total) + tl.where(tl.abs(top) < FAR, tl.fma(top, -LOG2_E, power), 0.0) * LN_2
        _store_losses(
            loss_ptr, rows, top, log_total, _capped(logit, cap), pivot, weighed, counted, valid, own, everyone,
            M, N, smoothing, z,
        )  # fmt: skip
        if lse_ptr is not None:
            tl.store(lse_ptr + rows, top, mask=there)
            tl.store(lse_ptr + M + rows, log_total, mask=there)


@triton.jit(do_not_specialize=["M"])
def cross_entropy_gradient(
    x_ptr, target_ptr, weight_ptr, everyone_ptr, scale_ptr, loss_ptr, dx_ptr, apart_ptr,
    x_inner, x_outer_stride, x_inner_stride, dx_inner, dx_outer_stride, dx_inner_stride,
    M, notes_ptr,
    N: tl.constexpr, ignore_index: tl.constexpr, smoothing: tl.constexpr, z: tl.constexpr, cap: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, AGAIN: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    first, part = place(ROWS, PARTS)
    rows, columns = tile(first, part, ROWS, BLOCK_N)
    there = (rows < M) & (columns < N)
    x = read(x_ptr, rows, columns, there, x_inner, x_outer_stride, x_inner_stride, -INFINITY)
    target, counted, valid, own, everyone = _targets(rows, target_ptr, weight_ptr, everyone_ptr, M, N, ignore_index)
    here = valid & (target // BLOCK_N == part) if PARTS > 1 else valid
    begin = begin_of(rows, x_inner, x_outer_stride, x_inner_stride)
    logit = _capped(tl.load(x_ptr + begin + target, mask=here, other=0.0).to(tl.float32), cap)
    pivot = _pivot(x_ptr, begin, rows < M, cap, smoothing)
    if cap != 0.0:
        bend = _tanh(x * (1.0 / cap))
        x = tl.where(columns < N, cap * bend, -INFINITY)
    weighed, weights = 0.0, None
    if smoothing != 0.0:
        weights = 1.0 if weight_ptr is None else read_along(weight_ptr, columns, N)
        weighed = tl.sum(tl.where(there, weights * (x - pivot), 0.0), 1, keep_dims=True)
        if PARTS > 1:
            weighed = of_row(weighed)
    if PARTS > 1:  # a logit is read by the part that may write over it
        publish(of_row(logit), 3, first, part, notes_ptr, PARTS, STEP)
    tiles, top, total, weighed = summed((x,), weighed, first, part, notes_ptr, smoothing != 0.0, PARTS, STEP)
    powers = tiles[0]
    if PARTS > 1:
        logit = tl.sum(collected(3, 0.0, first, notes_ptr, PARTS, STEP), 0)
    if STEP != PUBLISH and part == 0:
        _store_losses(
            loss_ptr, rows, top, tl.log(total), logit, pivot, weighed, counted, valid, own, everyone,
            M, N, smoothing, z,
        )  # fmt: skip
    if STEP != PUBLISH:
        if AGAIN:
            x = read(x_ptr, rows, columns, there, x_inner, x_outer_stride, x_inner_stride, -INFINITY, True)
            if cap != 0.0:
                bend = _tanh(x * (1.0 / cap))
                x = tl.where(columns < N, cap * bend, -INFINITY)
            powers = power_of_e(x - top)
        p = powers * (1.0 / total)
        dx = _slopes(p, columns == target, weights, top + tl.log(total), own, everyone, N, smoothing, z)
        dx *= tl.where(counted, tl.where(valid, tl.load(scale_ptr), float("nan")), 0.0)
        if cap != 0.0:
            dx *= 1.0 - bend * bend
        if apart_ptr is not None:  # the gradient by the target's logit, in FP32, and none of it in dx
            tl.store(apart_ptr + rows + 0 * columns, dx, mask=there & (columns == target))
            dx = tl.where(columns == target, 0.0, dx)
        tl.debug_barrier()  # the target's logit may lie where dx is written
        at = begin_of(rows, dx_inner, dx_outer_stride, dx_inner_stride) + columns
        tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["M"])
def total_loss(
    loss_ptr, target_ptr, weight_ptr, total_ptr, scale_ptr, M, notes_ptr,
    N: tl.constexpr, ignore_index: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr,
    PARTS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Writes 1 / the weight of all targets that count (1 for a sum), and, of losses, their sum times that."""
    part = tl.program_id(0)
    loss, weight = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for first in range(part * BLOCK, M, PARTS * BLOCK):
        rows = first + tl.arange(0, BLOCK)
        if loss_ptr is not None:
            loss += tl.load(loss_ptr + rows, mask=rows < M, other=0.0)
        if MEAN:
            target = tl.load(target_ptr + rows, mask=rows < M, other=ignore_index)
            if weight_ptr is None:
                weight += tl.where(target != ignore_index, 1.0, 0.0)
            else:
                counted = (target != ignore_index) & (target >= 0) & (target < N)
                weight += tl.load(weight_ptr + target, mask=counted, other=0.0).to(tl.float32)
    loss, weight = tl.sum(loss, 0), tl.sum(weight, 0)
    if PARTS > 1:
        publish(loss, 0, 0, part, notes_ptr, PARTS, STEP)
        publish(weight, 1, 0, part, notes_ptr, PARTS, STEP)
    if STEP != PUBLISH and part == 0:
        if PARTS > 1:
            loss = tl.sum(collected(0, 0.0, 0, notes_ptr, PARTS, STEP), 0)
            weight = tl.sum(collected(1, 0.0, 0, notes_ptr, PARTS, STEP), 0)
        scale = 1.0 / weight if MEAN else 1.0
        if scale_ptr is not None:
            tl.store(scale_ptr, scale)
        if loss_ptr is not None:
            tl.store(total_ptr, loss / weight if MEAN else loss)


@triton.jit(do_not_specialize=["M"])
def cross_entropy_backward(
    dloss_ptr, scale_ptr, x_ptr, target_ptr, weight_ptr, everyone_ptr, lse_ptr, dx_ptr,
    dloss_stride, x_inner, x_outer_stride, x_inner_stride,
    M, notes_ptr,
    N: tl.constexpr, ignore_index: tl.constexpr, smoothing: tl.constexpr, z: tl.constexpr, cap: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, AGAIN: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    first, part = place(ROWS, PARTS)
    rows, columns = tile(first, part, ROWS, BLOCK_N)
    there = (rows < M) & (columns < N)
    x = read(x_ptr, rows, columns, there, x_inner, x_outer_stride, x_inner_stride, -INFINITY)
    target, counted, valid, own, everyone = _targets(rows, target_ptr, weight_ptr, everyone_ptr, M, N, ignore_index)
    weights = None
    if smoothing != 0.0:
        weights = 1.0 if weight_ptr is None else read_along(weight_ptr, columns, N)
    if cap != 0.0:
        bend = _tanh(x * (1.0 / cap))
        x = tl.where(columns < N, cap * bend, -INFINITY)
    top = tl.load(lse_ptr + rows, mask=rows < M, other=0.0)
    log_total = tl.load(lse_ptr + M + rows, mask=rows < M, other=0.0)
    dloss = tl.load(dloss_ptr + rows * dloss_stride, mask=rows < M, other=0.0).to(tl.float32)
    if scale_ptr is not None:
        dloss *= tl.load(scale_ptr)
    p = power_of_e((x - top) - log_total)
    dx = _slopes(p, columns == target, weights, top + log_total, own, everyone, N, smoothing, z)
    dx *= tl.where(counted, tl.where(valid, dloss, float("nan")), 0.0)
    if cap != 0.0:
        dx *= 1.0 - bend * bend
    tl.store(dx_ptr + rows * N + columns, dx.to(dx_ptr.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["M"])
def scaled_in_place(x_ptr, scale_ptr, stride, M, N: tl.constexpr, BLOCK: tl.constexpr):
    """Multiplies rows by a number that the host has not read; where it is 1, as it nearly always is, nothing moves."""
    scale = tl.load(scale_ptr).to(tl.float32)
    if scale != 1.0:
        for row in range(tl.program_id(0), M, tl.num_programs(0)):
            for begin in range(0, N, BLOCK):
                columns = begin + tl.arange(0, BLOCK)
                at = x_ptr + (tl.zeros((), tl.int64) + row) * stride + columns
                x = tl.load(at, mask=columns < N).to(tl.float32)
                tl.store(at, (x * scale).to(x_ptr.dtype.element_ty), mask=columns < N)
