"""Launches that compute losses and gradients from logits."""

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
    backward_layout,
    choose_total_launch,
    elements_per_load,
    fits_one_program,
    forward_layout,
    gradient_layout,
    has_few_rows,
    tiles_in_flight,
)
from kernelwright.kernels.losses.forward_kernel import cross_entropy_forward
from kernelwright.kernels.losses.kernel import cross_entropy_backward, cross_entropy_gradient
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
    """Parameters of a loss, in the order of the operators' arguments; the names are constexpr parameters of the
    kernels."""

    ignore_index: int
    label_smoothing: float
    z_loss: float
    softcap: float


def sum_class_weights(weight: Tensor | None) -> Tensor | None:
    """Sum of all class weights; None without weights."""
    return None if weight is None else weight.sum(dtype=torch.float32)


def write_losses(
    x: Tensor, target: Tensor, weight: Tensor | None, loss_params: LossParams, losses: Tensor, lse: Tensor | None = None
) -> None:
    """Write the loss of each row, NaN if there are no classes.

    Args:
        lse: (2, ...): the largest logit of each row and the log of the sum of exponentials relative to it; optional.
    """
    rows = as_rows(x)
    if not x.numel():
        losses.fill_(torch.nan)
        record_launch(lambda: None)
    elif _use_cluster_forward(x, weight, loss_params) and (cluster := _CLUSTER_FORWARD.choose_layout(rows)):
        arguments = (
            rows.tensor,
            target.contiguous(),
            losses,
            lse,
            *rows.stride_args,
            *_scalar_args(loss_params),
            target.numel(),
        )
        _CLUSTER_FORWARD(
            cluster, x, arguments, HAS_LABEL_SMOOTHING=loss_params.label_smoothing != 0.0, SEPARATE_TARGET_GRAD=False
        )
    else:
        _launch_forward(rows, target, weight, loss_params, (losses, lse, None, None), False)


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
    """Write the reduced loss, and optionally `lse` as `write_losses` and `scale` as `write_total`."""
    M, N = target.numel(), x.shape[-1]
    if x.numel() and choose_by_rows(fits_one_program, M, choose_by_rows(forward_layout, M, N, x.itemsize)):
        _launch_forward(as_rows(x), target, weight, loss_params, (None, lse, total, scale), mean)
        return
    losses = allocate_workspace(target.shape, torch.float32, target.device)
    write_losses(x, target, weight, loss_params, losses, lse)
    write_total(losses, target, weight, loss_params, mean, total, scale)


def _launch_forward(
    rows: RowView,
    target: Tensor,
    weight: Tensor | None,
    params: LossParams,
    outputs: tuple[Tensor | None, ...],
    mean: bool,
) -> None:
    x = rows.tensor
    M, N = target.numel(), x.shape[-1]
    layout = choose_by_rows(forward_layout, M, N, x.itemsize)
    constants = {"N": N, "ELEMS_PER_LOAD": elements_per_load(N, x.itemsize), "NUM_STAGES": CHUNK_STAGES, "MEAN": mean}
    constants |= {"NUM_TILES": tiles_in_flight(layout, N, x.itemsize), **params._asdict()}
    arguments = x, target.contiguous(), weight, sum_class_weights(weight), *outputs, *rows.stride_args
    launch(cross_entropy_forward, layout, M, x.device, arguments, **constants)


def _use_cluster_forward(x: Tensor, weight: Tensor | None, params: LossParams) -> bool:
    return choose_by_rows(has_few_rows, x[..., 0].numel(), x.shape[-1], x.itemsize) and _has_cluster_kernel(
        weight, params
    )


def _has_cluster_kernel(weight: Tensor | None, params: LossParams) -> bool:
    """Whether the cluster kernels support the loss."""
    return weight is None and params.softcap == 0.0


def _scalar_args(params: LossParams) -> tuple[int, float, float]:
    """Scalar arguments of the CUDA C++ kernels, by the types of their parameters."""
    return params.ignore_index, float(params.label_smoothing), float(params.z_loss)


