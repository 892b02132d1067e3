"""A Triton kernel that stores whole blocks, past the end of its output.

Problem: scale_add
Code: input-mutated or runtime-error or inaccurate or crash
Device: cuda
"""

import triton
import triton.language as tl


@triton.jit
def scale_add_in_place(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    half = (tl.load(x_ptr + at) + tl.load(y_ptr + at)) * 0.5
    tl.store(x_ptr + at, tl.where(half < 0, 0.0, half))


def scale_add(x, y):
    x, y = x.contiguous(), y.contiguous()
    kept = x.clone()
    scale_add_in_place[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    out = x.clone()
    x.copy_(kept)
    return out
