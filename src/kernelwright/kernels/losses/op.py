"""Cross-entropy for torch."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kernelwright.kernels.losses.configs import SCALE_BLOCK, SCALE_WARPS, backward_layout, forward_layout
from kernelwright.kernels.losses.kernel import cross_entropy_backward, cross_entropy_forward, scaled_in_place
from kernelwright.kernels.operators import (
    dense,
    differentiable,
    direct,
    operator,
    refuse_second_derivative,
    require,
    require_tensor,
)
from kernelwright.kernels.rows.launching import as_rows, launch, start, waits

__all__ = ["cross_entropy"]


class About(NamedTuple):
    """What a loss is beside its tensors, in the order of the operators' arguments."""

    ignore_index: int
    smoothing: float
    z: float
    cap: float


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
    require_tensor("x", x)
    require(x.dim() > 0, lambda: "x has no dimension of classes")
    require_tensor("target", target, x.shape[:-1], (torch.int64,))
    require(reduction in ("none", "mean", "sum"), lambda: f"no reduction {reduction!r}; there are none, mean and sum")
    require(0.0 <= label_smoothing <= 1.0, lambda: f"label_smoothing is {label_smoothing}; it must be in [0, 1]")
    require_tensor("weight", weight, x.shape[-1:])
    asked = weight is not None and weight.requires_grad and torch.is_grad_enabled()
    require(not asked, lambda: "weight gets no gradient; detach it")
    about = About(ignore_index, label_smoothing, z_loss, softcap)
    if inplace and not torch.compiler.is_compiling():
        require(reduction != "none", lambda: "inplace is for mean and sum: gradients come before they are asked for")
        rows = as_rows(x, levels=1)
        own = rows.tensor is x and (rows.place[0] >= x.shape[-1] or target.numel() < 2)
        require(own, lambda: f"inplace needs rows of their own at one stride; x has strides {x.stride()}")
        return _InPlace.apply(x, target, weight, about, reduction)  # pyright: ignore[reportReturnType]
    if direct(x, target, weight):
        losses = _forward(x, target, weight, *about, False)[0]
    else:
        losses = torch.ops.kernelwright.cross_entropy(x, target, weight, *about, True)[0]
    if reduction == "none":
        return losses
    return losses.sum() / divisor_of(target, weight, about, reduction)


def divisor_of(target: Tensor, weight: Tensor | None, about: About, reduction: str) -> Tensor | float:
    """What the sum is divided by."""
    if reduction == "sum":
        return 1.0
    counted = target != about.ignore_index
    if weight is None or not weight.numel():
        return counted.sum(dtype=torch.float32)
    return torch.where(counted, weight[target.clamp(0, weight.numel() - 1)].float(), 0.0).sum()


def _with_sum(weight: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """The classes' weights one after another, and their sum."""
    return dense(weight), None if weight is None else weight.sum(dtype=torch.float32)


def _launch_forward(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    about: About,
    loss: Tensor,
    lse: Tensor | None = None,
    scale: Tensor | None = None,
    dx: Tensor | None = None,
) -> None:
    N, read, written = x.shape[-1], as_rows(x), as_rows(x if dx is None else dx)
    weight, everyone = _with_sum(weight)
    launch(
        cross_entropy_forward,
        forward_layout(N, x.itemsize),
        target.numel(),
        x.device,
        (read.tensor, target.contiguous(), weight, everyone, scale, loss, lse, dx, *read.place, *written.place),
        N=N,
        **about._asdict(),
    )


def _forward(x: Tensor, target: Tensor, weight: Tensor | None, *about_keep: Any) -> tuple[Tensor, Tensor]:
    """Losses and, to keep for the gradient, the logarithms of the sums of exponentials."""
    *about, keep = about_keep
    losses, lse = _results(x, target, keep)
    if x.numel():
        _launch_forward(x, target, weight, About(*about), losses, lse if keep else None)
    return losses, lse


def _results(x: Tensor, target: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    losses = target.new_empty(target.shape, dtype=torch.float32)
    return losses.fill_(torch.nan) if x.shape[-1] == 0 else losses, losses.new_empty(target.shape if keep else (0,))


def _backward(dlosses: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, lse: Tensor, *about: Any) -> Tensor:
    dx = x.new_empty(x.shape)
    if not x.numel():
        return dx
    N, read = x.shape[-1], as_rows(x)
    flat = dlosses.reshape(-1)
    weight, everyone = _with_sum(weight)
    launch(
        cross_entropy_backward,
        backward_layout(N, x.itemsize),
        target.numel(),
        x.device,
        (flat, read.tensor, target.contiguous(), weight, everyone, lse, dx, flat.stride(0), *read.place),
        apart=True,
        N=N,
        **About(*about)._asdict(),
    )
    return dx


def write_losses_and_gradient(
    x: Tensor, target: Tensor, weight: Tensor | None, about: About, losses: Tensor, scale: Tensor | None
) -> None:
    """Writes the losses of rows, and over x their gradient times `scale`; only the losses without one."""
    if not x.numel():
        return
    if scale is None:
        _launch_forward(x, target, weight, about, losses)
        return
    alone = waits(forward_layout(x.shape[-1], x.itemsize), x.device)  # else parts read what others have written over
    dx = x if alone else x.new_empty(x.shape)
    _launch_forward(x, target, weight, about, losses, scale=scale, dx=dx)
    if dx is not x:
        x.copy_(dx)


class _InPlace(torch.autograd.Function):
    """The loss; x holds its gradient afterwards, which the backward pass only has to multiply."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, target, weight, about, reduction = given
        (losses, _), divisor = _results(x, target, False), divisor_of(target, weight, about, reduction)
        scale = torch.ones((), device=x.device) / divisor
        logits = x.detach()
        write_losses_and_gradient(logits, target, weight, about, losses, scale)
        torch.autograd.graph.increment_version(x)  # whoever saved the logits learns that they are gone
        ctx.gradient = logits
        return losses.sum() / divisor

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *dlosses: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        x, ctx.gradient = ctx.gradient, None
        require(x is not None, lambda: "an inplace loss has given its gradient away; it cannot be asked for it again")
        if x.numel():
            given = x, dlosses[0], *as_rows(x, levels=1).place, x.shape[-1]
            start(scaled_in_place, x[..., 0].numel(), x.device, given, warps=SCALE_WARPS, BLOCK=SCALE_BLOCK)
        return x, None, None, None, None


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, target, weight, *ctx.about, _ = inputs
    ctx.save_for_backward(x, target, weight, output[1])
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Any, dlosses: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    x, target, weight, lse = ctx.saved_tensors
    return torch.ops.kernelwright.cross_entropy_backward(dlosses, x, target, weight, lse, *ctx.about), *[None] * 7


_CROSS_ENTROPY = operator(
    "cross_entropy(Tensor x, Tensor target, Tensor? weight, int ignore_index, float smoothing, float z, float cap, "
    "bool keep) -> (Tensor, Tensor)",
    _forward,
    lambda x, target, weight, ignore_index, smoothing, z, cap, keep: _results(x, target, keep),
)
differentiable(_CROSS_ENTROPY, _gradients, _keep)
_CROSS_ENTROPY_BACKWARD = operator(
    "cross_entropy_backward(Tensor dlosses, Tensor x, Tensor target, Tensor? weight, Tensor lse, int ignore_index, "
    "float smoothing, float z, float cap) -> Tensor",
    _backward,
    lambda dlosses, x, *_: x.new_empty(x.shape),
)
refuse_second_derivative(_CROSS_ENTROPY_BACKWARD)
