"""Reference in FP64."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from kernelwright.kernels.matmul.epilogue import BLOCK

FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "swiglu": lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
}


def gemm(
    a: Tensor,
    b: Tensor,
    *,
    bias: Tensor | None = None,
    activation: str = "none",
    residual: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
) -> Tensor:
    """activation(alpha * (a * scale_a) @ (b * scale_b) + bias + beta * residual) in FP64; scales as of `gemm`."""
    if scale_b is not None and scale_b.dim() > 1 and scale_b.shape[-2] > 1:
        scale_a = None if scale_a is None else _expand_blocks(scale_a, -1)[..., : a.shape[-1]]
        scale_b = _expand_blocks(_expand_blocks(scale_b, -1), -2)[..., : b.shape[-2], : b.shape[-1]]
    a64 = a.double() if scale_a is None else a.double() * scale_a.double()
    b64 = b.double() if scale_b is None else b.double() * scale_b.double()
    sums = alpha * (a64 @ b64)
    sums = sums if bias is None else sums + bias.double()
    sums = sums if residual is None else sums + beta * residual.double()
    return FORMULAS[activation](sums)


def _expand_blocks(scale: Tensor, dim: int) -> Tensor:
    return scale.repeat_interleave(BLOCK, dim)
