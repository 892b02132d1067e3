"""Cross-entropy of rows of logits with its gradient: one read and one write.

Idea: what is held in registers for a row's loss gives the gradient as well, so that whoever wants both reads the logits
once. The gradient alone is an element-wise pass over the logits with what the loss kept of each row, the largest logit
and the logarithm of the sum. Bound: DRAM, 2 * M * N * itemsize bytes.

A row's loss, with p = softmax(capped x), t its target, w the classes' weights and s the label smoothing:
    (1 - s) w_t (-log p_t) + s / N sum_c w_c (-log p_c) + z_loss (log sum exp)^2
"""

import triton
import triton.language as tl

from kernelwright.kernels.losses.total_kernel import store_total
from kernelwright.kernels.rows.tile import (
    LEFT,
    PUBLISH,
    begin_of,
    collected,
    of_row,
    place,
    programmatic_launch,
    publish,
    read,
    read_along,
    tile,
    wait_for_earlier,
)
from kernelwright.kernels.softmaxes.kernel import INFINITY, power_of_e, summed

PIVOTS = tl.constexpr(65536.0)
"""What is beyond would cost those around nothing their digits."""


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
def _slopes(
    p, is_target, weights, lse, own, everyone, N: tl.constexpr, label_smoothing: tl.constexpr, z_loss: tl.constexpr
):
    """The gradient of a row's loss by its capped logits.

    `weights` are the classes', `own` that of the row's class, `everyone` their sum."""
    slopes = (1.0 - label_smoothing) * own * (p - is_target)
    if label_smoothing != 0.0:
        slopes += label_smoothing / N * (p * everyone - weights)
    if z_loss != 0.0:
        slopes += 2.0 * z_loss * lse * p
    return slopes


