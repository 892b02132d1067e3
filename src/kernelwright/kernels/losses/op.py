"""Cross-entropy for torch."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kernelwright.kernels.launch_cache import cached_launch, choose_by_rows
from kernelwright.kernels.losses.configs import backward_layout
from kernelwright.kernels.losses.kernel import cross_entropy_backward
from kernelwright.kernels.losses.launcher import (
    LossParams,
    scale_in_place,
    sum_class_weights,
    write_loss,
    write_loss_and_gradient,
    write_losses,
)
from kernelwright.kernels.operators import Operator, as_contiguous, can_skip_dispatcher, require, require_tensor
from kernelwright.kernels.rows.launcher import as_rows, launch

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
        x: (..., N) logits, fp16/bf16/fp32: classes are the last dimension.
        target: (...) of int64; a row whose target is `ignore_index` counts for nothing, one beyond 0..N-1 gives NaN.
        weight: (N,) of the classes; as in torch the mean divides by the weights of the targets.
        reduction: none gives (...), mean and sum one number.
        label_smoothing: that share of the loss goes to all classes alike.
        z_loss: times the square of log sum exp, added to each row's loss.
        softcap: x becomes softcap * tanh(x / softcap) first; 0 for none.
        inplace: the gradient is computed with the loss and overwrites x: one read and one write in total. Nobody else
            may need x afterwards, and in 16 bits it is rounded before whatever scales the loss. Only for mean and sum;
            under torch.compile it changes nothing.
    Returns:
        FP32.
    Raises:
        ShapeError: shapes or dtypes that do not go together. DeviceError: not on a CUDA device.
    Cost: M * N * itemsize bytes of DRAM, the gradient twice that; memory-bound at every N.
    """
    about = LossParams(ignore_index, label_smoothing, z_loss, softcap)
    if inplace and not torch.compiler.is_compiling():
        _validate(x, target, weight, about, reduction)
        require(reduction != "none", lambda: "inplace is for mean and sum: gradients come before they are asked for")
        rows = as_rows(x, max_leading_dims=1)
        own = rows.tensor is x and (rows.stride_args[0] >= x.shape[-1] or target.numel() < 2)
        require(own, lambda: f"inplace needs rows of their own at one stride; x has strides {x.stride()}")
        return _InPlace.apply(x, target, weight, about, reduction)  # pyright: ignore[reportReturnType]
    return _out_of_place(x, target, weight, about, reduction)


@cached_launch(rows="x")
def _out_of_place(x: Tensor, target: Tensor, weight: Tensor | None, about: LossParams, reduction: str) -> Tensor:
    """The loss of logits that stay as they are."""
    _validate(x, target, weight, about, reduction)
    keep = not can_skip_dispatcher(x, target, weight)
    return _CROSS_ENTROPY(x, target, weight, *about, reduction, keep)[0]


def _validate(x: Tensor, target: Tensor, weight: Tensor | None, about: LossParams, reduction: str) -> None:
    require_tensor("x", x)
    require(x.dim() > 0, lambda: "x has no dimension of classes")
    require_tensor("target", target, x.shape[:-1], (torch.int64,))
    require(reduction in ("none", "mean", "sum"), lambda: f"no reduction {reduction!r}; there are none, mean and sum")
    require(
        0.0 <= about.label_smoothing <= 1.0, lambda: f"label_smoothing is {about.label_smoothing}; it must be in [0, 1]"
    )
    require_tensor("weight", weight, x.shape[-1:])
    asked = weight is not None and weight.requires_grad and torch.is_grad_enabled()
    require(not asked, lambda: "weight gets no gradient; detach it")


