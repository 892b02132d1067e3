"""Products by torch's operators: for K = 0, small FP32 products, and other GPUs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F

from kernelwright.kernels.matmul.epilogue import BLOCK, Epilogue

_LOCK = threading.Lock()
"""The precision is a setting of the process."""


def multiply_with_torch(a: Tensor, b: Tensor, epilogue: Epilogue, precision: str, out: Tensor) -> Tensor:
    """Write a product with its epilogue, computed in FP32, to `out`: in place if that is FP32 and there is no residual,
    which may be `out` itself."""
    if epilogue.has_block_scales:
        a, b = (
            a.float() * _expand(epilogue.scale_a, a, -1),
            b.float() * _expand(_expand(epilogue.scale_b, b, -2), b, -1),
        )
        epilogue = epilogue._replace(scale_a=None, scale_b=None)
    is_direct = out.dtype == torch.float32 and epilogue.residual is None and epilogue.activation != "swiglu"
    with _fp32_precision("tf32" if precision == "tf32" else "ieee"):
        value = _product(a, b, out if is_direct else None)
    if epilogue.alpha != 1.0:
        value.mul_(epilogue.alpha)
    for scale in (epilogue.scale_a, epilogue.scale_b):
        if scale is not None:
            value.mul_(scale)
    if epilogue.bias is not None:
        value.add_(epilogue.bias)
    if epilogue.residual is not None:
        value.add_(epilogue.residual, alpha=epilogue.beta)
    value = apply_activation(value, epilogue.activation)
    return out if value is out else out.copy_(value)


def _product(a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
    """In FP32; 16-bit operands on a GPU by its tensor cores."""
    if not a.is_cuda or a.element_size() != 2 or a.shape[-1] == 0:
        return torch.matmul(a.float(), b.float(), out=out)
    shape = (*a.shape[:-1], b.shape[-1])
    if b.dim() == 2:
        return torch.mm(a.flatten(0, -2), b, out_dtype=torch.float32).view(shape)
    return torch.bmm(a.flatten(0, -3), b.flatten(0, -3), out_dtype=torch.float32).view(shape)


def _expand(scales: Tensor | None, operand: Tensor, dim: int) -> Tensor:
    """Scales of blocks along a dimension, repeated for its elements."""
    assert scales is not None
    size = operand.shape[dim]
    return scales if scales.shape[dim] == size else scales.repeat_interleave(BLOCK, dim).narrow(dim, 0, size)


@contextmanager
def _fp32_precision(wanted: str) -> Iterator[None]:
    """Let FP32 products of a GPU be computed in `ieee` or `tf32`."""
    settings = torch.backends.cuda.matmul
    with _LOCK:
        before = settings.fp32_precision
        settings.fp32_precision = wanted
        try:
            yield
        finally:
            settings.fp32_precision = before


def apply_activation(x: Tensor, activation: str) -> Tensor:
    """An activation by torch's operators."""
    match activation:
        case "relu":
            return F.relu(x)
        case "gelu":
            return F.gelu(x)
        case "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        case "silu":
            return F.silu(x)
        case "swiglu":
            gate, up = x.chunk(2, dim=-1)
            return F.silu(gate) * up
    return x
