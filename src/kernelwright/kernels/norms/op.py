"""RMSNorm and LayerNorm: functions, modules, and operators with gradients."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from kernelwright.kernels.launch_cache import cached_launch, choose_by_rows
from kernelwright.kernels.norms.backward_launcher import compute_gradients
from kernelwright.kernels.norms.configs import forward_layout, forward_threads_per_sm, should_preload_weights
from kernelwright.kernels.norms.kernel import norm_forward
from kernelwright.kernels.operators import (
    Operator,
    as_contiguous,
    can_skip_dispatcher,
    on_fast_path,
    require,
    require_tensor,
)
from kernelwright.kernels.rows.cluster_launch import ClusterKernel, ClusterLayout, choose_rows_per_cluster
from kernelwright.kernels.rows.launcher import as_rows, launch, multiprocessors

FP32_EPS = torch.finfo(torch.float32).eps
__all__ = ["LayerNorm", "RMSNorm", "layer_norm", "rms_norm"]
_CLUSTER_FORWARD = ClusterKernel(__file__, "norm_forward")


@cached_launch(rows="x")
def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    eps: float | None = 1e-6,
    offset: float = 0.0,
    cast_first: bool = False,
) -> Any:
    """x / sqrt(mean(x^2) + eps) * (weight + offset) + bias over the last dimension, statistics in FP32.

    Args:
        x: (..., N), fp16/bf16/fp32; copied unless its rows fit two leading strides and are dense.
        weight, bias: (N,), fp16/bf16/fp32.
        residual: x's shape; added to x first, the sum rounded to the wider of both dtypes.
        eps: None means FP32's machine epsilon, as in torch.
        offset: 1 for Gemma, whose weights are stored minus 1.
        cast_first: round to x's dtype before multiplying by the weight, as Llama does; else round once, at the end.
    Returns:
        (..., N) in x's dtype; with a residual also the sum.
    Raises:
        ShapeError: shapes do not match.
        DeviceError: not on a CUDA device.
    Cost: 2 * M * N * itemsize bytes of DRAM, twice that with a residual; memory-bound at every N.
    Source: Zhang & Sennrich 2019, arXiv:1910.07467.
    """
    return _norm(x, residual, weight, bias, FP32_EPS if eps is None else eps, offset, False, cast_first)


@cached_launch(rows="x")
def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimension, statistics in FP32.

    Arguments, results and errors as `rms_norm`.
    Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450.
    """
    return _norm(x, residual, weight, bias, eps, 0.0, True, False)


class RMSNorm(torch.nn.RMSNorm):
    """torch.nn.RMSNorm on our kernel; with a residual it normalizes x + residual and also returns the sum."""

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Any:
        args = _flatten_norm_dims(self.normalized_shape, x, residual, self.weight)
        return _restore_shape(x, rms_norm(args[0], args[2], residual=args[1], eps=self.eps))


class LayerNorm(torch.nn.LayerNorm):
    """torch.nn.LayerNorm on our kernel; with a residual it normalizes x + residual and also returns the sum."""

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Any:
        args = _flatten_norm_dims(self.normalized_shape, input, residual, self.weight, self.bias)
        return _restore_shape(input, layer_norm(args[0], *args[2:], residual=args[1], eps=self.eps))


def _flatten_norm_dims(normalized_shape: tuple[int, ...], x: Tensor, *tensors: Tensor | None) -> list[Any]:
    """All tensors with the normalized dimensions flattened into one."""
    num_dims = len(normalized_shape)
    require(
        x.shape[-num_dims:] == normalized_shape, lambda: f"x is {tuple(x.shape)}; it must end in {normalized_shape}"
    )
    return [None if one is None else one.flatten(-num_dims) for one in (x, *tensors)]


def _restore_shape(x: Tensor, result: Any) -> Any:
    return tuple(one.view(x.shape) for one in result) if isinstance(result, tuple) else result.view(x.shape)


def _norm(x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, *params: Any) -> Any:
    _validate(x, residual, weight, bias)
    save_stats = not can_skip_dispatcher(x, residual, weight, bias)
    y, residual_sum, _, _ = _NORM(x, residual, weight, bias, *params, save_stats)
    return y if residual is None else (y, residual_sum)


def _validate(x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None) -> None:
    require(x.dim() > 0, lambda: "x has no dimension to normalize over")
    require_tensor("x", x)
    require_tensor("residual", residual, x.shape)
    require_tensor("weight", weight, x.shape[-1:])
    require_tensor("bias", bias, x.shape[-1:])


