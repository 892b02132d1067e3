"""Cross-entropy of rows of logits: one read for the loss, and one write more for the gradient too.

Idea: the loss of a row needs its largest element, its sum of exponentials and one logit; what is held in registers for
that gives the gradient as well, so that whoever wants both reads the logits once. For the loss alone nothing stays:
long rows pass by in chunks, the sum corrected whenever a larger element comes. The gradient is a second, element-wise
pass over the logits with the logarithm of the sum that was kept. Bound: DRAM, M * N * itemsize bytes for the loss,
twice that with its gradient.

A row's loss, with p = softmax(capped x), t its target, w the classes' weights and s the smoothing:
    (1 - s) w_t (-log p_t) + s / N sum_c w_c (-log p_c) + z (log sum exp)^2
"""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import PUBLISH, begin_of, collected, of_row, place, publish, read, read_along, tile
from kernelwright.kernels.softmaxes.kernel import INFINITY, summed


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
def _store_losses(
    loss_ptr, lse_ptr, rows, lse, logit, weighed, counted, valid, own, everyone, M,
    N: tl.constexpr, smoothing: tl.constexpr, z: tl.constexpr,
):  # fmt: skip
    loss = (1.0 - smoothing) * own * (lse - logit)
    if smoothing != 0.0:
        loss += smoothing / N * (everyone * lse - weighed)
    if z != 0.0:
        loss += z * lse * lse
    loss = tl.where(counted, tl.where(valid, loss, float("nan")), 0.0)
    tl.store(loss_ptr + rows, loss, mask=rows < M)
    if lse_ptr is not None:
        tl.store(lse_ptr + rows, lse + tl.zeros(rows.shape, tl.float32), mask=rows < M)


