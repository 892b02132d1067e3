"""A Triton kernel with the block size of the declared row length: longer rows are neither read nor written to the end.

Problem: many_rows
Code: inaccurate
Device: cuda
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x_ptr, out_ptr, N, BLOCK_N: tl.constexpr):
    offs = tl.arange(0, BLOCK_N)
    start = tl.program_id(0).to(tl.int64) * N
    row = tl.load(x_ptr + start + offs, mask=offs < N, other=-float("inf"))
    exponentials = tl.exp(row - tl.max(row))
    tl.store(out_ptr + start + offs, exponentials / tl.sum(exponentials), mask=offs < N)


def many_rows(x):
    out = torch.empty_like(x)
    _softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK_N=512)
    return out
