"""From logits to the launches that write their losses and gradients."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kernelwright.kernels.launch_cache import allocate_workspace, cached_launch, choose_by_rows, record_launch
from kernelwright.kernels.losses.configs import (
    CHUNK_STAGES,
    SCALE_BLOCK,
    SCALE_PROGRAMS,
    SCALE_WARPS,
    choose_total_launch,
    elements_per_load,
    fits_one_program,
    forward_layout,
    gradient_layout,
    has_few_rows,
    tiles_in_flight,
)
from kernelwright.kernels.losses.forward_kernel import cross_entropy_forward
from kernelwright.kernels.losses.kernel import cross_entropy_gradient
from kernelwright.kernels.losses.total_kernel import reduce_losses_kernel, scale_in_place_kernel
from kernelwright.kernels.rows.cluster_launch import ClusterKernel
from kernelwright.kernels.rows.launcher import (
    RowView,
    as_rows,
    can_grid_sync,
    launch,
    launch_programs,
    multiprocessors,
)
from kernelwright.kernels.rows.tile import NUM_SLOTS, PHASE_COMBINE, PHASE_FUSED, PHASE_STORE

_CLUSTER_FORWARD = ClusterKernel(__file__, "cross_entropy_forward")
_CLUSTER_GRADIENT = ClusterKernel(__file__, "cross_entropy_gradient")


class LossParams(NamedTuple):
    """What a loss is beside its tensors, in the order of the operators' arguments."""

    ignore_index: int
    label_smoothing: float
    z_loss: float
    softcap: float


def sum_class_weights(weight: Tensor | None) -> Tensor | None:
    """The sum of all classes' weights."""
    return None if weight is None else weight.sum(dtype=torch.float32)


def write_losses(
    x: Tensor, target: Tensor, weight: Tensor | None, loss_params: LossParams, losses: Tensor, lse: Tensor | None = None
) -> None:
    """Writes the loss of each row, NaN of no classes, and, where wanted, in `lse` (2, ...) its largest logit and the
    logarithm of the sum of exponentials around that."""
    read = as_rows(x)
    if not x.numel():
        losses.fill_(torch.nan)
        record_launch(lambda: None)
    elif _use_cluster_forward(x, weight, loss_params) and (shared := _CLUSTER_FORWARD.choose_layout(read)):
        given = (
            read.tensor,
            target.contiguous(),
            losses,
            lse,
            *read.stride_args,
            *_scalar_args(loss_params),
            target.numel(),
        )
        _CLUSTER_FORWARD(
            shared, x, given, HAS_LABEL_SMOOTHING=loss_params.label_smoothing != 0.0, SEPARATE_TARGET_GRAD=False
        )
    else:
        _launch_forward(read, target, weight, loss_params, (losses, lse, None, None), False)


def write_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    loss_params: LossParams,
    mean: bool,
    total: Tensor,
    lse: Tensor | None,
    scale: Tensor | None,
) -> None:
    """Writes what losses come to, and, where wanted, `lse` as `write_losses` and `scale` as `write_total`."""
    M, N = target.numel(), x.shape[-1]
    if x.numel() and choose_by_rows(fits_one_program, M, choose_by_rows(forward_layout, M, N, x.itemsize)):
        _launch_forward(as_rows(x), target, weight, loss_params, (None, lse, total, scale), mean)
        return
    losses = allocate_workspace(target.shape, torch.float32, target.device)
    write_losses(x, target, weight, loss_params, losses, lse)
    write_total(losses, target, weight, loss_params, mean, total, scale)


def _launch_forward(
    read: RowView,
    target: Tensor,
    weight: Tensor | None,
    about: LossParams,
    written: tuple[Tensor | None, ...],
    mean: bool,
) -> None:
    x = read.tensor
    M, N = target.numel(), x.shape[-1]
    layout = choose_by_rows(forward_layout, M, N, x.itemsize)
    constants = {"N": N, "ELEMS_PER_LOAD": elements_per_load(N, x.itemsize), "NUM_STAGES": CHUNK_STAGES, "MEAN": mean}
    constants |= {"NUM_TILES": tiles_in_flight(layout, N, x.itemsize), **about._asdict()}
    arguments = x, target.contiguous(), weight, sum_class_weights(weight), *written, *read.stride_args
    launch(cross_entropy_forward, layout, M, x.device, arguments, **constants)


def _use_cluster_forward(x: Tensor, weight: Tensor | None, about: LossParams) -> bool:
    return choose_by_rows(has_few_rows, x[..., 0].numel(), x.shape[-1], x.itemsize) and _has_cluster_kernel(
        weight, about
    )


def _has_cluster_kernel(weight: Tensor | None, about: LossParams) -> bool:
    """Whether it is a loss that long rows have a kernel for."""
    return weight is None and about.softcap == 0.0


