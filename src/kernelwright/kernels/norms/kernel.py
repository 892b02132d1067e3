"""RMSNorm and LayerNorm over rows: one read and one write, statistics in FP32.

Idea: a row stays in registers from the statistics to the result; rows that are too long for one program are split
(rows/tile.py). The variance takes two passes over the registers; the second also finds the rounding error of the
mean where equal elements need not sum exactly. Splits are combined by their means (Chan et al.), so neither a large
offset nor an outlier costs accuracy. Weights are loaded together with the row where registers allow it
(`PRELOAD_WEIGHT`). Bound: DRAM, 2 * M * N * itemsize bytes (4 with a residual). Gradients: backward_kernel.py.

Source: Zhang & Sennrich 2019, arXiv:1910.07467; Ba et al. 2016, arXiv:1607.06450; combining splits: Chan et al.
1979.
"""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import (
    EVICT_DEFAULT,
    EVICT_FIRST,
    EVICT_LAST,
    PHASE_STORE,
    grid_dependency_wait,
    load_row_vector,
    load_tile,
    mul_rn,
    program_coords,
    programmatic_launch,
    row_sum2,
    store_partial,
    tile_offsets,
    to_scalar,
    wait_partials,
)

MAX_EXACT_COLUMNS = tl.constexpr(2**13)
"""Equal numbers of 11 bits that sum exactly in FP32; for a power of two of them the mean is exact too."""


@triton.constexpr_function
def _is_16bit(x_ptr, residual_out_ptr):
    """Whether the normalized tensor is stored in 16 bits."""
    return (x_ptr if residual_out_ptr is None else residual_out_ptr).dtype.element_ty.primitive_bitwidth == 16


@triton.jit
def _load_input(
    x_ptr, residual_ptr, residual_out_ptr, offs_m, offs_n, mask,
    x_inner_size, stride_x_outer, stride_x_inner, r_inner_size, stride_r_outer, stride_r_inner, EVICTION: tl.constexpr,
):  # fmt: skip
    """Load a tile of x, or of x + residual rounded to the dtype in which the sum is stored, in FP32."""
    x = load_tile(x_ptr, offs_m, offs_n, mask, x_inner_size, stride_x_outer, stride_x_inner, 0.0, EVICTION)
    if residual_ptr is not None:
        x += load_tile(residual_ptr, offs_m, offs_n, mask, r_inner_size, stride_r_outer, stride_r_inner, 0.0, EVICTION)
        x = x.to(residual_out_ptr.dtype.element_ty).to(tl.float32)
    return x


