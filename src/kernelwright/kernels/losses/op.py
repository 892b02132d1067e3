"""Cross-entropy for torch."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kernelwright.kernels.losses.configs import (
    CHUNK_STAGES,
    MOST_TOTALS,
    SCALE_BLOCK,
    SCALE_PROGRAMS,
    SCALE_WARPS,
    TOTAL_BLOCK,
    TOTAL_WARPS,
    backward_layout,
    elements_of_a_load,
    few_rows,
    forward_layout,
    gradient_layout,
    tiles_at_once,
)
from kernelwright.kernels.losses.kernel import (
    cross_entropy_backward,
    cross_entropy_forward,
    cross_entropy_gradient,
    scaled_in_place,
    total_loss,
)
from kernelwright.kernels.operators import Operator, dense, direct, require, require_tensor
from kernelwright.kernels.repeating import repeated, scratch, watched
from kernelwright.kernels.rows.clusters import ClusterKernel
from kernelwright.kernels.rows.launching import as_rows, launch, multiprocessors, start, steps, waits
from kernelwright.kernels.rows.tile import SLOTS

__all__ = ["cross_entropy"]
_LONG_FORWARD = ClusterKernel(__file__, "cross_entropy_forward")
_LONG_GRADIENT = ClusterKernel(__file__, "cross_entropy_gradient")


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
    about = About(ignore_index, label_smoothing, z_loss, softcap)
    if inplace and not torch.compiler.is_compiling():
        _require(x, target, weight, about, reduction)
        require(reduction != "none", lambda: "inplace is for mean and sum: gradients come before they are asked for")
        rows = as_rows(x, levels=1)
        own = rows.tensor is x and (rows.place[0] >= x.shape[-1] or target.numel() < 2)
        require(own, lambda: f"inplace needs rows of their own at one stride; x has strides {x.stride()}")
        return _InPlace.apply(x, target, weight, about, reduction)  # pyright: ignore[reportReturnType]
    return _beside(x, target, weight, about, reduction)


@repeated
def _beside(x: Tensor, target: Tensor, weight: Tensor | None, about: About, reduction: str) -> Tensor:
    """The loss of logits that stay as they are."""
    _require(x, target, weight, about, reduction)
    keep = not direct(x, target, weight)
    return _CROSS_ENTROPY(x, target, weight, *about, reduction, keep)[0]


def _require(x: Tensor, target: Tensor, weight: Tensor | None, about: About, reduction: str) -> None:
    require_tensor("x", x)
    require(x.dim() > 0, lambda: "x has no dimension of classes")
    require_tensor("target", target, x.shape[:-1], (torch.int64,))
    require(reduction in ("none", "mean", "sum"), lambda: f"no reduction {reduction!r}; there are none, mean and sum")
    require(0.0 <= about.smoothing <= 1.0, lambda: f"label_smoothing is {about.smoothing}; it must be in [0, 1]")
    require_tensor("weight", weight, x.shape[-1:])
    asked = weight is not None and weight.requires_grad and torch.is_grad_enabled()
    require(not asked, lambda: "weight gets no gradient; detach it")


def _everyone(weight: Tensor | None) -> Tensor | None:
    """The sum of all classes' weights."""
    return None if weight is None else weight.sum(dtype=torch.float32)


def write_losses(
    x: Tensor, target: Tensor, weight: Tensor | None, about: About, losses: Tensor, lse: Tensor | None = None
) -> None:
    """Writes the loss of each row, NaN of no classes, and, where wanted, in `lse` (2, ...) its largest logit and the
    logarithm of the sum of exponentials around that."""
    if not x.numel():
        losses.fill_(torch.nan)
        watched(lambda: None)
        return
    M, N, read = target.numel(), x.shape[-1], as_rows(x)
    if few_rows(M, N, x.itemsize) and _plain(weight, about) and (shared := _LONG_FORWARD.layout(read)):
        given = read.tensor, target.contiguous(), losses, lse, *read.place, *_numbers(about), M
        _LONG_FORWARD(shared, x, given, SMOOTHED=about.smoothing != 0.0, APART=False)
        return
    layout = forward_layout(M, N, x.itemsize)
    constants = {"N": N, "ELEMENTS": elements_of_a_load(N, x.itemsize), "STAGES": CHUNK_STAGES, **about._asdict()}
    constants["TILES"] = tiles_at_once(layout, N, x.itemsize)
    arguments = read.tensor, target.contiguous(), weight, _everyone(weight), losses, lse, *read.place
    launch(cross_entropy_forward, layout, M, x.device, arguments, **constants)


