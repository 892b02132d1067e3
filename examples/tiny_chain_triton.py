"""The whole chain in one launch; the 256 numbers stay in registers."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 256


@triton.jit
def chain(x_ptr, out_ptr, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    for _ in range(STEPS):
        x = x * 1.5 / (1 + tl.abs(x))
    tl.store(out_ptr + offs, x, mask=mask)


def tiny_chain(x: Tensor) -> Tensor:
    x, out = x.contiguous(), torch.empty_like(x)
    chain[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), STEPS=16, BLOCK=BLOCK)
    return out
