"""Softmax and log-softmax for torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernelwright.kernels.launch_cache import cached_launch
from kernelwright.kernels.operators import DTYPES, Operator, require, require_tensor
from kernelwright.kernels.rows.cluster_launch import MAX_CLUSTER_WARPS, ClusterKernel
from kernelwright.kernels.rows.launcher import as_rows, launch
from kernelwright.kernels.softmaxes.configs import TWO_BLOCK_THREADS_PER_SM, backward_layout, forward_layout
from kernelwright.kernels.softmaxes.kernel import softmax_backward, softmax_forward

__all__ = ["log_softmax", "softmax"]
_CLUSTER_FORWARD = ClusterKernel(__file__, "softmax_forward")
_CLUSTER_BACKWARD = ClusterKernel(__file__, "softmax_backward")


@cached_launch(rows="x")
def softmax(x: Tensor, dim: int = -1, *, scale: float = 1.0, mask: Tensor | None = None) -> Tensor:
    """Softmax of scale * x over the last dimension, accumulated in FP32.

    Args:
        x: (..., N), fp16/bf16/fp32; strides that two leading dimensions can have are read as they are.
        mask: broadcast to x: bool, False for what is left out, or of x's kinds of dtype, added; it gets no gradient.
    Returns:
        Same shape and dtype as x; NaN where a row has nothing left.
    Raises:
        ShapeError: dim is not the last one, or the mask does not fit. DeviceError: not on a CUDA device.
    Cost: 2 * M * N * itemsize bytes of DRAM; memory-bound at every N.
    Source: Milakov & Gimelshein 2018, arXiv:1805.02867.
    """
    return _softmax(x, mask, dim, scale, False)


@cached_launch(rows="x")
def log_softmax(x: Tensor, dim: int = -1, *, scale: float = 1.0, mask: Tensor | None = None) -> Tensor:
    """The logarithm of `softmax`, computed without leaving it; everything else is the same."""
    return _softmax(x, mask, dim, scale, True)


def _softmax(x: Tensor, mask: Tensor | None, dim: int, scale: float, log: bool) -> Tensor:
    require(
        dim in (-1, x.dim() - 1) and x.dim() > 0,
        lambda: f"dim is {dim}; the kernels run over the last of {x.dim()} dimensions",
    )
    require_tensor("x", x)
    if mask is not None:
        require_tensor("mask", mask, dtypes=(torch.bool, *DTYPES))
        fits = mask.dim() <= x.dim() and all(m in (1, n) for m, n in zip(mask.shape[::-1], x.shape[::-1], strict=False))
        require(fits, lambda: f"mask is {tuple(mask.shape)}, which does not broadcast to {tuple(x.shape)}")
    return _SOFTMAX(x, mask, scale, log)


@cached_launch(rows="x")
def _forward(x: Tensor, mask: Tensor | None, scale: float, log: bool) -> Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not x.numel():
        return y
    N, read = x.shape[-1], as_rows(x)
    if mask is None and (shared := _CLUSTER_FORWARD.choose_layout(read)):
        _CLUSTER_FORWARD(
            shared, x, (read.tensor, y, *read.stride_args, float(scale)), LOG_SOFTMAX=log, HAS_SCALE=scale != 1.0
        )
        return y
    kept = as_rows(x if mask is None else mask.expand(x.shape), max_leading_dims=3)
    layout, tiles = forward_layout(N, x.itemsize)
    launch(
        softmax_forward,
        layout,
        x.numel() // N,
        x.device,
        (read.tensor, None if mask is None else kept.tensor, y, *read.stride_args, *kept.stride_args, scale),
        N=N,
        LOG_SOFTMAX=log,
        NUM_TILES=tiles,
    )
    return y


@cached_launch(rows="y")
def _backward(dy: Tensor, y: Tensor, scale: float, log: bool, masked: bool) -> Tensor:
    dx = y.new_empty(y.shape)
    if not y.numel():
        return dx
    N, given = y.shape[-1], as_rows(dy)
    if not (log and masked) and (shared := _CLUSTER_BACKWARD.choose_layout(given, as_rows(y), operands=2)):
        known: dict[str, int] = {"LOG_SOFTMAX": log, "HAS_SCALE": True}
        if shared.num_warps == MAX_CLUSTER_WARPS:
            known["MAX_THREADS_PER_SM"] = TWO_BLOCK_THREADS_PER_SM
        _CLUSTER_BACKWARD(shared, y, (given.tensor, y, dx, *given.stride_args, float(scale)), **known)
        return dx
    layout, tiles = backward_layout(N, y.itemsize)
    launch(
        softmax_backward,
        layout,
        y.numel() // N,
        y.device,
        (given.tensor, y, dx, *given.stride_args, scale),
        N=N,
        LOG_SOFTMAX=log,
        HAS_BOOL_MASK=masked,
        NUM_TILES=tiles,
    )
    return dx


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, mask, *about = inputs
    ctx.about = (*about, mask is not None and mask.dtype == torch.bool)
    ctx.save_for_backward(output)


def _autograd_backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    (y,) = ctx.saved_tensors
    return _SOFTMAX_BACKWARD(dy, y, *ctx.about), None, None, None


_SOFTMAX = Operator(
    "softmax(Tensor x, Tensor? mask, float scale, bool log) -> Tensor",
    _forward,
    lambda x, mask, scale, log: x.new_empty(x.shape),
    _autograd_backward,
    _setup_context,
)
_SOFTMAX_BACKWARD = Operator(
    "softmax_backward(Tensor dy, Tensor y, float scale, bool log, bool masked) -> Tensor",
    _backward,
    lambda dy, y, scale, log, masked: y.new_empty(y.shape),
)
