"""Softmax and log-softmax operators."""

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
        x: (..., N), fp16/bf16/fp32; copied unless its rows fit two leading strides and are dense.
        mask: broadcast to x: bool, False is masked out, or fp16/bf16/fp32, added to scale * x; gets no gradient.
    Returns:
        Same shape and dtype as x; NaN where a row is fully masked.
    Raises:
        ShapeError: dim is not the last one, or the mask does not broadcast.
        DeviceError: not on a CUDA device.
    Cost: 2 * M * N * itemsize bytes of DRAM; memory-bound at every N.
    Source: Milakov & Gimelshein 2018, arXiv:1805.02867.
    """
    return _softmax(x, mask, dim, scale, False)


@cached_launch(rows="x")
def log_softmax(x: Tensor, dim: int = -1, *, scale: float = 1.0, mask: Tensor | None = None) -> Tensor:
    """Logarithm of `softmax`, computed in log space; arguments and errors as `softmax`."""
    return _softmax(x, mask, dim, scale, True)


def _softmax(x: Tensor, mask: Tensor | None, dim: int, scale: float, log: bool) -> Tensor:
    require(
        dim in (-1, x.dim() - 1) and x.dim() > 0,
        lambda: f"dim is {dim}; it must be the last of {x.dim()} dimensions",
    )
    require_tensor("x", x)
    if mask is not None:
        require_tensor("mask", mask, dtypes=(torch.bool, *DTYPES))
        broadcasts = mask.dim() <= x.dim() and all(
            m in (1, n) for m, n in zip(mask.shape[::-1], x.shape[::-1], strict=False)
        )
        require(broadcasts, lambda: f"mask is {tuple(mask.shape)}, which does not broadcast to {tuple(x.shape)}")
    return _SOFTMAX(x, mask, scale, log)


@cached_launch(rows="x")
def _forward(x: Tensor, mask: Tensor | None, scale: float, log: bool) -> Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not x.numel():
        return y
    N, x_rows = x.shape[-1], as_rows(x)
    if mask is None and (cluster := _CLUSTER_FORWARD.choose_layout(x_rows)):
        _CLUSTER_FORWARD(
            cluster, x, (x_rows.tensor, y, *x_rows.stride_args, float(scale)), LOG_SOFTMAX=log, HAS_SCALE=scale != 1.0
        )
        return y
    mask_rows = as_rows(x if mask is None else mask.expand(x.shape), max_leading_dims=3)
    layout, num_tiles = forward_layout(N, x.itemsize)
    launch(
        softmax_forward,
        layout,
        x.numel() // N,
        x.device,
        (
            x_rows.tensor,
            None if mask is None else mask_rows.tensor,
            y,
            *x_rows.stride_args,
            *mask_rows.stride_args,
            scale,
        ),
        N=N,
        LOG_SOFTMAX=log,
        NUM_TILES=num_tiles,
    )
    return y


@cached_launch(rows="y")
def _backward(dy: Tensor, y: Tensor, scale: float, log: bool, masked: bool) -> Tensor:
    dx = y.new_empty(y.shape)
    if not y.numel():
        return dx
    N, dy_rows = y.shape[-1], as_rows(dy)
    if not (log and masked) and (cluster := _CLUSTER_BACKWARD.choose_layout(dy_rows, as_rows(y), operands=2)):
        macros: dict[str, int] = {"LOG_SOFTMAX": log, "HAS_SCALE": True}
        if cluster.num_warps == MAX_CLUSTER_WARPS:
            macros["MAX_THREADS_PER_SM"] = TWO_BLOCK_THREADS_PER_SM
        _CLUSTER_BACKWARD(cluster, y, (dy_rows.tensor, y, dx, *dy_rows.stride_args, float(scale)), **macros)
        return dx
    layout, num_tiles = backward_layout(N, y.itemsize)
    launch(
        softmax_backward,
        layout,
        y.numel() // N,
        y.device,
        (dy_rows.tensor, y, dx, *dy_rows.stride_args, scale),
        N=N,
        LOG_SOFTMAX=log,
        HAS_BOOL_MASK=masked,
        NUM_TILES=num_tiles,
    )
    return dx


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, mask, *params = inputs
    ctx.params = (*params, mask is not None and mask.dtype == torch.bool)
    ctx.save_for_backward(output)


def _autograd_backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    (y,) = ctx.saved_tensors
    return _SOFTMAX_BACKWARD(dy, y, *ctx.params), None, None, None


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
