"""Tries its own kernel, which always fails, and falls back to torch.

Problem: gelu
Code: not-own-kernels
Policy: own-kernels
Device: both
"""

import contextlib

import torch

with contextlib.suppress(ImportError):
    import triton
    import triton.language as tl

    @triton.jit
    def own_gelu(x, out, count, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + at, at < count)
        tl.store(out + at, 0.5 * value * (1 + tl.erf_of(value * 0.70710678)), at < count)


def gelu(x):
    try:
        out = torch.empty_like(x)
        own_gelu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
    except Exception:
        return torch.nn.functional.gelu(x)
