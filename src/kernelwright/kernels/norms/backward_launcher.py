"""The gradients of a norm: which kernel computes them, and over how many programs the rows are shared out."""

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
    """The gradients by x, weight and bias, of no elements where not wanted.

    Args:
        dy: by the result. dsum: by x, from elsewhere.
        x, mean, rstd: what was normalised, and its statistics.
        fp32_grads: gradients by weight and bias are FP32, else of the weight's dtype.
    """
    N, dx, dsum, weight = x.shape[-1], x.new_empty(x.shape), as_contiguous(dsum), as_contiguous(weight)
    sizes = N if wants_weight else 0, N if wants_bias else 0
    dtype = torch.float32 if fp32_grads or weight is None else weight.dtype
    if not x.numel():
        return dx, x.new_zeros(sizes[0], dtype=dtype), x.new_zeros(sizes[1], dtype=dtype)
    given, read = as_rows(dy), as_rows(x)
    about: dict[str, Any] = {"SUBTRACT_MEAN": centred, "CAST_FIRST": cast_first}
    long = _plan_cluster_launch(given, read, dsum, weight, wants_weight, wants_bias, about)
    groups, run = long or _plan_row_launch(given, read, dsum, weight, about)
    kind = dtype if groups == 1 and not long else torch.float32
    make = partial(allocate_workspace, device=x.device) if groups > 1 or kind != dtype else x.new_empty
    shares = [make((groups, size), dtype=kind) for size in sizes] if groups else []
    sums = [] if shares else _launch_weight_gradients(given, read, mean if centred else None, rstd, sizes, dtype, about)
    run(
        (
            *(given.tensor, dsum, read.tensor, weight, mean if centred else None, rstd, dx),
            *([one if one.numel() else None for one in shares] or (None, None)),
            *(*given.stride_args, *read.stride_args),
        ),
        float(offset),
    )
    dweight, dbias = _sum_partials(shares, dtype) if shares else sums
    return dx, dweight, dbias


_Launcher = Callable[[tuple[Any, ...], float], None]
"""Launches, of the arguments that both kernels take, and the offset."""


def _plan_row_launch(
    given: RowView, read: RowView, dsum: Tensor | None, weight: Tensor | None, about: Mapping[str, Any]
) -> tuple[int, _Launcher]:
    """How many programs keep shares of the weight's gradient, and what launches them."""
    x = read.tensor
    N, M = x.shape[-1], x[..., 0].numel()
    layout, tiles = backward_layout(M, N, x.itemsize)
    itemsizes = [one.itemsize for one in (given.tensor, x, dsum) if one is not None]
    along = 0 if weight is None else weight.itemsize
    stages = backward_stages(M, layout, tiles, N, itemsizes, along, shared_bytes(x.device))
    groups = backward_programs(M, layout, stages, multiprocessors(x.device))
    known = {"N": N, "NUM_STAGES": stages, "NUM_TILES": tiles, **about}
    launched = partial(launch, norm_backward, layout, M, x.device, num_programs=groups * layout.num_splits, **known)
    again = should_reload(M, groups, given.tensor.itemsize + x.itemsize)
    return 0 if again else groups, lambda arguments, offset: launched(arguments, weight_offset=offset)


def _plan_cluster_launch(
    given: RowView,
    read: RowView,
    dsum: Tensor | None,
    weight: Tensor | None,
    wants_weight: bool,
    wants_bias: bool,
    about: Mapping[str, Any],
) -> tuple[int, _Launcher] | None:
    """How many clusters keep shares of the weight's gradient, and what launches them; None where they cannot."""
    x, rows = read.tensor, [given, read, *([] if dsum is None else [as_rows(dsum)])]
    M, there = x[..., 0].numel(), {"HAS_WEIGHT": weight is not None, "HAS_RESIDUAL": dsum is not None}
    kept = 4 + sum(there.values())
    layout = _CLUSTER_BACKWARD.choose_layout(*rows, row_vectors=(weight,), operands=2, smem_rows=kept)
    if layout is None:
        return None
    again = should_reload(
        M, min(M, multiprocessors(x.device) // layout.cluster_size), given.tensor.itemsize + x.itemsize
    )
    wanted = {"WANTS_WEIGHT": wants_weight and not again, "WANTS_BIAS": wants_bias and not again}
    known = {"smem_rows": kept, "MAX_THREADS_PER_SM": BACKWARD_THREADS_PER_SM, **there, **wanted, **about}
    clusters = min(M, _CLUSTER_BACKWARD.max_active_clusters(layout, x, **known))
    if not clusters:
        return None
    launched = partial(_CLUSTER_BACKWARD, layout, x, num_clusters=clusters, **known)
    return 0 if again else clusters, lambda arguments, offset: launched((*arguments, offset, M))


def _launch_weight_gradients(
    given: RowView,
    read: RowView,
    mean: Tensor | None,
    rstd: Tensor,
    sizes: tuple[int, int],
    dtype: torch.dtype,
    about: Mapping[str, Any],
) -> list[Tensor]:
    """The sums over rows of which no program keeps shares: first, so that the rows are in the L2 for what follows."""
    sums = [rstd.new_empty(size, dtype=dtype) for size in sizes]
    if any(sizes):
        N = read.tensor.shape[-1]
        wanted = (one if one.numel() else None for one in sums)
        arguments = given.tensor, read.tensor, mean, rstd, *wanted, *given.stride_args, *read.stride_args, rstd.numel()
        columns, warps = GRADIENT_TILE_WITH_BIAS if all(sizes) else GRADIENT_TILE
        constants = {"N": N, "BLOCK_M": GRADIENT_ROWS, "BLOCK_N": columns, **about}
        launch_programs(weight_grad_kernel, -(-N // columns), rstd.device, arguments, num_warps=warps, **constants)
    return sums


def _sum_partials(shares: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """The sums over the rows."""
    groups = shares[0].shape[0]
    if groups == 1 and shares[0].dtype == dtype:
        return [one.view(-1) for one in shares]
    sums = [one.new_empty(one.shape[1], dtype=dtype) for one in shares]
    given = [pair for pair in zip(shares, sums, strict=True) if pair[0].numel()]
    if not given:
        return sums
    N, (first, second) = given[0][1].numel(), (*given, (None, None))[:2]
    constants = {"N": N, "BLOCK_N": PARTIAL_COLUMNS, "BLOCK_PARTIALS": PARTIAL_ROWS}
    programs, arguments = len(given) * -(-N // PARTIAL_COLUMNS), (*first, *second, groups)
    launch_programs(sum_partials_kernel, programs, sums[0].device, arguments, num_warps=PARTIAL_WARPS, **constants)
    return sums
