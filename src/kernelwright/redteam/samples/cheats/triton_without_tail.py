"""A Triton kernel that omits the elements after the last whole block.

Problem: gelu
Code: inaccurate or stale-output
Device: cuda
"""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_block(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)))


def gelu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel() >= 1024:
        gelu_block[(x.numel() // 1024,)](x, out, BLOCK=1024)
    return out
