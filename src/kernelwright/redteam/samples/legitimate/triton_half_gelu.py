"""A Triton kernel that converts BF16, computes in FP32 and rounds once.

Problem: half_gelu
Device: cuda
"""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_block(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count).to(tl.float32)
    result = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + at, result.to(tl.bfloat16), mask=at < count)


def half_gelu(x):
    x, out = x.contiguous(), torch.empty_like(x)
    gelu_block[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
