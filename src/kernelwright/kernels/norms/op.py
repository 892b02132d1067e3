"""RMSNorm and LayerNorm for torch: functions, modules, operators with gradients."""

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
        x: (..., N), fp16/bf16/fp32; strides that two leading dimensions can have are read as they are.
        weight, bias: (N,), of any of these dtypes.
        residual: of x's shape; added to x before, the sum rounded to the wider of both dtypes.
        eps: None is FP32's, as torch has it.
        offset: 1 for Gemma, whose weights are stored around zero.
        cast_first: round to x's dtype before multiplying by the weight, as Llama does; else once, at the end.
    Returns:
        (..., N) in x's dtype; with a residual also the sum.
    Raises:
        ShapeError: shapes that do not go together. DeviceError: not on a CUDA device.
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

    Args, returns and raises as `rms_norm`.
    Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450.
    """
    return _norm(x, residual, weight, bias, eps, 0.0, True, False)


class RMSNorm(torch.nn.RMSNorm):
    """torch's module; called with a residual, it adds that before and returns the sum too."""

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Any:
        given = _flatten_norm_dims(self.normalized_shape, x, residual, self.weight)
        return _restore_shape(x, rms_norm(given[0], given[2], residual=given[1], eps=self.eps))


class LayerNorm(torch.nn.LayerNorm):
    """torch's module; called with a residual, it adds that before and returns the sum too."""

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Any:
        given = _flatten_norm_dims(self.normalized_shape, input, residual, self.weight, self.bias)
        return _restore_shape(input, layer_norm(given[0], *given[2:], residual=given[1], eps=self.eps))


def _flatten_norm_dims(normalized_shape: tuple[int, ...], x: Tensor, *tensors: Tensor | None) -> list[Any]:
    """All with the normalised dimensions as one."""
    last = len(normalized_shape)
    require(x.shape[-last:] == normalized_shape, lambda: f"x is {tuple(x.shape)}; it must end in {normalized_shape}")
    return [None if one is None else one.flatten(-last) for one in (x, *tensors)]


def _restore_shape(x: Tensor, result: Any) -> Any:
    return tuple(one.view(x.shape) for one in result) if isinstance(result, tuple) else result.view(x.shape)


def _norm(x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, *about: Any) -> Any:
    _validate(x, residual, weight, bias)
    keep = not can_skip_dispatcher(x, residual, weight, bias)
    y, total, _, _ = _NORM(x, residual, weight, bias, *about, keep)
    return y if residual is None else (y, total)


def _validate(x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None) -> None:
    require(x.dim() > 0, lambda: "x has no dimension to normalise over")
    require_tensor("x", x)
    require_tensor("residual", residual, x.shape)
    require_tensor("weight", weight, x.shape[-1:])
    require_tensor("bias", bias, x.shape[-1:])


