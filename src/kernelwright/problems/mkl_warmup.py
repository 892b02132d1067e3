"""What of torch's arithmetic on a CPU is right from its second call on.

MKL picks a kernel for each of its vector functions in the first call of it. Before MKL 2025.0 two threads that make
this call together race: one of them may be given a kernel of 12 bits for FP32, for this call alone
(github.com/pytorch/pytorch/issues/188792). Half of a candidate's first answer is then off by 1e-4, or half of what it
is held against.
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
    """Makes the first call of each function, by this thread alone, once in a process; that takes 15 ms."""
    with torch.no_grad():
        for dtype in (torch.float32, torch.float64):
            one = torch.full((1,), 0.5, dtype=dtype, device="cpu")
            for function in MKL_FUNCTIONS:
                function(one)
