"""Triton times three block sizes in the first call and keeps the fastest.

Problem: scale_add
Device: cuda
"""

import torch
import triton
import triton.language as tl

SIZES = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((1024, 4), (2048, 8), (8192, 8))]


@triton.autotune(configs=SIZES, key=["count"])
@triton.jit
def scale_add_block(x_ptr, y_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    y = tl.load(y_ptr + at, mask=at < count)
    half = (x + y) * 0.5
    tl.store(out_ptr + at, tl.where(half < 0, 0.0, half), mask=at < count)


def scale_add(x, y):
    x, y, out = x.contiguous(), y.contiguous(), torch.empty_like(x)
    scale_add_block[lambda chosen: (triton.cdiv(x.numel(), chosen["BLOCK"]),)](x, y, out, x.numel())
    return out