def _plain(weight: Tensor | None, about: About) -> bool:
    """Whether it is a loss that long rows have a kernel for."""
    return weight is None and about.cap == 0.0


def _numbers(about: About) -> tuple[int, float, float]:
    """What kernels of CUDA C++ take of it, by the types of their parameters."""
    return about.ignore_index, float(about.smoothing), float(about.z)


def write_losses_and_gradient(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    about: About,
    losses: Tensor,
    scale: Tensor,
    apart: Tensor | None = None,
) -> None:
    """Writes the losses of rows, and over x their gradient times `scale`; that by the target's logit `apart`, in FP32,
    if given, where the target is a class, and then 0 over x."""
    if not x.numel():
        losses.fill_(torch.nan)
        watched(lambda: None)
        return
    rows = as_rows(x)
    if _plain(weight, about) and (shared := _LONG_GRADIENT.layout(rows)) and rows.tensor is x:
        given = x, target.contiguous(), scale, losses, apart, *rows.place, *_numbers(about)
        _LONG_GRADIENT(shared, x, given, SMOOTHED=about.smoothing != 0.0, APART=apart is not None)
        return
    N, layout = x.shape[-1], gradient_layout(x.shape[-1], x.itemsize)
    alone = waits(layout, x.device)  # else parts read what others have written over
    dx = x if alone else x.new_empty(x.shape)
    read, written = rows, as_rows(dx)
    arguments = (
        *(read.tensor, target.contiguous(), weight, _everyone(weight), scale, losses, dx, apart),
        *read.place,
        *written.place,
    )
    launch(cross_entropy_gradient, layout, target.numel(), x.device, arguments, N=N, **about._asdict())
    if dx is not x:
        x.copy_(dx)