@triton.jit
def targets(
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
def capped(x, softcap: tl.constexpr):
    return x if softcap == 0.0 else softcap * _tanh(x.to(tl.float32) * (1.0 / softcap))


@triton.jit
def pivot_of(x_ptr, begin, target, valid, softcap: tl.constexpr, label_smoothing: tl.constexpr):
    """The target's logit, which is hardly ever a mask: around it the others are added up for label_smoothing, whatever
    all of them are large by."""
    pivot = 0.0
    if label_smoothing != 0.0:
        pivot = capped(tl.load(x_ptr + begin + target, mask=valid, other=0.0).to(tl.float32), softcap)
        pivot = tl.where(tl.abs(pivot) < PIVOTS, pivot, 0.0)
    return pivot


@triton.jit
def losses_of(
    top, log_total, logit, pivot, weighed, counted, valid, own, everyone,
    N: tl.constexpr, label_smoothing: tl.constexpr, z_loss: tl.constexpr,
):  # fmt: skip
    """Differences of logits come first: two large ones are as exact as two small ones."""
    loss = (1.0 - label_smoothing) * own * ((top - logit) + log_total)
    if label_smoothing != 0.0:
        loss += label_smoothing / N * (everyone * ((top - pivot) + log_total) - weighed)
    if z_loss != 0.0:
        loss += z_loss * (top + log_total) * (top + log_total)
    return tl.where(counted, tl.where(valid, loss, float("nan")), 0.0)


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def cross_entropy_gradient(
    x_ptr, target_ptr, weight_ptr, everyone_ptr, scale_ptr, loss_ptr, total_ptr, dx_ptr, apart_ptr,
    x_inner, x_outer_stride, x_inner_stride, dx_inner, dx_outer_stride, dx_inner_stride,
    M, notes_ptr,
    N: tl.constexpr, ignore_index: tl.constexpr, label_smoothing: tl.constexpr, z_loss: tl.constexpr,
    softcap: tl.constexpr,
    MEAN: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, AGAIN: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """`scale_ptr` holds what gradients are multiplied by; None where one program has all rows, and writes the total."""
    wait_for_earlier()
    first, part = place(ROWS, PARTS)
    rows, columns = tile(first, part, ROWS, BLOCK_N)
    there = (rows < M) & (columns < N)
    x = read(x_ptr, rows, columns, there, x_inner, x_outer_stride, x_inner_stride, -INFINITY)
    target, counted, valid, own, everyone = targets(rows, target_ptr, weight_ptr, everyone_ptr, M, N, ignore_index)
    here = valid & (target // BLOCK_N == part) if PARTS > 1 else valid
    begin = begin_of(rows, x_inner, x_outer_stride, x_inner_stride)
    logit = capped(tl.load(x_ptr + begin + target, mask=here, other=0.0).to(tl.float32), softcap)
    pivot = pivot_of(x_ptr, begin, target, valid, softcap, label_smoothing)
    if softcap != 0.0:
        bend = _tanh(x * (1.0 / softcap))
        x = tl.where(columns < N, softcap * bend, -INFINITY)
    weighed, weights = 0.0, None
    if label_smoothing != 0.0:
        weights = 1.0 if weight_ptr is None else read_along(weight_ptr, columns, N)
        weighed = tl.sum(tl.where(there, weights * (x - pivot), 0.0), 1, keep_dims=True)
        if PARTS > 1:
            weighed = of_row(weighed)
    if PARTS > 1:  # a logit is read by the part that may write over it
        publish(of_row(logit), 3, first, part, notes_ptr, PARTS, STEP)
    tiles, top, total, weighed = summed((x,), weighed, first, part, notes_ptr, label_smoothing != 0.0, PARTS, STEP)
    powers = tiles[0]
    if PARTS > 1:
        logit = tl.sum(collected(3, 0.0, first, notes_ptr, PARTS, STEP), 0)
    loss = losses_of(
        top, tl.log(total), logit, pivot, weighed, counted, valid, own, everyone, N, label_smoothing, z_loss
    )
    if scale_ptr is None:
        scale = store_total(loss, own, total_ptr, None, MEAN)
    else:
        scale = tl.load(scale_ptr)
        if STEP != PUBLISH and part == 0:
            tl.store(loss_ptr + rows, loss, mask=rows < M)
    if STEP != PUBLISH:
        if AGAIN:
            x = read(x_ptr, rows, columns, there, x_inner, x_outer_stride, x_inner_stride, -INFINITY, LEFT)
            if softcap != 0.0:
                bend = _tanh(x * (1.0 / softcap))
                x = tl.where(columns < N, softcap * bend, -INFINITY)
            powers = power_of_e(x - top)
        p = powers * (1.0 / total)
        dx = _slopes(p, columns == target, weights, top + tl.log(total), own, everyone, N, label_smoothing, z_loss)
        dx *= tl.where(counted, tl.where(valid, scale, float("nan")), 0.0)
        if softcap != 0.0:
            dx *= 1.0 - bend * bend
        if apart_ptr is not None:  # the gradient by the target's logit, in FP32, and none of it in dx
            tl.store(apart_ptr + rows + 0 * columns, dx, mask=there & (columns == target))
            dx = tl.where(columns == target, 0.0, dx)
        tl.debug_barrier()  # the target's logit may lie where dx is written
        at = begin_of(rows, dx_inner, dx_outer_stride, dx_inner_stride) + columns
        tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=there)


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def cross_entropy_backward(
    dloss_ptr, scale_ptr, x_ptr, target_ptr, weight_ptr, everyone_ptr, lse_ptr, dx_ptr,
    dloss_stride, x_inner, x_outer_stride, x_inner_stride,
    M, notes_ptr,
    N: tl.constexpr, ignore_index: tl.constexpr, label_smoothing: tl.constexpr, z_loss: tl.constexpr,
    softcap: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, AGAIN: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    wait_for_earlier()
    first, part = place(ROWS, PARTS)
    rows, columns = tile(first, part, ROWS, BLOCK_N)
    there = (rows < M) & (columns < N)
    x = read(x_ptr, rows, columns, there, x_inner, x_outer_stride, x_inner_stride, -INFINITY)
    target, counted, valid, own, everyone = targets(rows, target_ptr, weight_ptr, everyone_ptr, M, N, ignore_index)
    weights = None
    if label_smoothing != 0.0:
        weights = 1.0 if weight_ptr is None else read_along(weight_ptr, columns, N)
    if softcap != 0.0:
        bend = _tanh(x * (1.0 / softcap))
        x = tl.where(columns < N, softcap * bend, -INFINITY)
    top = tl.load(lse_ptr + rows, mask=rows < M, other=0.0)
    log_total = tl.load(lse_ptr + M + rows, mask=rows < M, other=0.0)
    dloss = tl.load(dloss_ptr + rows * dloss_stride, mask=rows < M, other=0.0).to(tl.float32)
    if scale_ptr is not None:
        dloss *= tl.load(scale_ptr)
    p = power_of_e((x - top) - log_total)
    dx = _slopes(p, columns == target, weights, top + log_total, own, everyone, N, label_smoothing, z_loss)
    dx *= tl.where(counted, tl.where(valid, dloss, float("nan")), 0.0)
    if softcap != 0.0:
        dx *= 1.0 - bend * bend
    tl.store(dx_ptr + rows * N + columns, dx.to(dx_ptr.dtype.element_ty), mask=there)