@cached_launch(rows="x")
def _forward(
    x: Tensor, target: Tensor, weight: Tensor | None, *about_reduction_keep: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, or what they come to, and, to keep for the gradient, what `write_losses` has of rows, and what the losses
    are multiplied by."""
    *given, reduction, keep = about_reduction_keep
    about, weight = LossParams(*given), as_contiguous(weight)
    result, lse, scale = _allocate_outputs(x, target, reduction, keep)
    kept = lse if keep else None
    if reduction == "none":
        write_losses(x, target, weight, about, result, kept)
    else:
        write_loss(x, target, weight, about, reduction == "mean", result, kept, scale if keep else None)
    return result, lse, scale


def _allocate_outputs(x: Tensor, target: Tensor, reduction: str, save_stats: bool) -> tuple[Tensor, Tensor, Tensor]:
    one = () if save_stats and reduction != "none" else (0,)
    shapes = target.shape if reduction == "none" else (), (2, *target.shape) if save_stats else (0,), one
    return tuple(target.new_empty(shape, dtype=torch.float32) for shape in shapes)  # pyright: ignore


@cached_launch(rows="x")
def _backward(
    dloss: Tensor, scale: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, lse: Tensor, *about: Any
) -> Tensor:
    dx = x.new_empty(x.shape)
    if not x.numel():
        return dx
    N, read, weight = x.shape[-1], as_rows(x), as_contiguous(weight)
    flat = dloss.reshape(-1)
    launch(
        cross_entropy_backward,
        choose_by_rows(backward_layout, target.numel(), N, x.itemsize),
        target.numel(),
        x.device,
        (
            flat,
            scale if scale.numel() else None,
            *(read.tensor, target.contiguous(), weight, sum_class_weights(weight), lse, dx),
            flat.stride(0) if dloss.dim() else 0,
            *read.stride_args,
        ),
        independent_splits=True,
        N=N,
        **LossParams(*about)._asdict(),
    )
    return dx


@cached_launch(rows="x")
def _overwrite_with_gradient(
    x: Tensor, target: Tensor, weight: Tensor | None, about: LossParams, reduction: str
) -> Tensor:
    """The loss; x is overwritten by its gradient."""
    total = target.new_empty((), dtype=torch.float32)
    write_loss_and_gradient(x, target, as_contiguous(weight), about, reduction == "mean", total)
    return total


class _InPlace(torch.autograd.Function):
    """The loss; x holds its gradient afterwards, which the backward pass only has to multiply."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, *others = given
        ctx.gradient = x.detach()
        total = _overwrite_with_gradient(ctx.gradient, *others)
        torch.autograd.graph.increment_version(x)  # whoever saved the logits learns that they are gone
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *dlosses: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        x, ctx.gradient = ctx.gradient, None
        require(x is not None, lambda: "an inplace loss has given its gradient away; it cannot be asked for it again")
        return scale_in_place(x, dlosses[0]), None, None, None, None


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, target, weight, *ctx.about, _, _ = inputs
    _, lse, scale = output
    ctx.save_for_backward(scale, x, target, weight, lse)
    ctx.mark_non_differentiable(lse, scale)
    ctx.set_materialize_grads(False)  # zeros for these two would be two launches


def _autograd_backward(ctx: Any, dloss: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    return _CROSS_ENTROPY_BACKWARD(dloss, *ctx.saved_tensors, *ctx.about), *[None] * 8


_CROSS_ENTROPY = Operator(
    "cross_entropy(Tensor x, Tensor target, Tensor? weight, int ignore_index, float smoothing, float z, float cap, "
    "str reduction, bool keep) -> (Tensor, Tensor, Tensor)",
    _forward,
    lambda x, target, weight, ignore_index, smoothing, z, cap, reduction, keep: _allocate_outputs(
        x, target, reduction, keep
    ),
    _autograd_backward,
    _setup_context,
)
_CROSS_ENTROPY_BACKWARD = Operator(
    "cross_entropy_backward(Tensor dloss, Tensor scale, Tensor x, Tensor target, Tensor? weight, Tensor lse, "
    "int ignore_index, float smoothing, float z, float cap) -> Tensor",
    _backward,
    lambda dloss, scale, x, *_: x.new_empty(x.shape),
)
