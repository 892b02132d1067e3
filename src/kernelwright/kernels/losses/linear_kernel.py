"""What the targets' logits add to the gradients of a linear layer under cross-entropy.

Idea: of a row's gradient by its logits that by the target's is by far the largest. It is taken out of the products and
added here, in FP32: the weight's gradient, which is rounded whenever a part of the rows has been added to it, is small
until then. Rows of one target are added up in their order by one program, so that results repeat.
"""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import programmatic_launch, wait_for_earlier


@programmatic_launch
@triton.jit(do_not_specialize=["N", "ignore_index"])
def add_to_rows(
    dx_ptr, weight_ptr, stride, apart_ptr, target_ptr, N, ignore_index,
    K: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """To each row of dx the weights of its target times what is `apart`."""
    wait_for_earlier()
    row = (tl.program_id(0) // PARTS).to(tl.int64)
    columns = tl.program_id(0) % PARTS * BLOCK + tl.arange(0, BLOCK)
    target = tl.load(target_ptr + row)
    if (target != ignore_index) & (target >= 0) & (target < N):
        pointers = dx_ptr + row * K + columns
        weight = tl.load(weight_ptr + target * stride + columns, mask=columns < K).to(tl.float32)
        dx = tl.load(pointers, mask=columns < K).to(tl.float32) + tl.load(apart_ptr + row) * weight
        tl.store(pointers, dx.to(dx_ptr.dtype.element_ty), mask=columns < K)


@programmatic_launch
@triton.jit(do_not_specialize=["M", "N", "ignore_index"])
def add_to_targets(
    dweight_ptr, dbias_ptr, x_ptr, stride, apart_ptr, sorted_ptr, order_ptr, M, N, ignore_index,
    K: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """To the weights' gradient, of each target, its rows of x times what is `apart`; targets are sorted, `order` says
    their rows."""
    wait_for_earlier()
    place = tl.program_id(0) // PARTS
    columns = tl.program_id(0) % PARTS * BLOCK + tl.arange(0, BLOCK)
    target = tl.load(sorted_ptr + place)
    before = tl.load(sorted_ptr + place - 1, mask=place > 0, other=-1)
    if (target != before) & (target != ignore_index) & (target >= 0) & (target < N):
        total, weight = tl.zeros((BLOCK,), tl.float32), 0.0
        while tl.load(sorted_ptr + place, mask=place < M, other=-1) == target:
            row = tl.load(order_ptr + place)
            apart = tl.load(apart_ptr + row)
            total += apart * tl.load(x_ptr + row * stride + columns, mask=columns < K, other=0.0).to(tl.float32)
            weight += apart
            place += 1
        if dweight_ptr is not None:
            pointers = dweight_ptr + target * K + columns
            total += tl.load(pointers, mask=columns < K).to(tl.float32)
            tl.store(pointers, total.to(dweight_ptr.dtype.element_ty), mask=columns < K)
        if dbias_ptr is not None and tl.program_id(0) % PARTS == 0:
            tl.store(dbias_ptr + target, tl.load(dbias_ptr + target) + weight)