@triton.jit
def _combine_splits(
    sum_sq, local_mean, mean_correction, row, split, workspace_ptr,
    N: tl.constexpr, BLOCK_N: tl.constexpr, NUM_SPLITS: tl.constexpr, PHASE: tl.constexpr, SUBTRACT_MEAN: tl.constexpr,
):  # fmt: skip
    """Combine the partials of all splits of a row.

    Returns the sum of squares around the row mean, and the difference of the row mean from this split's
    `local_mean`.
    """
    store_partial(sum_sq, 0, row, split, workspace_ptr, NUM_SPLITS, PHASE)
    if SUBTRACT_MEAN:
        store_partial(local_mean + mean_correction, 1, row, split, workspace_ptr, NUM_SPLITS, PHASE)
    split_sum_sq = wait_partials(0, 0.0, row, workspace_ptr, NUM_SPLITS, PHASE)
    if SUBTRACT_MEAN:
        splits = tl.arange(0, triton.next_power_of_2(NUM_SPLITS))
        split_counts = tl.maximum(tl.minimum(N - splits * BLOCK_N, BLOCK_N), 0)
        mean_delta = wait_partials(1, 0.0, row, workspace_ptr, NUM_SPLITS, PHASE) - local_mean
        mean_correction = tl.sum(tl.where(split_counts > 0, mean_delta * split_counts, 0.0), 0) * (1.0 / N)
        split_sum_sq += split_counts * (mean_delta - mean_correction) * (mean_delta - mean_correction)
    return tl.sum(split_sum_sq, 0), mean_correction


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def norm_forward(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, y_ptr, residual_out_ptr, mean_ptr, rstd_ptr,
    x_inner_size, stride_x_outer, stride_x_inner, r_inner_size, stride_r_outer, stride_r_inner,
    M, workspace_ptr,
    N: tl.constexpr, eps: tl.constexpr, weight_offset: tl.constexpr, SUBTRACT_MEAN: tl.constexpr,
    CAST_FIRST: tl.constexpr, PRELOAD_WEIGHT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, NUM_SPLITS: tl.constexpr, RELOAD: tl.constexpr, PHASE: tl.constexpr,
):  # fmt: skip
    """RMSNorm, or LayerNorm if SUBTRACT_MEAN, of BLOCK_M rows; y, residual_out, mean and rstd are contiguous."""
    grid_dependency_wait()
    first_row, split = program_coords(BLOCK_M, NUM_SPLITS)
    offs_m, offs_n = tile_offsets(first_row, split, BLOCK_M, BLOCK_N)
    mask = (offs_m < M) & (offs_n < N)
    load_args = (
        x_ptr, residual_ptr, residual_out_ptr, offs_m, offs_n, mask,
        x_inner_size, stride_x_outer, stride_x_inner, r_inner_size, stride_r_outer, stride_r_inner,
    )  # fmt: skip
    FIRST_EVICTION: tl.constexpr = EVICT_LAST if RELOAD and NUM_SPLITS == 1 else EVICT_DEFAULT
    x = _load_input(*load_args, FIRST_EVICTION)
    if PRELOAD_WEIGHT and weight_ptr is not None:
        weight = load_row_vector(weight_ptr, offs_n, N) + weight_offset
    if PRELOAD_WEIGHT and bias_ptr is not None:
        bias = load_row_vector(bias_ptr, offs_n, N)
    if residual_ptr is not None and PHASE != PHASE_STORE:
        tl.store(residual_out_ptr + offs_m * N + offs_n, x.to(residual_out_ptr.dtype.element_ty), mask=mask)
    local_mean = tl.zeros((BLOCK_M, 1), tl.float32)
    mean_correction = local_mean
    EXACT_SUM: tl.constexpr = (
        NUM_SPLITS == 1 and BLOCK_N == N and N <= MAX_EXACT_COLUMNS and _is_16bit(x_ptr, residual_out_ptr)
    )
    if SUBTRACT_MEAN:
        rcp_count = 1.0 / (tl.minimum(N - split * BLOCK_N, BLOCK_N) if NUM_SPLITS > 1 else N)
        local_mean = tl.sum(x, 1, keep_dims=True) * rcp_count
        x = tl.where(offs_n < N, x - local_mean, 0.0)
        if EXACT_SUM:
            sum_sq = tl.sum(mul_rn(x, x, BLOCK_N), 1, keep_dims=True)
        else:
            mean_correction, sum_sq = row_sum2(x, mul_rn(x, x, BLOCK_N))
            mean_correction *= rcp_count
            sum_sq = tl.maximum(sum_sq - mean_correction * mean_correction * (1.0 / rcp_count), 0.0)
    else:
        sum_sq = tl.sum(mul_rn(x, x, BLOCK_N), 1, keep_dims=True)
    if NUM_SPLITS > 1:
        sum_sq, mean_correction = _combine_splits(
            to_scalar(sum_sq), to_scalar(local_mean), to_scalar(mean_correction), first_row, split, workspace_ptr,
            N, BLOCK_N, NUM_SPLITS, PHASE, SUBTRACT_MEAN,
        )  # fmt: skip
    if RELOAD:
        x = _load_input(*load_args, EVICT_FIRST)
        if SUBTRACT_MEAN:
            x -= local_mean
    rstd = tl.rsqrt(sum_sq * (1.0 / N) + eps)
    y = x * rstd
    if SUBTRACT_MEAN and not EXACT_SUM:
        y -= mean_correction * rstd
    if CAST_FIRST:
        y = y.to(x_ptr.dtype.element_ty).to(tl.float32)
    if weight_ptr is not None:
        y *= weight if PRELOAD_WEIGHT else load_row_vector(weight_ptr, offs_n, N) + weight_offset
    if bias_ptr is not None:
        y += bias if PRELOAD_WEIGHT else load_row_vector(bias_ptr, offs_n, N)
    if PHASE != PHASE_STORE:
        tl.store(y_ptr + offs_m * N + offs_n, y.to(y_ptr.dtype.element_ty), mask=mask)
        if rstd_ptr is not None and split == 0:
            zeros = tl.zeros((BLOCK_M, 1), tl.float32)
            tl.store(rstd_ptr + offs_m, rstd + zeros, mask=offs_m < M)
            if SUBTRACT_MEAN:
                tl.store(mean_ptr + offs_m, local_mean + mean_correction, mask=offs_m < M)