def write_losses_and_gradient(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    loss_params: LossParams,
    losses: Tensor,
    scale: Tensor,
    target_grad: Tensor | None = None,
) -> None:
    """Write the losses of rows, and overwrite x with their gradient times `scale`.

    Args:
        target_grad: receives the gradient of each target's logit in FP32, which is then 0 in x; optional.
    """
    if not x.numel():
        losses.fill_(torch.nan)
        record_launch(lambda: None)
        return
    rows = as_rows(x)
    if (
        _has_cluster_kernel(weight, loss_params)
        and (cluster := _CLUSTER_GRADIENT.choose_layout(rows))
        and rows.tensor is x
    ):
        arguments = x, target.contiguous(), scale, losses, target_grad, *rows.stride_args, *_scalar_args(loss_params)
        _CLUSTER_GRADIENT(
            cluster,
            x,
            arguments,
            HAS_LABEL_SMOOTHING=loss_params.label_smoothing != 0.0,
            SEPARATE_TARGET_GRAD=target_grad is not None,
        )
        return
    N, layout = x.shape[-1], gradient_layout(x.shape[-1], x.itemsize)
    is_fused = can_grid_sync(layout, x.device)  # else splits would read logits that others overwrote
    dx = x if is_fused else x.new_empty(x.shape)
    dx_rows = as_rows(dx)
    arguments = (
        *(rows.tensor, target.contiguous(), weight, sum_class_weights(weight), scale, losses, None, dx, target_grad),
        *rows.stride_args,
        *dx_rows.stride_args,
    )
    constants = {"N": N, "MEAN": False, **loss_params._asdict()}
    launch(cross_entropy_gradient, layout, target.numel(), x.device, arguments, **constants)
    if dx is not x:
        x.copy_(dx)


def write_gradient(
    dloss: Tensor,
    scale: Tensor | None,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    lse: Tensor,
    loss_params: LossParams,
    dx: Tensor,
) -> None:
    """Write the gradient of rows whose statistics were saved.

    Args:
        dloss: gradient of each row's loss, (...), or of the reduced loss, ().
        scale: factor of the gradients, as `write_total` writes it; optional.
        lse: as `write_losses` writes it.
        dx: contiguous; may be x.
    """
    N, rows, dloss_flat = x.shape[-1], as_rows(x), dloss.reshape(-1)
    launch(
        cross_entropy_backward,
        choose_by_rows(backward_layout, target.numel(), N, x.itemsize),
        target.numel(),
        x.device,
        (
            *(dloss_flat, scale, rows.tensor, target.contiguous(), weight, sum_class_weights(weight), lse, dx),
            dloss_flat.stride(0) if dloss.dim() else 0,
            *rows.stride_args,
        ),
        independent_splits=True,
        N=N,
        **loss_params._asdict(),
    )


def write_loss_and_gradient(
    x: Tensor, target: Tensor, weight: Tensor | None, loss_params: LossParams, mean: bool, total: Tensor
) -> None:
    """Write the reduced loss, and overwrite x with its gradient."""
    N, M, device = x.shape[-1], target.numel(), target.device
    layout = gradient_layout(N, x.itemsize)
    if x.numel() and choose_by_rows(fits_one_program, M, layout):
        strides = as_rows(x).stride_args
        arguments = (
            *(x, target.contiguous(), weight, sum_class_weights(weight), None, None, total, x, None),
            *strides,
            *strides,
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
    """Write the reduced loss to `total` and the factor of the gradients, 1 / weight sum or 1, to `scale`; both
    optional."""
    M, device = target.numel(), target.device
    block, warps, num_splits = choose_by_rows(choose_total_launch, M)
    workspace = allocate_workspace((NUM_SLOTS.value * num_splits,), torch.int64, device) if num_splits > 1 else None
    N = 0 if weight is None else weight.numel()
    constants = {
        "N": N,
        "ignore_index": loss_params.ignore_index,
        "MEAN": mean,
        "BLOCK": block,
        "NUM_SPLITS": num_splits,
    }
    arguments = losses, target.contiguous(), weight, total, scale, M, workspace
    for num_programs, phase in (
        ((num_splits, PHASE_STORE), (1, PHASE_COMBINE)) if num_splits > 1 else ((1, PHASE_FUSED),)
    ):
        launch_programs(
            reduce_losses_kernel, num_programs, device, arguments, num_warps=warps, PHASE=phase.value, **constants
        )


def scale_in_place(x: Tensor, scale: Tensor) -> Tensor:
    """Multiply x by a scalar that is read on the device; no data moves if it is 1."""
    if x.numel():
        _scale_rows(x, scale)
    return x


@cached_launch
def _scale_rows(x: Tensor, scale: Tensor) -> None:
    M, N = x.numel() // x.shape[-1], x.shape[-1]
    programs = min(M, SCALE_PROGRAMS * multiprocessors(x.device))
    arguments = x, scale, as_rows(x, max_leading_dims=1).stride_args[0], M
    launch_programs(scale_in_place_kernel, programs, x.device, arguments, num_warps=SCALE_WARPS, N=N, BLOCK=SCALE_BLOCK)