def _allocate_outputs(
    x: Tensor, residual: Tensor | None, centred: bool, save_stats: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """y, x + residual, mean, rstd; empty where not wanted."""
    y = torch.empty_like(x, memory_format=torch.contiguous_format)  # a third of the time of x.new_empty
    if on_fast_path() and residual is None and not save_stats:  # the dispatcher allows no aliased results
        placeholder = _empty_placeholder(x.device)
        return y, placeholder, placeholder, placeholder
    stats_shape = x.shape[:-1] if save_stats else (0,)
    if on_fast_path() and residual is not None and not save_stats:
        return y, _empty_sum(x, residual), (placeholder := _empty_placeholder(x.device)), placeholder
    return (
        y,
        x.new_empty((0,)) if residual is None else _empty_sum(x, residual),
        x.new_empty(stats_shape if centred else (0,), dtype=torch.float32),
        x.new_empty(stats_shape, dtype=torch.float32),
    )


def _empty_sum(x: Tensor, residual: Tensor) -> Tensor:
    dtype = torch.promote_types(x.dtype, residual.dtype)
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


@cache
def _empty_placeholder(device: torch.device) -> Tensor:
    """A cached empty tensor for unwanted results: allocating an empty tensor takes as long as a full one."""
    return torch.empty(0, device=device)


@cached_launch(rows="x")
def _forward(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    offset: float,
    centred: bool,
    cast_first: bool,
    save_stats: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    results, weight, bias = (
        _allocate_outputs(x, residual, centred, save_stats),
        as_contiguous(weight),
        as_contiguous(bias),
    )
    if not x.numel():
        return results
    y, residual_sum, mean, rstd = results
    N, x_rows = x.shape[-1], as_rows(x)
    residual_rows = x_rows if residual is None else as_rows(residual)
    arguments = (
        *(x_rows.tensor, None if residual is None else residual_rows.tensor, weight, bias),
        *(y, None if residual is None else residual_sum),
        *((mean if centred else None, rstd) if save_stats else (None, None)),
        *(*x_rows.stride_args, *residual_rows.stride_args),
    )
    if cluster := _CLUSTER_FORWARD.choose_layout(
        x_rows, residual_rows, row_vectors=(weight, bias), operands=1 if residual is None else 2
    ):
        _launch_cluster_forward(cluster, x, arguments, eps, offset, centred, cast_first)
        return results
    M = x.numel() // N
    layout = choose_by_rows(forward_layout, M, N, x.itemsize, centred, residual is not None)
    constants: dict[str, Any] = {
        "N": N,
        "eps": eps,
        "weight_offset": offset,
        "SUBTRACT_MEAN": centred,
        "CAST_FIRST": cast_first,
    }
    launch(
        norm_forward,
        layout,
        M,
        x.device,
        arguments,
        PRELOAD_WEIGHT=choose_by_rows(should_preload_weights, M, layout, centred),
        **constants,
    )
    return results


def _launch_cluster_forward(
    layout: ClusterLayout,
    x: Tensor,
    arguments: tuple[Any, ...],
    eps: float,
    offset: float,
    centred: bool,
    cast_first: bool,
) -> None:
    _, residual, weight, bias, *_ = arguments
    row_vectors = {"HAS_WEIGHT": weight is not None, "HAS_BIAS": bias is not None}
    macros: dict[str, int] = {
        "SUBTRACT_MEAN": centred,
        "CAST_FIRST": cast_first,
        "HAS_RESIDUAL": residual is not None,
        **row_vectors,
    }
    macros["HAS_WEIGHT_OFFSET"] = offset != 0.0
    macros["MAX_THREADS_PER_SM"] = forward_threads_per_sm(layout, centred, residual is not None)
    M, smem_rows = x[..., 0].numel(), sum(row_vectors.values())
    rows_per_cluster = choose_rows_per_cluster(M, layout, smem_rows, multiprocessors(x.device))
    _CLUSTER_FORWARD(
        layout,
        x,
        (*arguments, float(eps), float(offset), M, rows_per_cluster),
        num_clusters=-(-M // rows_per_cluster),
        smem_rows=smem_rows,
        **macros,
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, residual, weight, bias, _, *ctx.params, _ = inputs
    _, residual_sum, mean, rstd = output
    ctx.save_for_backward(x if residual is None else residual_sum, weight, mean, rstd)
    ctx.dtypes = [None if tensor is None else tensor.dtype for tensor in (x, residual, weight, bias)]
    ctx.mark_non_differentiable(mean, rstd)
    ctx.set_materialize_grads(False)


def _autograd_backward(ctx: Any, dy: Tensor | None, dsum: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    x, weight, mean, rstd = ctx.saved_tensors
    dtypes, (offset, centred, cast_first) = ctx.dtypes, ctx.params
    wanted = [dtype is not None and needed for dtype, needed in zip(dtypes, ctx.needs_input_grad[:4], strict=True)]
    if dy is None:
        gradients = (dsum, None, None)
    else:
        params = offset, centred, cast_first, *wanted[2:], dtypes[3] not in (None, dtypes[2])
        gradients = _NORM_BACKWARD(dy, dsum, x, weight, mean, rstd, *params)
    dx, dweight, dbias = gradients
    outputs = zip((dx, dx, dweight, dbias), wanted, dtypes, strict=True)
    return (
        *(one.to(dtype) if one is not None and is_wanted else None for one, is_wanted, dtype in outputs),
        *[None] * 5,
    )


def _allocate_gradients(
    dy: Tensor, dsum: Tensor | None, x: Tensor, weight: Tensor | None, mean: Tensor, rstd: Tensor, *params: Any
) -> tuple[Tensor, Tensor, Tensor]:
    *_, wants_weight, wants_bias, fp32_grads = params
    dtype = torch.float32 if fp32_grads or weight is None else weight.dtype
    dweight = x.new_empty(x.shape[-1] if wants_weight else 0, dtype=dtype)
    return x.new_empty(x.shape), dweight, x.new_empty(x.shape[-1] if wants_bias else 0, dtype=dtype)


_NORM = Operator(
    "norm(Tensor x, Tensor? residual, Tensor? weight, Tensor? bias, float eps, float offset, bool centred, "
    "bool cast_first, bool save_stats) -> (Tensor, Tensor, Tensor, Tensor)",
    _forward,
    lambda x, residual, weight, bias, eps, offset, centred, cast_first, save_stats: _allocate_outputs(
        x, residual, centred, save_stats
    ),
    _autograd_backward,
    _setup_context,
)
_NORM_BACKWARD = Operator(
    "norm_backward(Tensor dy, Tensor? dsum, Tensor x, Tensor? weight, Tensor mean, Tensor rstd, float offset, "
    "bool centred, bool cast_first, bool wants_weight, bool wants_bias, bool fp32_grads) -> (Tensor, Tensor, Tensor)",
    compute_gradients,
    _allocate_gradients,
)
