"""Activation operators, plain and gated, with bias, dropout and residual."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from kernelwright.kernels.activations.configs import WARPS, choose_block
from kernelwright.kernels.activations.kernel import activation_backward, activation_forward
from kernelwright.kernels.activations.spec import KINDS
from kernelwright.kernels.launch_cache import cached_launch, choose_by_rows
from kernelwright.kernels.launch_codegen import RowCountExpr
from kernelwright.kernels.operators import Operator, as_contiguous, require, require_tensor
from kernelwright.kernels.rows.launcher import as_rows, launch_programs, multiprocessors

__all__ = ["activation", "dropout_add", "geglu", "gelu", "relu_squared", "swiglu"]

Approximate = Literal["none", "tanh"]


@cached_launch(rows="gate")
def swiglu(gate: Tensor, up: Tensor, *, cast_first: bool = False) -> Tensor:
    """silu(gate) * up.

    Args:
        gate, up: same shape and dtype, fp16/bf16/fp32; halves of one packed tensor are read without a copy.
        cast_first: round silu(gate) to its dtype before multiplying, as Llama's module does; else round once, at the
            end.
    Returns:
        Same shape and dtype.
    Raises:
        ShapeError: shapes or dtypes differ.
        DeviceError: not on a CUDA device.
    Cost: 3 * numel * itemsize bytes of DRAM, the gradients 5; memory-bound.
    Source: Shazeer 2020, arXiv:2002.05202.
    """
    return activation(gate, up, kind="silu", cast_first=cast_first)


@cached_launch(rows="gate")
def geglu(gate: Tensor, up: Tensor, *, approximate: Approximate = "tanh", cast_first: bool = False) -> Tensor:
    """gelu(gate) * up; otherwise as `swiglu`."""
    return activation(gate, up, kind=_gelu(approximate), cast_first=cast_first)


@cached_launch(rows="x")
def gelu(x: Tensor, *, approximate: Approximate = "none", bias: Tensor | None = None) -> Tensor:
    """GELU of x + bias, as torch's gelu. Arguments as `activation`."""
    return activation(x, bias=bias, kind=_gelu(approximate))


@cached_launch(rows="x")
def relu_squared(x: Tensor, *, bias: Tensor | None = None) -> Tensor:
    """max(x + bias, 0)^2. Arguments as `activation`."""
    return activation(x, bias=bias, kind="relu_squared")


@cached_launch(rows="x")
def dropout_add(x: Tensor, residual: Tensor, p: float, *, seed: int, bias: Tensor | None = None) -> Tensor:
    """residual + dropout(x + bias); the dropout mask depends on the seed alone. Arguments as `activation`."""
    return activation(x, bias=bias, residual=residual, kind="identity", p=p, seed=seed)


def activation(
    x: Tensor,
    up: Tensor | None = None,
    *,
    kind: str,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    cast_first: bool = False,
    p: float = 0.0,
    seed: int = 0,
) -> Tensor:
    """residual + dropout(act(x + bias) * up), computed in FP32.

    Args:
        x: (..., N), fp16/bf16/fp32; rows with uniform stride are read without a copy.
        up: x's shape and dtype.
        residual: x's shape, fp16/bf16/fp32.
        bias: (N,), fp16/bf16/fp32.
        kind: silu, gelu, gelu_tanh, relu_squared or identity.
        cast_first: round act(x + bias) to x's dtype first.
        p: probability with which elements are dropped; the others are divided by 1 - p.
        seed: the dropout mask is a function of the seed and the element's index only.
    Returns:
        Same shape and dtype as x.
    Raises:
        ShapeError: shapes or dtypes do not match.
        DeviceError: not on a CUDA device.
    """
    require(kind in KINDS, lambda: f"no activation {kind!r}; there are {', '.join(KINDS)}")
    require(0.0 <= p < 1.0, lambda: f"p is {p}; it must be in [0, 1)")
    require(x.dim() > 0, lambda: "x has no dimension")
    require_tensor("x", x)
    require_tensor("up", up, x.shape, (x.dtype,))
    require_tensor("residual", residual, x.shape)
    require_tensor("bias", bias, x.shape[-1:])
    return _ACTIVATION(x, up, bias, residual, kind, cast_first, p, seed)


