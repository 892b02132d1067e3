"""Cross-entropy of rows of logits with its gradient: one read and one write.

Idea: the values held in registers for the loss of a row also give its gradient, so computing both reads the logits
once. The gradient alone is an element-wise pass over the logits with two saved values per row, the maximum logit and
the log of the sum. Bound: DRAM, 2 * M * N * itemsize bytes.

Loss of a row, with p = softmax(soft-capped x), t the target, w the class weights and s the label smoothing:
    (1 - s) w_t (-log p_t) + s / N sum_c w_c (-log p_c) + z_loss (log sum exp)^2
"""

import triton
import triton.language as tl

from kernelwright.kernels.losses.total_kernel import store_total
from kernelwright.kernels.rows.tile import (
    EVICT_FIRST,
    PHASE_STORE,
    grid_dependency_wait,
    load_row_vector,
    load_tile,
    program_coords,
    programmatic_launch,
    row_offset,
    store_partial,
    tile_offsets,
    to_scalar,
    wait_partials,
)
from kernelwright.kernels.softmaxes.kernel import INFINITY, fast_exp, row_softmax_stats

MAX_PIVOT = tl.constexpr(65536.0)
"""A larger pivot would cost logits around zero their precision."""


@triton.jit
def _tanh(x):
    """tanh by exp; for small x a series, accurate to a rounding or two, where 1 - exp(-2x) would cancel."""
    is_small = tl.abs(x) < 0.0625
    exp_neg_2x = tl.exp(-2.0 * tl.abs(x))
    by_exp = (1.0 - exp_neg_2x) / (1.0 + exp_neg_2x)
    x_sq = x * x
    by_series = x * (1.0 + x_sq * (-1.0 / 3.0 + x_sq * (2.0 / 15.0 - x_sq * (17.0 / 315.0))))
    return tl.where(is_small, by_series, tl.where(x < 0, -by_exp, by_exp))


@triton.jit
def _dlogits(
    p,
    is_target,
    weights,
    lse,
    target_weight,
    weight_sum,
    N: tl.constexpr,
    label_smoothing: tl.constexpr,
    z_loss: tl.constexpr,
):
    """Gradient of a row's loss with respect to its soft-capped logits.

    `weights` are the class weights, `target_weight` the weight of the target class, `weight_sum` their sum.
    """
    dlogits = (1.0 - label_smoothing) * target_weight * (p - is_target)
    if label_smoothing != 0.0:
        dlogits += label_smoothing / N * (p * weight_sum - weights)
    if z_loss != 0.0:
        dlogits += 2.0 * z_loss * lse * p
    return dlogits


@triton.jit
def load_targets(
    offs_m, target_ptr, weight_ptr, weight_sum_ptr, M,
    N: tl.constexpr, ignore_index: tl.constexpr,
):  # fmt: skip
    """Load the targets of rows.

    Returns target, not_ignored (target is not ignore_index), in_range (target is a class), the target's class
    weight, and the sum of all class weights.
    """
    target = tl.load(target_ptr + offs_m, mask=offs_m < M, other=ignore_index)
    not_ignored = target != ignore_index
    in_range = (target >= 0) & (target < N)
    target_weight, weight_sum = tl.where(not_ignored, 1.0, 0.0), 1.0 * N
    if weight_ptr is not None:
        target_weight = tl.where(
            not_ignored, tl.load(weight_ptr + target, mask=in_range, other=0.0).to(tl.float32), 0.0
        )
        weight_sum = tl.load(weight_sum_ptr)
    return target, not_ignored, in_range, target_weight, weight_sum


@triton.jit
def apply_softcap(x, softcap: tl.constexpr):
    """softcap * tanh(x / softcap), or x if softcap is 0."""
    return x if softcap == 0.0 else softcap * _tanh(x.to(tl.float32) * (1.0 / softcap))


@triton.jit
def load_pivot(x_ptr, row_offs, target, in_range, softcap: tl.constexpr, label_smoothing: tl.constexpr):
    """The target's logit, for label smoothing: other logits are summed relative to it, so a common offset costs no
    accuracy.

    The target's logit is hardly ever a mask value; 0 if it is MAX_PIVOT or larger.
    """
    pivot = 0.0
    if label_smoothing != 0.0:
        pivot = apply_softcap(tl.load(x_ptr + row_offs + target, mask=in_range, other=0.0).to(tl.float32), softcap)
        pivot = tl.where(tl.abs(pivot) < MAX_PIVOT, pivot, 0.0)
    return pivot