def write_total(
    losses: Tensor | None,
    target: Tensor,
    weight: Tensor | None,
    about: About,
    mean: bool,
    total: Tensor | None,
    scale: Tensor | None,
) -> None:
    """Writes what losses come to, and 1 over what their sum is divided by for that: whichever is wanted."""
    M, device = target.numel(), target.device
    parts = min(MOST_TOTALS, max(1, M // TOTAL_BLOCK))
    notes = scratch((SLOTS.value * parts,), torch.int64, device, zero=True) if parts > 1 else None
    N = 0 if weight is None else weight.numel()
    constants = {"N": N, "ignore_index": about.ignore_index, "MEAN": mean, "BLOCK": TOTAL_BLOCK, "PARTS": parts}
    arguments = losses, target.contiguous(), weight, total, scale, M, notes
    for step in steps(parts, device):
        start(total_loss, parts, device, arguments, warps=TOTAL_WARPS, STEP=step, **constants)


@repeated
def _forward(
    x: Tensor, target: Tensor, weight: Tensor | None, *about_reduction_keep: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, or what they come to, and, to keep for the gradient, what `write_losses` has of rows, and what the losses
    are multiplied by."""
    *given, reduction, keep = about_reduction_keep
    about, weight = About(*given), dense(weight)
    result, lse, scale = _results(x, target, reduction, keep)
    losses = result if reduction == "none" else scratch(target.shape, torch.float32, target.device)
    write_losses(x, target, weight, about, losses, lse if keep else None)
    if reduction != "none":
        write_total(losses, target, weight, about, reduction == "mean", result, scale if keep else None)
    return result, lse, scale


def _results(x: Tensor, target: Tensor, reduction: str, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    one = () if keep and reduction != "none" else (0,)
    shapes = target.shape if reduction == "none" else (), (2, *target.shape) if keep else (0,), one
    return tuple(target.new_empty(shape, dtype=torch.float32) for shape in shapes)  # pyright: ignore


@repeated
def _backward(
    dloss: Tensor, scale: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, lse: Tensor, *about: Any
) -> Tensor:
    dx = x.new_empty(x.shape)
    if not x.numel():
        return dx
    N, read, weight = x.shape[-1], as_rows(x), dense(weight)
    flat = dloss.reshape(-1)
    launch(
        cross_entropy_backward,
        backward_layout(N, x.itemsize),
        target.numel(),
        x.device,
        (
            flat,
            scale if scale.numel() else None,
            *(read.tensor, target.contiguous(), weight, _everyone(weight), lse, dx),
            flat.stride(0) if dloss.dim() else 0,
            *read.place,
        ),
        apart=True,
        N=N,
        **About(*about)._asdict(),
    )
    return dx


def scale_in_place(x: Tensor, scale: Tensor) -> Tensor:
    """x, multiplied by one number, which is read on the device: where it is 1 nothing moves."""
    if x.numel():
        _scale_rows(x, scale)
    return x


@repeated
def _scale_rows(x: Tensor, scale: Tensor) -> None:
    M, N = x.numel() // x.shape[-1], x.shape[-1]
    programs = min(M, SCALE_PROGRAMS * multiprocessors(x.device))
    given = x, scale, as_rows(x, levels=1).place[0], M
    start(scaled_in_place, programs, x.device, given, warps=SCALE_WARPS, N=N, BLOCK=SCALE_BLOCK)


@repeated
def _write_gradient(x: Tensor, target: Tensor, weight: Tensor | None, about: About, reduction: str) -> Tensor:
    """The loss; x is overwritten by its gradient."""
    weight, mean, device = dense(weight), reduction == "mean", target.device
    total = target.new_empty((), dtype=torch.float32)
    losses, scale = (scratch(shape, torch.float32, device) for shape in (target.shape, ()))
    write_total(None, target, weight, about, mean, None, scale)
    write_losses_and_gradient(x, target, weight, about, losses, scale)
    write_total(losses, target, weight, about, mean, total, None)
    return total


class _InPlace(torch.autograd.Function):
    """The loss; x holds its gradient afterwards, which the backward pass only has to multiply."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, *others = given
        ctx.gradient = x.detach()
        total = _write_gradient(ctx.gradient, *others)
        torch.autograd.graph.increment_version(x)  # whoever saved the logits learns that they are gone
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *dlosses: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        x, ctx.gradient = ctx.gradient, None
        require(x is not None, lambda: "an inplace loss has given its gradient away; it cannot be asked for it again")
        return scale_in_place(x, dlosses[0]), None, None, None, None


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, target, weight, *ctx.about, _, _ = inputs
    _, lse, scale = output
    ctx.save_for_backward(scale, x, target, weight, lse)
    ctx.mark_non_differentiable(lse, scale)


def _gradients(ctx: Any, dloss: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    return _CROSS_ENTROPY_BACKWARD(dloss, *ctx.saved_tensors, *ctx.about), *[None] * 8


_CROSS_ENTROPY = Operator(
    "cross_entropy(Tensor x, Tensor target, Tensor? weight, int ignore_index, float smoothing, float z, float cap, "
    "str reduction, bool keep) -> (Tensor, Tensor, Tensor)",
    _forward,
    lambda x, target, weight, ignore_index, smoothing, z, cap, reduction, keep: _results(x, target, reduction, keep),
    _gradients,
    _keep,
)
_CROSS_ENTROPY_BACKWARD = Operator(
    "cross_entropy_backward(Tensor dloss, Tensor scale, Tensor x, Tensor target, Tensor? weight, Tensor lse, "
    "int ignore_index, float smoothing, float z, float cap) -> Tensor",
    _backward,
    lambda dloss, scale, x, *_: x.new_empty(x.shape),
)