@triton.jit(do_not_specialize=["M"])
def cross_entropy_forward(
    x_ptr, target_ptr, weight_ptr, everyone_ptr, scale_ptr, loss_ptr, lse_ptr, dx_ptr, apart_ptr,
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
    logit = tl.load(x_ptr + begin + target, mask=here, other=0.0).to(tl.float32)
    if cap != 0.0:
        bend = _tanh(x * (1.0 / cap))
        x = tl.where(columns < N, cap * bend, -INFINITY)
        logit = cap * _tanh(logit * (1.0 / cap))
    weighed, weights = 0.0, None
    if smoothing != 0.0:
        weights = 1.0 if weight_ptr is None else read_along(weight_ptr, columns, N)
        weighed = tl.sum(tl.where(there, weights * x, 0.0), 1, keep_dims=True)
        if PARTS > 1:
            weighed = of_row(weighed)
    if PARTS > 1:  # a logit is read by the part that may write over it
        publish(of_row(logit), 3, first, part, notes_ptr, PARTS, STEP)
    powers, top, total, weighed = summed(x, weighed, first, part, notes_ptr, smoothing != 0.0, PARTS, STEP)
    if PARTS > 1:
        logit = tl.sum(collected(3, 0.0, first, notes_ptr, PARTS, STEP), 0)
    lse = top + tl.log(total)
    if STEP != PUBLISH and part == 0:
        _store_losses(loss_ptr, lse_ptr, rows, lse, logit, weighed, counted, valid, own, everyone, M, N, smoothing, z)
    if STEP != PUBLISH and dx_ptr is not None:
        if AGAIN:
            x = read(x_ptr, rows, columns, there, x_inner, x_outer_stride, x_inner_stride, -INFINITY, True)
            if cap != 0.0:
                bend = _tanh(x * (1.0 / cap))
                x = tl.where(columns < N, cap * bend, -INFINITY)
            powers = tl.exp(x - top)
        p = powers * (1.0 / total)
        dx = _slopes(p, columns == target, weights, lse, own, everyone, N, smoothing, z)
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
def cross_entropy_online(
    x_ptr, target_ptr, weight_ptr, everyone_ptr, loss_ptr, lse_ptr,
    x_inner, x_outer_stride, x_inner_stride,
    M, notes_ptr,
    N: tl.constexpr, ignore_index: tl.constexpr, smoothing: tl.constexpr, z: tl.constexpr, cap: tl.constexpr,
    STAGES: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, AGAIN: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    row, part = place(ROWS, PARTS)
    OWN: tl.constexpr = (N + PARTS * BLOCK_N - 1) // (PARTS * BLOCK_N) * BLOCK_N
    begin = begin_of(row.to(tl.int64), x_inner, x_outer_stride, x_inner_stride)
    top, total, weighed = tl.full((), -INFINITY, tl.float32), tl.zeros((), tl.float32), tl.zeros((), tl.float32)
    for chunk in tl.range(part * OWN, tl.minimum(part * OWN + OWN, N), BLOCK_N, num_stages=STAGES):
        columns = chunk + tl.arange(0, BLOCK_N)
        x = tl.load(x_ptr + begin + columns, mask=columns < N, other=-INFINITY).to(tl.float32)
        if cap != 0.0:
            x = tl.where(columns < N, cap * _tanh(x * (1.0 / cap)), -INFINITY)
        if smoothing != 0.0:
            weights = 1.0 if weight_ptr is None else read_along(weight_ptr, columns, N)
            weighed += tl.sum(tl.where(columns < N, weights * x, 0.0), 0)
        larger = tl.maximum(top, tl.max(x, 0))
        base = tl.where(larger == -INFINITY, 0.0, larger)
        total = total * tl.exp(top - base) + tl.sum(tl.exp(x - base), 0)
        top = larger
    if PARTS > 1:
        publish(top, 0, row, part, notes_ptr, PARTS, STEP)
        publish(total, 1, row, part, notes_ptr, PARTS, STEP)
        if smoothing != 0.0:
            publish(weighed, 2, row, part, notes_ptr, PARTS, STEP)
    if STEP != PUBLISH and part == 0:
        if PARTS > 1:
            tops = collected(0, -INFINITY, row, notes_ptr, PARTS, STEP)
            top = tl.max(tops, 0)
            total = tl.sum(collected(1, 0.0, row, notes_ptr, PARTS, STEP) * tl.exp(tops - top), 0)
            if smoothing != 0.0:
                weighed = tl.sum(collected(2, 0.0, row, notes_ptr, PARTS, STEP), 0)
        target, counted, valid, own, everyone = _targets(row, target_ptr, weight_ptr, everyone_ptr, M, N, ignore_index)
        logit = tl.load(x_ptr + begin + target, mask=valid, other=0.0).to(tl.float32)
        if cap != 0.0:
            logit = cap * _tanh(logit * (1.0 / cap))
        rows = row + tl.zeros((1,), tl.int32)
        _store_losses(
            loss_ptr, lse_ptr, rows, top + tl.log(total), logit, weighed, counted, valid, own, everyone,
            M, N, smoothing, z,
        )  # fmt: skip


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
    lse = tl.load(lse_ptr + rows, mask=rows < M, other=0.0)
    dloss = tl.load(dloss_ptr + rows * dloss_stride, mask=rows < M, other=0.0).to(tl.float32)
    if scale_ptr is not None:
        dloss *= tl.load(scale_ptr)
    dx = _slopes(tl.exp(x - lse), columns == target, weights, lse, own, everyone, N, smoothing, z)
    dx *= tl.where(counted, tl.where(valid, dloss, float("nan")), 0.0)
    if cap != 0.0:
        dx *= 1.0 - bend * bend
    tl.store(dx_ptr + rows * N + columns, dx.to(dx_ptr.dtype.element_ty), mask=there)


@triton.jit
def scaled_in_place(x_ptr, scale_ptr, stride, columns, BLOCK: tl.constexpr):
    """Multiplies rows by a number that the host has not read; where it is 1, as it nearly always is, nothing moves."""
    scale = tl.load(scale_ptr).to(tl.float32)
    if scale != 1.0:
        for begin in range(0, columns, BLOCK):
            at = begin + tl.arange(0, BLOCK)
            pointers = x_ptr + tl.program_id(0).to(tl.int64) * stride + at
            x = tl.load(pointers, mask=at < columns).to(tl.float32)
            tl.store(pointers, (x * scale).to(x_ptr.dtype.element_ty), mask=at < columns)