def _scalar_args(about: LossParams) -> tuple[int, float, float]:
    """What kernels of CUDA C++ take of it, by the types of their parameters."""
    return about.ignore_index, float(about.label_smoothing), float(about.z_loss)


def write_losses_and_gradient(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    loss_params: LossParams,
    losses: Tensor,
    scale: Tensor,
    target_grad: Tensor | None = None,
) -> None:
    """Writes the losses of rows, and over x their gradient times `scale`; that by the target's logit `target_grad`, in
    FP32, if given, where the target is a class, and then 0 over x."""
    if not x.numel():
        losses.fill_(torch.nan)
        record_launch(lambda: None)
        return
    rows = as_rows(x)
    if (
        _has_cluster_kernel(weight, loss_params)
        and (shared := _CLUSTER_GRADIENT.choose_layout(rows))
        and rows.tensor is x
    ):
        given = x, target.contiguous(), scale, losses, target_grad, *rows.stride_args, *_scalar_args(loss_params)
        _CLUSTER_GRADIENT(
            shared,
            x,
            given,
            HAS_LABEL_SMOOTHING=loss_params.label_smoothing != 0.0,
            SEPARATE_TARGET_GRAD=target_grad is not None,
        )
        return
    N, layout = x.shape[-1], gradient_layout(x.shape[-1], x.itemsize)
    alone = can_grid_sync(layout, x.device)  # else parts read what others have written over
    dx = x if alone else x.new_empty(x.shape)
    read, written = rows, as_rows(dx)
    arguments = (
        *(read.tensor, target.contiguous(), weight, sum_class_weights(weight), scale, losses, None, dx, target_grad),
        *read.stride_args,
        *written.stride_args,
    )
    constants = {"N": N, "MEAN": False, **loss_params._asdict()}
    launch(cross_entropy_gradient, layout, target.numel(), x.device, arguments, **constants)
    if dx is not x:
        x.copy_(dx)


def write_loss_and_gradient(
    x: Tensor, target: Tensor, weight: Tensor | None, loss_params: LossParams, mean: bool, total: Tensor
) -> None:
    """Writes what losses come to, and over x its gradient."""
    N, M, device = x.shape[-1], target.numel(), target.device
    layout = gradient_layout(N, x.itemsize)
    if x.numel() and choose_by_rows(fits_one_program, M, layout):
        place = as_rows(x).stride_args
        arguments = (
            x,
            target.contiguous(),
            weight,
            sum_class_weights(weight),
            None,
            None,
            total,
            x,
            None,
            *place,
            *place,
        )
        launch(cross_entropy_gradient, layout, M, device, arguments, N=N, MEAN=mean, **loss_params._asdict())
        return
    losses, scale = (allocate_workspace(shape, torch.float32, device) for shape in (target.shape, ()))
    write_total(None, target, weight, loss_params, mean, None, scale)
    write_losses_and_gradient(x, target, weight, loss_params, losses, scale)
    write_total(losses, target, weight, loss_params, mean, total, None)


def write_total(
    losses: Tensor | None,
    target: Tensor,
    weight: Tensor | None,
    loss_params: LossParams,
    mean: bool,
    total: Tensor | None,
    scale: Tensor | None,
) -> None:
    """Writes what losses come to, and 1 over what their sum is divided by for that: whichever is wanted."""
    M, device = target.numel(), target.device
    block, warps, parts = choose_by_rows(choose_total_launch, M)
    notes = allocate_workspace((NUM_SLOTS.value * parts,), torch.int64, device) if parts > 1 else None
    N = 0 if weight is None else weight.numel()
    constants = {"N": N, "ignore_index": loss_params.ignore_index, "MEAN": mean, "BLOCK": block, "NUM_SPLITS": parts}
    arguments = losses, target.contiguous(), weight, total, scale, M, notes
    for programs, step in ((parts, PHASE_STORE), (1, PHASE_COMBINE)) if parts > 1 else ((1, PHASE_FUSED),):
        launch_programs(
            reduce_losses_kernel, programs, device, arguments, num_warps=warps, PHASE=step.value, **constants
        )


def scale_in_place(x: Tensor, scale: Tensor) -> Tensor:
    """x, multiplied by one number, which is read on the device: where it is 1 nothing moves."""
    if x.numel():
        _scale_rows(x, scale)
    return x


@cached_launch
def _scale_rows(x: Tensor, scale: Tensor) -> None:
    M, N = x.numel() // x.shape[-1], x.shape[-1]
    programs = min(M, SCALE_PROGRAMS * multiprocessors(x.device))
    given = x, scale, as_rows(x, max_leading_dims=1).stride_args[0], M
    launch_programs(scale_in_place_kernel, programs, x.device, given, num_warps=SCALE_WARPS, N=N, BLOCK=SCALE_BLOCK)
