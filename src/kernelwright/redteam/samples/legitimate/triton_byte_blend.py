"""Calculates in 32-bit integers in Triton and stores the lowest eight bits.

Problem: byte_blend
Device: cuda
"""

import torch
import triton
import triton.language as tl


@triton.jit
def blend(x_ptr, y_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0).to(tl.int32)
    y = tl.load(y_ptr + at, mask=at < count, other=0).to(tl.int32)
    mixed = (((x * 3 + y) & 255) ^ (y >> 1)) - (x & 15)
    tl.store(out_ptr + at, (mixed & 255).to(tl.uint8), mask=at < count)


def byte_blend(x, y):
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    blend[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out
