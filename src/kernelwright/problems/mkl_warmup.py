"""Warm up MKL's vector functions, whose first call on a CPU can be inaccurate.

MKL selects a kernel for each of its vector functions at its first call. Before MKL 2025.0 two threads that make this
call at the same time race, and one of them may use an FP32 kernel with 12 bits for this call only
(github.com/pytorch/pytorch/issues/188792). Half of a candidate's first result, or of the expected values, is then off
by 1e-4.
"""

from __future__ import annotations

import functools

import torch

MKL_FUNCTIONS = (
    torch.acos,
    torch.asin,
    torch.atan,
    torch.cos,
    torch.cosh,
    torch.erf,
    torch.erfc,
    torch.erfinv,
    torch.exp,
    torch.expm1,
    torch.log,
    torch.log10,
    torch.log1p,
    torch.log2,
    torch.sin,
    torch.sinh,
    torch.sqrt,
    torch.tan,
    torch.tanh,
)


@functools.cache
def warm_up_mkl() -> None:
    """Call each function once, in this thread alone, once per process; takes 15 ms."""
    with torch.no_grad():
        for dtype in (torch.float32, torch.float64):
            one = torch.full((1,), 0.5, dtype=dtype, device="cpu")
            for function in MKL_FUNCTIONS:
                function(one)
