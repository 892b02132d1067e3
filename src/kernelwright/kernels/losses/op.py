"""Cross-entropy operators."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kernelwright.kernels.launch_cache import cached_launch
from kernelwright.kernels.losses.launcher import (
    LossParams,
    scale_in_place,
    write_gradient,
    write_loss,
    write_loss_and_gradient,
    write_losses,
)
from kernelwright.kernels.operators import Operator, as_contiguous, can_skip_dispatcher, require, require_tensor
from kernelwright.kernels.rows.launcher import as_rows

__all__ = ["cross_entropy"]


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Literal["none", "mean", "sum"] = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
    inplace: bool = False,
) -> Tensor:
    """-log softmax(x)[target] of each row, accumulated in FP32.

    Args:
        x: (..., N) logits, fp16/bf16/fp32; classes are the last dimension.
        target: (...), int64; a row whose target is `ignore_index` contributes nothing, one outside 0..N-1 is NaN.
        weight: (N,), class weights; as in torch, the mean divides by the weights of the targets.
        reduction: none returns (...), mean and sum a scalar.
        label_smoothing: fraction of the loss that is spread over all classes.
        z_loss: factor of (log sum exp)^2, added to each row's loss.
        softcap: replaces x by softcap * tanh(x / softcap); 0 for none.
        inplace: compute the gradient with the loss and overwrite x with it: one read and one write in total. x must
            not be used afterwards, and in 16 bits the gradient is rounded before the gradient of the loss scales it.
            Only for mean and sum; no effect under torch.compile.
    Returns:
        FP32.
    Raises:
        ShapeError: shapes or dtypes do not match.
        DeviceError: not on a CUDA device.
    Cost: M * N * itemsize bytes of DRAM, the gradient twice that; memory-bound at every N.
    """
    params = LossParams(ignore_index, label_smoothing, z_loss, softcap)
    if inplace and not torch.compiler.is_compiling():
        _validate(x, target, weight, params, reduction)
        require(reduction != "none", lambda: "inplace=True needs reduction='mean' or 'sum', not 'none'")
        rows = as_rows(x, max_leading_dims=1)
        has_own_rows = rows.tensor is x and (rows.stride_args[0] >= x.shape[-1] or target.numel() < 2)
        require(has_own_rows, lambda: f"inplace needs non-overlapping rows with one stride; x has strides {x.stride()}")
        return _InPlace.apply(x, target, weight, params, reduction)  # pyright: ignore[reportReturnType]
    return _out_of_place(x, target, weight, params, reduction)


@cached_launch(rows="x")
def _out_of_place(x: Tensor, target: Tensor, weight: Tensor | None, params: LossParams, reduction: str) -> Tensor:
    """The loss without modifying the logits."""
    _validate(x, target, weight, params, reduction)
    save_stats = not can_skip_dispatcher(x, target, weight)
    return _CROSS_ENTROPY(x, target, weight, *params, reduction, save_stats)[0]


def _validate(x: Tensor, target: Tensor, weight: Tensor | None, params: LossParams, reduction: str) -> None:
    require_tensor("x", x)
    require(x.dim() > 0, lambda: "x has no dimension of classes")
    require_tensor("target", target, x.shape[:-1], (torch.int64,))
    require(reduction in ("none", "mean", "sum"), lambda: f"reduction is {reduction!r}; it must be none, mean or sum")
    require(
        0.0 <= params.label_smoothing <= 1.0,
        lambda: f"label_smoothing is {params.label_smoothing}; it must be in [0, 1]",
    )
    require_tensor("weight", weight, x.shape[-1:])
    wants_grad = weight is not None and weight.requires_grad and torch.is_grad_enabled()
    require(not wants_grad, lambda: "weight gets no gradient; detach it")


@cached_launch(rows="x")
def _forward(
    x: Tensor, target: Tensor, weight: Tensor | None, *params_reduction_save: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """The losses or reduced loss, and `lse` and `scale` for the backward pass, empty unless statistics are saved."""
    *values, reduction, save_stats = params_reduction_save
    params, weight = LossParams(*values), as_contiguous(weight)
    result, lse, scale = _allocate_outputs(x, target, reduction, save_stats)
    if reduction == "none":
        write_losses(x, target, weight, params, result, lse if save_stats else None)
    else:
        saved = (lse, scale) if save_stats else (None, None)
        write_loss(x, target, weight, params, reduction == "mean", result, *saved)
    return result, lse, scale


def _allocate_outputs(x: Tensor, target: Tensor, reduction: str, save_stats: bool) -> tuple[Tensor, Tensor, Tensor]:
    scale_shape = () if save_stats and reduction != "none" else (0,)
    shapes = target.shape if reduction == "none" else (), (2, *target.shape) if save_stats else (0,), scale_shape
    return tuple(target.new_empty(shape, dtype=torch.float32) for shape in shapes)  # pyright: ignore


@cached_launch(rows="x")
def _backward(
    dloss: Tensor, scale: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, lse: Tensor, *params: Any
) -> Tensor:
    dx = x.new_empty(x.shape)
    if x.numel():
        scale_or_none = scale if scale.numel() else None
        write_gradient(dloss, scale_or_none, x, target, as_contiguous(weight), lse, LossParams(*params), dx)
    return dx


@cached_launch(rows="x")
def _overwrite_with_gradient(
    x: Tensor, target: Tensor, weight: Tensor | None, params: LossParams, reduction: str
) -> Tensor:
    """Return the loss and overwrite x with its gradient."""
    total = target.new_empty((), dtype=torch.float32)
    write_loss_and_gradient(x, target, as_contiguous(weight), params, reduction == "mean", total)
    return total


class _InPlace(torch.autograd.Function):
    """Loss that leaves its gradient in x; the backward pass only scales it."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        x, *rest = args
        ctx.gradient = x.detach()
        total = _overwrite_with_gradient(ctx.gradient, *rest)
        torch.autograd.graph.increment_version(x)  # autograd raises if it saved the logits
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *dlosses: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        x, ctx.gradient = ctx.gradient, None
        require(
            x is not None, lambda: "backward() was already called on this in-place loss; its gradient buffer is gone"
        )
        return scale_in_place(x, dlosses[0]), None, None, None, None


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, target, weight, *ctx.params, _, _ = inputs
    _, lse, scale = output
    ctx.save_for_backward(scale, x, target, weight, lse)
    ctx.mark_non_differentiable(lse, scale)
    ctx.set_materialize_grads(False)  # zeros for lse and scale would be two launches


def _autograd_backward(ctx: Any, dloss: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    return _CROSS_ENTROPY_BACKWARD(dloss, *ctx.saved_tensors, *ctx.params), *[None] * 8


_CROSS_ENTROPY = Operator(
    "cross_entropy(Tensor x, Tensor target, Tensor? weight, int ignore_index, float label_smoothing, float z_loss, "
    "float softcap, str reduction, bool save_stats) -> (Tensor, Tensor, Tensor)",
    _forward,
    lambda x, target, weight, ignore_index, label_smoothing, z_loss, softcap, reduction, save_stats: _allocate_outputs(
        x, target, reduction, save_stats
    ),
    _autograd_backward,
    _setup_context,
)
_CROSS_ENTROPY_BACKWARD = Operator(
    "cross_entropy_backward(Tensor dloss, Tensor scale, Tensor x, Tensor target, Tensor? weight, Tensor lse, "
    "int ignore_index, float label_smoothing, float z_loss, float softcap) -> Tensor",
    _backward,
    lambda dloss, scale, x, *_: x.new_empty(x.shape),
)
