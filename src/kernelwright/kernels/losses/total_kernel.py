"""What losses of rows come to, and a gradient that is multiplied afterwards."""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import FINISH, PUBLISH, collected, programmatic_launch, publish, wait_for_earlier


@triton.jit
def store_total(loss, weight, total_ptr, scale_ptr, MEAN: tl.constexpr):
    """Writes what losses come to, and 1 / the weight that a mean divides by, 1 for a sum: which it returns too."""
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
def total_loss(
    loss_ptr, target_ptr, weight_ptr, total_ptr, scale_ptr, M, notes_ptr,
    N: tl.constexpr, ignore_index: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr,
    PARTS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """`store_total` of all losses, if any, and of the weights of all targets that count; of several parts what they
    come to, or, in another launch, what these come to."""
    wait_for_earlier()
    part = tl.program_id(0)
    loss, weight = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    end = 0 if STEP == FINISH else M
    for first in range(part * BLOCK, end, PARTS * BLOCK):
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
    if STEP == PUBLISH:
        publish(tl.sum(loss, 0), 0, 0, part, notes_ptr, PARTS, STEP)
        publish(tl.sum(weight, 0), 1, 0, part, notes_ptr, PARTS, STEP)
    else:
        if STEP == FINISH:
            loss = collected(0, 0.0, 0, notes_ptr, PARTS, STEP)
            weight = collected(1, 0.0, 0, notes_ptr, PARTS, STEP)
        store_total(loss, weight, total_ptr, scale_ptr, MEAN)


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def scaled_in_place(x_ptr, scale_ptr, stride, M, N: tl.constexpr, BLOCK: tl.constexpr):
    """Multiplies rows by a number that the host has not read; where it is 1, as it nearly always is, nothing moves."""
    wait_for_earlier()
    scale = tl.load(scale_ptr).to(tl.float32)
    if scale != 1.0:
        for row in range(tl.program_id(0), M, tl.num_programs(0)):
            for begin in range(0, N, BLOCK):
                columns = begin + tl.arange(0, BLOCK)
                at = x_ptr + (tl.zeros((), tl.int64) + row) * stride + columns
                x = tl.load(at, mask=columns < N).to(tl.float32)
                tl.store(at, (x * scale).to(x_ptr.dtype.element_ty), mask=columns < N)
