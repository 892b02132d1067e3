"""A Triton kernel with the error function, 1,024 elements per program.

Problem: gelu
Device: cuda
"""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_block(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    tl.store(out_ptr + at, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=at < count)


def gelu(x):
    x, out = x.contiguous(), torch.empty_like(x)
    gelu_block[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
