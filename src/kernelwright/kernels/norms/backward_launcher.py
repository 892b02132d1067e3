"""Launch of the norm gradients: the choice of kernel and the number of programs that share the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kernelwright.kernels.launch_cache import allocate_workspace, cached_launch
from kernelwright.kernels.norms.backward_kernel import norm_backward, sum_partials_kernel, weight_grad_kernel
from kernelwright.kernels.norms.configs import (
    BACKWARD_THREADS_PER_SM,
    GRADIENT_ROWS,
    GRADIENT_TILE,
    GRADIENT_TILE_WITH_BIAS,
    PARTIAL_COLUMNS,
    PARTIAL_ROWS,
    PARTIAL_WARPS,
    backward_layout,
    backward_programs,
    backward_stages,
    should_reload,
)
from kernelwright.kernels.operators import as_contiguous
from kernelwright.kernels.rows.cluster_launch import ClusterKernel
from kernelwright.kernels.rows.launcher import RowView, as_rows, launch, launch_programs, multiprocessors, shared_bytes

_CLUSTER_BACKWARD = ClusterKernel(__file__, "norm_backward", "long_rows_backward.cu")


@cached_launch
def compute_gradients(
    dy: Tensor,
    dsum: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    offset: float,
    centred: bool,
    cast_first: bool,
    wants_weight: bool,
    wants_bias: bool,
    fp32_grads: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients with respect to x, weight and bias; empty tensors where not wanted.

    Args:
        dy: gradient of the result.
        dsum: gradient of x from elsewhere, added to dx.
        x, mean, rstd: the normalized tensor and its statistics.
        fp32_grads: weight and bias gradients are FP32, else of the weight's dtype.
    """
    N, dx, dsum, weight = x.shape[-1], x.new_empty(x.shape), as_contiguous(dsum), as_contiguous(weight)
    sizes = N if wants_weight else 0, N if wants_bias else 0
    dtype = torch.float32 if fp32_grads or weight is None else weight.dtype
    if not x.numel():
        return dx, x.new_zeros(sizes[0], dtype=dtype), x.new_zeros(sizes[1], dtype=dtype)
    dy_rows, x_rows, row_mean = as_rows(dy), as_rows(x), mean if centred else None
    constants: dict[str, Any] = {"SUBTRACT_MEAN": centred, "CAST_FIRST": cast_first}
    cluster = _plan_cluster_launch(dy_rows, x_rows, dsum, weight, wants_weight, wants_bias, constants)
    num_partials, run = cluster or _plan_row_launch(dy_rows, x_rows, dsum, weight, constants)
    partial_dtype = dtype if num_partials == 1 and not cluster else torch.float32
    is_workspace = num_partials > 1 or partial_dtype != dtype
    allocate = partial(allocate_workspace, device=x.device) if is_workspace else x.new_empty
    partials = [allocate((num_partials, size), dtype=partial_dtype) for size in sizes] if num_partials else []
    sums = [] if partials else _launch_weight_gradients(dy_rows, x_rows, row_mean, rstd, sizes, dtype, constants)
    run(
        (
            *(dy_rows.tensor, dsum, x_rows.tensor, weight, row_mean, rstd, dx),
            *([one if one.numel() else None for one in partials] or (None, None)),
            *(*dy_rows.stride_args, *x_rows.stride_args),
        ),
        float(offset),
    )
    dweight, dbias = _sum_partials(partials, dtype) if partials else sums
    return dx, dweight, dbias


_Launcher = Callable[[tuple[Any, ...], float], None]
"""Launches a kernel from the arguments that both kernels share, and the weight offset."""


def _plan_row_launch(
    dy_rows: RowView, x_rows: RowView, dsum: Tensor | None, weight: Tensor | None, constants: Mapping[str, Any]
) -> tuple[int, _Launcher]:
    """The number of partial weight gradients, 0 for a second pass over the rows, and the launcher."""
    x = x_rows.tensor
    N, M = x.shape[-1], x[..., 0].numel()
    layout, tiles = backward_layout(M, N, x.itemsize)
    itemsizes = [one.itemsize for one in (dy_rows.tensor, x, dsum) if one is not None]
    weight_itemsize = 0 if weight is None else weight.itemsize
    stages = backward_stages(M, layout, tiles, N, itemsizes, weight_itemsize, shared_bytes(x.device))
    groups = backward_programs(M, layout, stages, multiprocessors(x.device))
    constants = {"N": N, "NUM_STAGES": stages, "NUM_TILES": tiles, **constants}
    run = partial(launch, norm_backward, layout, M, x.device, num_programs=groups * layout.num_splits, **constants)
    reload = should_reload(M, groups, dy_rows.tensor.itemsize + x.itemsize)
    return 0 if reload else groups, lambda arguments, offset: run(arguments, weight_offset=offset)