@triton.jit
def compute_losses(
    row_max, log_sum, logit, pivot, weighted_sum, not_ignored, in_range, target_weight, weight_sum,
    N: tl.constexpr, label_smoothing: tl.constexpr, z_loss: tl.constexpr,
):  # fmt: skip
    """Losses of rows: 0 for an ignored target, NaN for one out of range.

    Differences of logits come first, so that two large logits lose no more accuracy than two small ones.
    """
    loss = (1.0 - label_smoothing) * target_weight * ((row_max - logit) + log_sum)
    if label_smoothing != 0.0:
        loss += label_smoothing / N * (weight_sum * ((row_max - pivot) + log_sum) - weighted_sum)
    if z_loss != 0.0:
        loss += z_loss * (row_max + log_sum) * (row_max + log_sum)
    return tl.where(not_ignored, tl.where(in_range, loss, float("nan")), 0.0)


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def cross_entropy_gradient(
    x_ptr, target_ptr, weight_ptr, weight_sum_ptr, scale_ptr, loss_ptr, total_ptr, dx_ptr, target_grad_ptr,
    x_inner_size, stride_x_outer, stride_x_inner, dx_inner_size, stride_dx_outer, stride_dx_inner,
    M, workspace_ptr,
    N: tl.constexpr, ignore_index: tl.constexpr, label_smoothing: tl.constexpr, z_loss: tl.constexpr,
    softcap: tl.constexpr,
    MEAN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, NUM_SPLITS: tl.constexpr, RELOAD: tl.constexpr, PHASE: tl.constexpr,
):  # fmt: skip
    """Losses and gradients of BLOCK_M rows; dx may alias x.

    `scale_ptr` holds the factor of the gradients; None if one program has all rows, which then also stores the
    total.
    """
    grid_dependency_wait()
    first_row, split = program_coords(BLOCK_M, NUM_SPLITS)
    offs_m, offs_n = tile_offsets(first_row, split, BLOCK_M, BLOCK_N)
    mask = (offs_m < M) & (offs_n < N)
    x = load_tile(x_ptr, offs_m, offs_n, mask, x_inner_size, stride_x_outer, stride_x_inner, -INFINITY)
    target, not_ignored, in_range, target_weight, weight_sum = load_targets(
        offs_m, target_ptr, weight_ptr, weight_sum_ptr, M, N, ignore_index
    )
    in_split = in_range & (target // BLOCK_N == split) if NUM_SPLITS > 1 else in_range
    row_offs = row_offset(offs_m, x_inner_size, stride_x_outer, stride_x_inner)
    logit = apply_softcap(tl.load(x_ptr + row_offs + target, mask=in_split, other=0.0).to(tl.float32), softcap)
    pivot = load_pivot(x_ptr, row_offs, target, in_range, softcap, label_smoothing)
    if softcap != 0.0:
        tanh_x = _tanh(x * (1.0 / softcap))
        x = tl.where(offs_n < N, softcap * tanh_x, -INFINITY)
    weighted_sum, weights = 0.0, None
    if label_smoothing != 0.0:
        weights = 1.0 if weight_ptr is None else load_row_vector(weight_ptr, offs_n, N)
        weighted_sum = tl.sum(tl.where(mask, weights * (x - pivot), 0.0), 1, keep_dims=True)
        if NUM_SPLITS > 1:
            weighted_sum = to_scalar(weighted_sum)
    if NUM_SPLITS > 1:  # only the split that may overwrite the target's logit reads it
        store_partial(to_scalar(logit), 3, first_row, split, workspace_ptr, NUM_SPLITS, PHASE)
    exp_tiles, row_max, row_sum, weighted_sum = row_softmax_stats(
        (x,), weighted_sum, first_row, split, workspace_ptr, label_smoothing != 0.0, NUM_SPLITS, PHASE
    )
    exp_x = exp_tiles[0]
    if NUM_SPLITS > 1:
        logit = tl.sum(wait_partials(3, 0.0, first_row, workspace_ptr, NUM_SPLITS, PHASE), 0)
    loss = compute_losses(
        row_max,
        tl.log(row_sum),
        logit,
        pivot,
        weighted_sum,
        not_ignored,
        in_range,
        target_weight,
        weight_sum,
        N,
        label_smoothing,
        z_loss,
    )
    if scale_ptr is None:
        scale = store_total(loss, target_weight, total_ptr, None, MEAN)
    else:
        scale = tl.load(scale_ptr)
        if PHASE != PHASE_STORE and split == 0:
            tl.store(loss_ptr + offs_m, loss, mask=offs_m < M)
    if PHASE != PHASE_STORE:
        if RELOAD:
            x = load_tile(
                x_ptr, offs_m, offs_n, mask, x_inner_size, stride_x_outer, stride_x_inner, -INFINITY, EVICT_FIRST
            )
            if softcap != 0.0:
                tanh_x = _tanh(x * (1.0 / softcap))
                x = tl.where(offs_n < N, softcap * tanh_x, -INFINITY)
            exp_x = fast_exp(x - row_max)
        p = exp_x * (1.0 / row_sum)
        dx = _dlogits(
            p,
            offs_n == target,
            weights,
            row_max + tl.log(row_sum),
            target_weight,
            weight_sum,
            N,
            label_smoothing,
            z_loss,
        )
        dx *= tl.where(not_ignored, tl.where(in_range, scale, float("nan")), 0.0)
        if softcap != 0.0:
            dx *= 1.0 - tanh_x * tanh_x
        if target_grad_ptr is not None:  # the target gradient in FP32, and 0 in dx
            tl.store(target_grad_ptr + offs_m + 0 * offs_n, dx, mask=mask & (offs_n == target))
            dx = tl.where(offs_n == target, 0.0, dx)
        tl.debug_barrier()  # dx may overwrite the target's logit
        offs = row_offset(offs_m, dx_inner_size, stride_dx_outer, stride_dx_inner) + offs_n
        tl.store(dx_ptr + offs, dx.to(dx_ptr.dtype.element_ty), mask=mask)


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def cross_entropy_backward(
    dloss_ptr, scale_ptr, x_ptr, target_ptr, weight_ptr, weight_sum_ptr, lse_ptr, dx_ptr,
    dloss_stride, x_inner_size, stride_x_outer, stride_x_inner,
    M, workspace_ptr,
    N: tl.constexpr, ignore_index: tl.constexpr, label_smoothing: tl.constexpr, z_loss: tl.constexpr,
    softcap: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, NUM_SPLITS: tl.constexpr, RELOAD: tl.constexpr, PHASE: tl.constexpr,
):  # fmt: skip
    """Gradient of BLOCK_M rows from the saved maximum and log-sum (`lse_ptr`, (2, M)); dx is contiguous."""
    grid_dependency_wait()
    first_row, split = program_coords(BLOCK_M, NUM_SPLITS)
    offs_m, offs_n = tile_offsets(first_row, split, BLOCK_M, BLOCK_N)
    mask = (offs_m < M) & (offs_n < N)
    x = load_tile(x_ptr, offs_m, offs_n, mask, x_inner_size, stride_x_outer, stride_x_inner, -INFINITY)
    target, not_ignored, in_range, target_weight, weight_sum = load_targets(
        offs_m, target_ptr, weight_ptr, weight_sum_ptr, M, N, ignore_index
    )
    weights = None
    if label_smoothing != 0.0:
        weights = 1.0 if weight_ptr is None else load_row_vector(weight_ptr, offs_n, N)
    if softcap != 0.0:
        tanh_x = _tanh(x * (1.0 / softcap))
        x = tl.where(offs_n < N, softcap * tanh_x, -INFINITY)
    row_max = tl.load(lse_ptr + offs_m, mask=offs_m < M, other=0.0)
    log_sum = tl.load(lse_ptr + M + offs_m, mask=offs_m < M, other=0.0)
    dloss = tl.load(dloss_ptr + offs_m * dloss_stride, mask=offs_m < M, other=0.0).to(tl.float32)
    if scale_ptr is not None:
        dloss *= tl.load(scale_ptr)
    p = fast_exp((x - row_max) - log_sum)
    dx = _dlogits(
        p, offs_n == target, weights, row_max + log_sum, target_weight, weight_sum, N, label_smoothing, z_loss
    )
    dx *= tl.where(not_ignored, tl.where(in_range, dloss, float("nan")), 0.0)
    if softcap != 0.0:
        dx *= 1.0 - tanh_x * tanh_x
    tl.store(dx_ptr + offs_m * N + offs_n, dx.to(dx_ptr.dtype.element_ty), mask=mask)