def _gelu(approximate: str) -> str:
    require(approximate in ("none", "tanh"), lambda: f"approximate is {approximate!r}; it must be 'none' or 'tanh'")
    return "gelu_tanh" if approximate == "tanh" else "gelu"


def _row_stride(tensor: Tensor) -> tuple[Tensor, int | None]:
    """A tensor and the stride of its rows; None if contiguous."""
    rows, stride = as_rows(tensor, max_leading_dims=1)
    return rows, None if stride[0] == tensor.shape[-1] or rows.is_contiguous() else stride[0]


def _launch_elementwise(
    kernel: Any, pointers: tuple[Tensor | None, ...], x: Tensor, *params: Any, **constants: Any
) -> None:
    numel = x.numel()
    N = x.shape[-1]
    block = choose_by_rows(choose_block, numel // max(1, N), N, multiprocessors(x.device), constants["p"] != 0.0)
    constants |= {"N": N, "BLOCK": block}
    launch_programs(
        kernel, RowCountExpr(numel, block), x.device, (*pointers, numel, *params), num_warps=WARPS, **constants
    )


@cached_launch(rows="x")
def _forward(
    x: Tensor,
    up: Tensor | None,
    bias: Tensor | None,
    residual: Tensor | None,
    kind: str,
    cast_first: bool,
    p: float,
    seed: int,
) -> Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    (x_rows, stride), (up_rows, up_stride) = _row_stride(x), (None, None) if up is None else _row_stride(up)
    pointers = x_rows, up_rows, as_contiguous(bias), as_contiguous(residual), y
    _launch_elementwise(activation_forward, pointers, x, seed, stride, up_stride, KIND=kind, CAST_FIRST=cast_first, p=p)
    return y


@cached_launch(rows="x")
def _backward(
    dy: Tensor, x: Tensor, up: Tensor | None, bias: Tensor | None, kind: str, cast_first: bool, p: float, seed: int
) -> tuple[Tensor, Tensor]:
    dx, dup = x.new_empty(x.shape), x.new_empty(x.shape if up is not None else (0,))
    (x_rows, stride), (up_rows, up_stride) = _row_stride(x), (None, None) if up is None else _row_stride(up)
    pointers = dy.contiguous(), x_rows, up_rows, as_contiguous(bias), dx, None if up is None else dup
    _launch_elementwise(
        activation_backward, pointers, x, seed, stride, up_stride, KIND=kind, CAST_FIRST=cast_first, p=p
    )
    return dx, dup


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, up, bias, residual, *ctx.params = inputs
    ctx.save_for_backward(x, up, bias)
    ctx.residual_dtype = None if residual is None else residual.dtype


def _autograd_backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, up, bias = ctx.saved_tensors
    dx, dup = _ACTIVATION_BACKWARD(dy, x, up, bias, *ctx.params)
    dbias = None if bias is None else dx[None].flatten(0, -2).sum(0, dtype=torch.float32).to(bias.dtype)
    dresidual = None if ctx.residual_dtype is None else dy.to(ctx.residual_dtype)
    return dx, dup if up is not None else None, dbias, dresidual, None, None, None, None


_ACTIVATION = Operator(
    "activation(Tensor x, Tensor? up, Tensor? bias, Tensor? residual, str kind, bool cast_first, float p, SymInt seed) "
    "-> Tensor",
    _forward,
    lambda x, *_: x.new_empty(x.shape),
    _autograd_backward,
    _setup_context,
)
_ACTIVATION_BACKWARD = Operator(
    "activation_backward(Tensor dy, Tensor x, Tensor? up, Tensor? bias, str kind, bool cast_first, float p, "
    "SymInt seed) -> (Tensor, Tensor)",
    _backward,
    lambda dy, x, up, *_: (x.new_empty(x.shape), x.new_empty(x.shape if up is not None else (0,))),
)