def _plan_cluster_launch(
    dy_rows: RowView,
    x_rows: RowView,
    dsum: Tensor | None,
    weight: Tensor | None,
    wants_weight: bool,
    wants_bias: bool,
    constants: Mapping[str, Any],
) -> tuple[int, _Launcher] | None:
    """As `_plan_row_launch` for the cluster kernel; None if it does not support these tensors."""
    x, rows = x_rows.tensor, [dy_rows, x_rows, *([] if dsum is None else [as_rows(dsum)])]
    M, operands = x[..., 0].numel(), {"HAS_WEIGHT": weight is not None, "HAS_RESIDUAL": dsum is not None}
    smem_rows = 4 + sum(operands.values())
    layout = _CLUSTER_BACKWARD.choose_layout(*rows, row_vectors=(weight,), operands=2, smem_rows=smem_rows)
    if layout is None:
        return None
    max_clusters = min(M, multiprocessors(x.device) // layout.cluster_size)
    reload = should_reload(M, max_clusters, dy_rows.tensor.itemsize + x.itemsize)
    macros = {
        "MAX_THREADS_PER_SM": BACKWARD_THREADS_PER_SM,
        **operands,
        "WANTS_WEIGHT": wants_weight and not reload,
        "WANTS_BIAS": wants_bias and not reload,
        **constants,
    }
    clusters = min(M, _CLUSTER_BACKWARD.max_active_clusters(layout, x, smem_rows=smem_rows, **macros))
    if not clusters:
        return None
    run = partial(_CLUSTER_BACKWARD, layout, x, num_clusters=clusters, smem_rows=smem_rows, **macros)
    return 0 if reload else clusters, lambda arguments, offset: run((*arguments, offset, M))


def _launch_weight_gradients(
    dy_rows: RowView,
    x_rows: RowView,
    mean: Tensor | None,
    rstd: Tensor,
    sizes: tuple[int, int],
    dtype: torch.dtype,
    constants: Mapping[str, Any],
) -> list[Tensor]:
    """Weight and bias gradients in a separate pass over the rows; it runs first, which leaves the rows in L2 for dx."""
    sums = [rstd.new_empty(size, dtype=dtype) for size in sizes]
    if any(sizes):
        N = x_rows.tensor.shape[-1]
        outputs = (one if one.numel() else None for one in sums)
        strides = *dy_rows.stride_args, *x_rows.stride_args
        arguments = dy_rows.tensor, x_rows.tensor, mean, rstd, *outputs, *strides, rstd.numel()
        columns, warps = GRADIENT_TILE_WITH_BIAS if all(sizes) else GRADIENT_TILE
        constants = {"N": N, "BLOCK_M": GRADIENT_ROWS, "BLOCK_N": columns, **constants}
        launch_programs(weight_grad_kernel, -(-N // columns), rstd.device, arguments, num_warps=warps, **constants)
    return sums


def _sum_partials(partials: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """The sums over the partial gradients."""
    num_partials = partials[0].shape[0]
    if num_partials == 1 and partials[0].dtype == dtype:
        return [one.view(-1) for one in partials]
    sums = [one.new_empty(one.shape[1], dtype=dtype) for one in partials]
    pairs = [pair for pair in zip(partials, sums, strict=True) if pair[0].numel()]
    if not pairs:
        return sums
    N, (first, second) = pairs[0][1].numel(), (*pairs, (None, None))[:2]
    constants = {"N": N, "BLOCK_N": PARTIAL_COLUMNS, "BLOCK_PARTIALS": PARTIAL_ROWS}
    programs, arguments = len(pairs) * -(-N // PARTIAL_COLUMNS), (*first, *second, num_partials)
    launch_programs(sum_partials_kernel, programs, sums[0].device, arguments, num_warps=PARTIAL_WARPS, **constants)
    return sums
