"""A Triton kernel that adds to its input in place.

Problem: increment
Device: cuda
"""

import triton
import triton.language as tl


@triton.jit
def add_to(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + at, mask=at < count) + tl.load(y_ptr + at, mask=at < count)
    tl.store(x_ptr + at, total, mask=at < count)


def increment(x, y):
    into = x.contiguous()
    add_to[(triton.cdiv(x.numel(), 1024),)](into, y.contiguous(), x.numel(), BLOCK=1024)
    return x if into.data_ptr() == x.data_ptr() else x.copy_(into)