def _allocate_outputs(
    x: Tensor, residual: Tensor | None, centred: bool, save_stats: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """y, x + residual, mean, rstd: empty and of no elements where not wanted."""
    y = torch.empty_like(x, memory_format=torch.contiguous_format)  # in a third of the time of x.new_empty
    if on_fast_path() and residual is None and not save_stats:  # torch's dispatcher takes no tensor for several results
        nothing = _empty_placeholder(x.device)
        return y, nothing, nothing, nothing
    statistics = x.shape[:-1] if save_stats else (0,)
    if on_fast_path() and residual is not None and not save_stats:
        return y, _empty_sum(x, residual), (nothing := _empty_placeholder(x.device)), nothing
    return (
        y,
        x.new_empty((0,)) if residual is None else _empty_sum(x, residual),
        x.new_empty(statistics if centred else (0,), dtype=torch.float32),
        x.new_empty(statistics, dtype=torch.float32),
    )


def _empty_sum(x: Tensor, residual: Tensor) -> Tensor:
    dtype = torch.promote_types(x.dtype, residual.dtype)
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


@cache
def _empty_placeholder(device: torch.device) -> Tensor:
    """Stands for what is not wanted: an empty tensor takes as long to make as a full one."""
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
    y, total, mean, rstd = results
    N, read = x.shape[-1], as_rows(x)
    added = read if residual is None else as_rows(residual)
    given = (
        *(read.tensor, None if residual is None else added.tensor, weight, bias),
        *(y, None if residual is None else total),
        *((mean if centred else None, rstd) if save_stats else (None, None)),
        *(*read.stride_args, *added.stride_args),
    )
    if shared := _CLUSTER_FORWARD.choose_layout(
        read, added, row_vectors=(weight, bias), operands=1 if residual is None else 2
    ):
        _launch_cluster_forward(shared, x, given, eps, offset, centred, cast_first)
        return results
    M = x.numel() // N
    layout = choose_by_rows(forward_layout, M, N, x.itemsize, centred, residual is not None)
    about: dict[str, Any] = {
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
        given,
        PRELOAD_WEIGHT=choose_by_rows(should_preload_weights, M, layout, centred),
        **about,
    )
    return results


def _launch_cluster_forward(
    layout: ClusterLayout,
    x: Tensor,
    given: tuple[Any, ...],
    eps: float,
    offset: float,
    centred: bool,
    cast_first: bool,
) -> None:
    _, residual, weight, bias, *_ = given
    there = {"HAS_WEIGHT": weight is not None, "HAS_BIAS": bias is not None}
    known: dict[str, int] = {
        "SUBTRACT_MEAN": centred,
        "CAST_FIRST": cast_first,
        "HAS_RESIDUAL": residual is not None,
        **there,
    }
    known["HAS_WEIGHT_OFFSET"] = offset != 0.0
    known["MAX_THREADS_PER_SM"] = forward_threads_per_sm(layout, centred, residual is not None)
    M, kept = x[..., 0].numel(), sum(there.values())
    each = choose_rows_per_cluster(M, layout, kept, multiprocessors(x.device))
    _CLUSTER_FORWARD(
        layout, x, (*given, float(eps), float(offset), M, each), num_clusters=-(-M // each), smem_rows=kept, **known
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, residual, weight, bias, _, *ctx.about, _ = inputs
    _, total, mean, rstd = output
    ctx.save_for_backward(x if residual is None else total, weight, mean, rstd)
    ctx.dtypes = [None if tensor is None else tensor.dtype for tensor in (x, residual, weight, bias)]
    ctx.mark_non_differentiable(mean, rstd)
    ctx.set_materialize_grads(False)


def _autograd_backward(ctx: Any, dy: Tensor | None, dsum: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    x, weight, mean, rstd = ctx.saved_tensors
    dtypes, (offset, centred, cast_first) = ctx.dtypes, ctx.about
    wanted = [dtype is not None and needed for dtype, needed in zip(dtypes, ctx.needs_input_grad[:4], strict=True)]
    if dy is None:
        found = (dsum, None, None)
    else:
        about = offset, centred, cast_first, *wanted[2:], dtypes[3] not in (None, dtypes[2])
        found = _NORM_BACKWARD(dy, dsum, x, weight, mean, rstd, *about)
    dx, dweight, dbias = found
    gradients = zip((dx, dx, dweight, dbias), wanted, dtypes, strict=True)
    return (*(one.to(dtype) if one is not None and want else None for one, want, dtype in gradients), *[None] * 5)


_NORM = Operator(
    "norm(Tensor x, Tensor? residual, Tensor? weight, Tensor? bias, float eps, float offset, bool centred, "
    "bool cast_first, bool keep) -> (Tensor, Tensor, Tensor, Tensor)",
    _forward,
    lambda x, residual, weight, bias, eps, offset, centred, cast_first, keep: _allocate_outputs(
        x, residual, centred, keep
    ),
    _autograd_backward,
    _setup_context,
)
_NORM_BACKWARD = Operator(
    "norm_backward(Tensor dy, Tensor? dsum, Tensor x, Tensor? weight, Tensor mean, Tensor rstd, float offset, "
    "bool centred, bool cast_first, bool wants_weight, bool wants_bias, bool wide) -> (Tensor, Tensor, Tensor)",
    compute_gradients,
    lambda dy, dsum, x, weight, mean, rstd, offset, centred, cast_first, wants_weight, wants_bias, wide: (
        x.new_empty(x.shape),
        *(
            x.new_empty(x.shape[-1] if wanted else 0, dtype=torch.float32 if wide or weight is None else weight.dtype)
            for wanted in (wants_weight, wants_bias)
        ),
    ),
)
