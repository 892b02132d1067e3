"""Decompositions of core ATen operators into steps of one region, where torch's own decomposition prevents that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kernelwright.compiler.capture.target_device import runs_on_cpu

aten = torch.ops.aten


def custom_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return a table for `ExportedProgram.run_decompositions`."""
    return {
        aten.copy.default: _copy,
        aten.native_group_norm.default: _group_norm,
        aten._native_batch_norm_legit_no_training.default: _batch_norm_running_stats,
        aten._native_batch_norm_legit.no_stats: _batch_norm_no_stats,
        aten._native_batch_norm_legit_functional.default: _batch_norm_functional,
    }


def _copy(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """The target's new value, which does not depend on its old one; cloned, since the source may change afterwards."""
    return source.to(target.dtype).expand(target.shape).clone()


def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, channels: int, size: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Group norm over rows of one sample and group: [n, groups, channels / groups, size]."""
    grouped = (n, groups, channels // groups, size)
    fp32 = _to_fp32(x).reshape(grouped)
    variance, mean = torch.var_mean(fp32, dim=[2, 3], correction=0, keepdim=True)
    scale = torch.rsqrt(variance + eps)
    out = (fp32 - mean) * scale
    per_channel = (1, groups, channels // groups, 1)
    out = _affine(out, weight, bias, per_channel)
    return out.to(x.dtype).view(x.shape), mean.view(n, groups).to(x.dtype), scale.view(n, groups).to(x.dtype)


def _batch_norm_running_stats(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    shape = _per_channel(x)
    scale = torch.rsqrt(_to_fp32(variance) + eps).view(shape)
    out = _affine((_to_fp32(x) - _to_fp32(mean).view(shape)) * scale, weight, bias, shape)
    return out.to(x.dtype), x.new_empty((0,)), x.new_empty((0,))


def _batch_norm_no_stats(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return _batch_norm_batch_stats(x, weight, bias, eps)[:3]


def _batch_norm_functional(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_variance: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The three results of the norm, then the updated running mean and variance."""
    if not training:
        results = _batch_norm_running_stats(x, weight, bias, running_mean, running_variance, momentum, eps)
        return (*results, running_mean.clone(), running_variance.clone())
    out, mean, scale, variance = _batch_norm_batch_stats(x, weight, bias, eps)
    count = x.numel() // x.shape[1]
    unbiased = variance * (count / max(count - 1, 1))
    new_mean = mean * momentum + running_mean * (1 - momentum)
    new_variance = unbiased * momentum + running_variance * (1 - momentum)
    return out, mean, scale, new_mean.to(running_mean.dtype), new_variance.to(running_variance.dtype)


def _batch_norm_batch_stats(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Batch norm over rows of one channel; on a CPU the statistics are in FP64, as in torch.

    Returns:
        (out, mean, 1 / standard deviation, variance), the last three [channels].
    """
    fp32, shape = _to_fp32(x), _per_channel(x)
    dims = [0, *range(2, x.dim())]
    wide = fp32.double() if runs_on_cpu(x) else fp32
    variance, mean = torch.var_mean(wide, dim=dims, correction=0, keepdim=True)
    scale, mean = torch.rsqrt(variance + eps).to(fp32.dtype), mean.to(fp32.dtype)
    out = _affine((fp32 - mean) * scale, weight, bias, shape).to(x.dtype)
    channels = (x.shape[1],)
    return out, mean.view(channels), scale.view(channels), variance.view(channels)


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Sequence[int]) -> Tensor:
    if weight is not None:
        x = x * weight.view(shape)
    return x if bias is None else x + bias.view(shape)


def _per_channel(x: Tensor) -> tuple[int, ...]:
    return (1, x.shape[1], *(1,) * (x.dim() - 2))


def _to_fp32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
