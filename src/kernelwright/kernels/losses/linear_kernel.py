"""Contribution of the target gradients to the gradients of a linear layer under cross-entropy.

Idea: in the gradient of a row with respect to its logits the target's entry is by far the largest. It is kept out of
the GEMMs and added here in FP32: the weight gradient, which is rounded whenever a chunk of rows is accumulated into
it, stays small until then. Rows with the same target are added in order by one program, so results are
deterministic.
"""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import grid_dependency_wait, programmatic_launch


@programmatic_launch
@triton.jit(do_not_specialize=["N", "ignore_index"])
def add_target_grad_to_dx(
    dx_ptr, weight_ptr, stride, target_grad_ptr, target_ptr, N, ignore_index,
    K: tl.constexpr, NUM_BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx[row] += target_grad[row] * weight[target[row]]."""
    grid_dependency_wait()
    row = (tl.program_id(0) // NUM_BLOCKS).to(tl.int64)
    offs_k = tl.program_id(0) % NUM_BLOCKS * BLOCK + tl.arange(0, BLOCK)
    target = tl.load(target_ptr + row)
    if (target != ignore_index) & (target >= 0) & (target < N):
        ptrs = dx_ptr + row * K + offs_k
        weight = tl.load(weight_ptr + target * stride + offs_k, mask=offs_k < K).to(tl.float32)
        dx = tl.load(ptrs, mask=offs_k < K).to(tl.float32) + tl.load(target_grad_ptr + row) * weight
        tl.store(ptrs, dx.to(dx_ptr.dtype.element_ty), mask=offs_k < K)


@programmatic_launch
@triton.jit(do_not_specialize=["M", "N", "ignore_index"])
def add_target_grad_to_dweight(
    dweight_ptr, dbias_ptr, x_ptr, stride, target_grad_ptr, sorted_targets_ptr, sort_order_ptr, M, N, ignore_index,
    K: tl.constexpr, NUM_BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dweight[target] += sum of target_grad[row] * x[row] over the rows with that target, and dbias likewise.

    `sorted_targets_ptr` holds the sorted targets, `sort_order_ptr` their rows.
    """
    grid_dependency_wait()
    pos = tl.program_id(0) // NUM_BLOCKS
    offs_k = tl.program_id(0) % NUM_BLOCKS * BLOCK + tl.arange(0, BLOCK)
    target = tl.load(sorted_targets_ptr + pos)
    previous = tl.load(sorted_targets_ptr + pos - 1, mask=pos > 0, other=-1)
    if (target != previous) & (target != ignore_index) & (target >= 0) & (target < N):
        acc, weight = tl.zeros((BLOCK,), tl.float32), 0.0
        while tl.load(sorted_targets_ptr + pos, mask=pos < M, other=-1) == target:
            row = tl.load(sort_order_ptr + pos)
            target_grad = tl.load(target_grad_ptr + row)
            acc += target_grad * tl.load(x_ptr + row * stride + offs_k, mask=offs_k < K, other=0.0).to(tl.float32)
            weight += target_grad
            pos += 1
        if dweight_ptr is not None:
            ptrs = dweight_ptr + target * K + offs_k
            acc += tl.load(ptrs, mask=offs_k < K).to(tl.float32)
            tl.store(ptrs, acc.to(dweight_ptr.dtype.element_ty), mask=offs_k < K)
        if dbias_ptr is not None and tl.program_id(0) % NUM_BLOCKS == 0:
            tl.store(dbias_ptr + target, tl.load(dbias_ptr + target) + weight)
