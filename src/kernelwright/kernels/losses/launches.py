"""From logits to the launches that write their losses and gradients."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kernelwright.kernels.launch_cache import chosen, repeated, scratch, watched
from kernelwright.kernels.losses.configs import (
    CHUNK_STAGES,
    SCALE_BLOCK,
    SCALE_PROGRAMS,
    SCALE_WARPS,
    elements_of_a_load,
    few_rows,
    forward_layout,
    gradient_layout,
    one_program,
    tiles_at_once,
    total_parts,
)
from kernelwright.kernels.losses.forward_kernel import cross_entropy_forward
from kernelwright.kernels.losses.kernel import cross_entropy_gradient
from kernelwright.kernels.losses.total_kernel import scaled_in_place, total_loss
from kernelwright.kernels.rows.cluster_launch import ClusterKernel
from kernelwright.kernels.rows.launching import Rows, as_rows, launch, multiprocessors, start, waits
from kernelwright.kernels.rows.tile import ALL, FINISH, PUBLISH, SLOTS

_LONG_FORWARD = ClusterKernel(__file__, "cross_entropy_forward")
_LONG_GRADIENT = ClusterKernel(__file__, "cross_entropy_gradient")


class About(NamedTuple):
    """What a loss is beside its tensors, in the order of the operators' arguments."""

    ignore_index: int
    smoothing: float
    z: float
    cap: float


def everyone(weight: Tensor | None) -> Tensor | None:
    """The sum of all classes' weights."""
    return None if weight is None else weight.sum(dtype=torch.float32)


def write_losses(
    x: Tensor, target: Tensor, weight: Tensor | None, about: About, losses: Tensor, lse: Tensor | None = None
) -> None:
    """Writes the loss of each row, NaN of no classes, and, where wanted, in `lse` (2, ...) its largest logit and the
    logarithm of the sum of exponentials around that."""
    read = as_rows(x)
    if not x.numel():
        losses.fill_(torch.nan)
        watched(lambda: None)
    elif _few_long_rows(x, weight, about) and (shared := _LONG_FORWARD.layout(read)):
        given = read.tensor, target.contiguous(), losses, lse, *read.place, *_numbers(about), target.numel()
        _LONG_FORWARD(shared, x, given, SMOOTHED=about.smoothing != 0.0, APART=False)
    else:
        _launch_forward(read, target, weight, about, (losses, lse, None, None), False)


def write_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    about: About,
    mean: bool,
    total: Tensor,
    lse: Tensor | None,
    scale: Tensor | None,
) -> None:
    """Writes what losses come to, and, where wanted, `lse` as `write_losses` and `scale` as `write_total`."""
    M, N = target.numel(), x.shape[-1]
    if x.numel() and chosen(one_program, M, chosen(forward_layout, M, N, x.itemsize)):
        _launch_forward(as_rows(x), target, weight, about, (None, lse, total, scale), mean)
        return
    losses = scratch(target.shape, torch.float32, target.device)
    write_losses(x, target, weight, about, losses, lse)
    write_total(losses, target, weight, about, mean, total, scale)


def _launch_forward(
    read: Rows, target: Tensor, weight: Tensor | None, about: About, written: tuple[Tensor | None, ...], mean: bool
) -> None:
    x = read.tensor
    M, N = target.numel(), x.shape[-1]
    layout = chosen(forward_layout, M, N, x.itemsize)
    constants = {"N": N, "ELEMENTS": elements_of_a_load(N, x.itemsize), "STAGES": CHUNK_STAGES, "MEAN": mean}
    constants |= {"TILES": tiles_at_once(layout, N, x.itemsize), **about._asdict()}
    arguments = x, target.contiguous(), weight, everyone(weight), *written, *read.place
    launch(cross_entropy_forward, layout, M, x.device, arguments, **constants)


def _few_long_rows(x: Tensor, weight: Tensor | None, about: About) -> bool:
    return chosen(few_rows, x[..., 0].numel(), x.shape[-1], x.itemsize) and _plain(weight, about)


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
        *(read.tensor, target.contiguous(), weight, everyone(weight), scale, losses, None, dx, apart),
        *read.place,
        *written.place,
    )
    constants = {"N": N, "MEAN": False, **about._asdict()}
    launch(cross_entropy_gradient, layout, target.numel(), x.device, arguments, **constants)
    if dx is not x:
        x.copy_(dx)


def write_loss_and_gradient(
    x: Tensor, target: Tensor, weight: Tensor | None, about: About, mean: bool, total: Tensor
) -> None:
    """Writes what losses come to, and over x its gradient."""
    N, M, device = x.shape[-1], target.numel(), target.device
    layout = gradient_layout(N, x.itemsize)
    if x.numel() and chosen(one_program, M, layout):
        place = as_rows(x).place
        arguments = x, target.contiguous(), weight, everyone(weight), None, None, total, x, None, *place, *place
        launch(cross_entropy_gradient, layout, M, device, arguments, N=N, MEAN=mean, **about._asdict())
        return
    losses, scale = (scratch(shape, torch.float32, device) for shape in (target.shape, ()))
    write_total(None, target, weight, about, mean, None, scale)
    write_losses_and_gradient(x, target, weight, about, losses, scale)
    write_total(losses, target, weight, about, mean, total, None)


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
    block, warps, parts = chosen(total_parts, M)
    notes = scratch((SLOTS.value * parts,), torch.int64, device) if parts > 1 else None
    N = 0 if weight is None else weight.numel()
    constants = {"N": N, "ignore_index": about.ignore_index, "MEAN": mean, "BLOCK": block, "PARTS": parts}
    arguments = losses, target.contiguous(), weight, total, scale, M, notes
    for programs, step in ((parts, PUBLISH), (1, FINISH)) if parts > 1 else ((1, ALL),):
        start(total_loss, programs, device, arguments, warps=warps, STEP=step.value, **constants)


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
