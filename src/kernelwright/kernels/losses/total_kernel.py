"""Reduction of row losses to a mean or sum, and scaling of a gradient in place."""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import (
    PHASE_COMBINE,
    PHASE_STORE,
    grid_dependency_wait,
    programmatic_launch,
    store_partial,
    wait_partials,
)


@triton.jit
def store_total(loss, weight, total_ptr, scale_ptr, MEAN: tl.constexpr):
    """Store the reduced loss, and 1 / the weight sum for a mean or 1 for a sum, which is also returned."""
    weight = tl.sum(weight)
    scale = 1.0 / weight if MEAN else 1.0
    if scale_ptr is not None:
        tl.store(scale_ptr, scale)
    if total_ptr is not None:
        total = tl.sum(loss)
        tl.store(total_ptr, total / weight if MEAN else total)
    return scale


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def reduce_losses_kernel(
    loss_ptr, target_ptr, weight_ptr, total_ptr, scale_ptr, M, workspace_ptr,
    N: tl.constexpr, ignore_index: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr,
    NUM_SPLITS: tl.constexpr, PHASE: tl.constexpr,
):  # fmt: skip
    """`store_total` of all losses, if any, and of the weights of all targets that are not ignored.

    With several splits PHASE_STORE stores their partials and PHASE_COMBINE reduces these in a second launch.
    """
    grid_dependency_wait()
    split = tl.program_id(0)
    loss, weight = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    end = 0 if PHASE == PHASE_COMBINE else M
    for first_row in range(split * BLOCK, end, NUM_SPLITS * BLOCK):
        offs_m = first_row + tl.arange(0, BLOCK)
        if loss_ptr is not None:
            loss += tl.load(loss_ptr + offs_m, mask=offs_m < M, other=0.0)
        if MEAN:
            target = tl.load(target_ptr + offs_m, mask=offs_m < M, other=ignore_index)
            if weight_ptr is None:
                weight += tl.where(target != ignore_index, 1.0, 0.0)
            else:
                in_range = (target != ignore_index) & (target >= 0) & (target < N)
                weight += tl.load(weight_ptr + target, mask=in_range, other=0.0).to(tl.float32)
    if PHASE == PHASE_STORE:
        store_partial(tl.sum(loss, 0), 0, 0, split, workspace_ptr, NUM_SPLITS, PHASE)
        store_partial(tl.sum(weight, 0), 1, 0, split, workspace_ptr, NUM_SPLITS, PHASE)
    else:
        if PHASE == PHASE_COMBINE:
            loss = wait_partials(0, 0.0, 0, workspace_ptr, NUM_SPLITS, PHASE)
            weight = wait_partials(1, 0.0, 0, workspace_ptr, NUM_SPLITS, PHASE)
        store_total(loss, weight, total_ptr, scale_ptr, MEAN)


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def scale_in_place_kernel(x_ptr, scale_ptr, stride, M, N: tl.constexpr, BLOCK: tl.constexpr):
    """Multiply rows by a scalar that is read on the device; if it is 1, which is the usual case, no data moves."""
    grid_dependency_wait()
    scale = tl.load(scale_ptr).to(tl.float32)
    if scale != 1.0:
        for row in range(tl.program_id(0), M, tl.num_programs(0)):
            for col_start in range(0, N, BLOCK):
                offs_n = col_start + tl.arange(0, BLOCK)
                ptrs = x_ptr + (tl.zeros((), tl.int64) + row) * stride + offs_n
                x = tl.load(ptrs, mask=offs_n < N).to(tl.float32)
                tl.store(ptrs, (x * scale).to(x_ptr.dtype.element_ty), mask=offs_n < N)
