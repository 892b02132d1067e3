"""Gradients of RMSNorm and LayerNorm over rows.

Idea: each program accumulates a partial weight gradient in registers over all its rows while the next rows are
prefetched; the partials are then summed in a fixed order, so results are deterministic. For so few rows that the
partials would move as many bytes, the weight gradient is a second pass over the rows. Bound: DRAM, 3 * M * N *
itemsize bytes (4 with a residual). Formula as in kernel.py.
"""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import (
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


@triton.jit
def _zeros(BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, NUM_TILES: tl.constexpr):
    """A tuple of NUM_TILES zero tiles."""
    tiles = ()
    for _ in tl.static_range(NUM_TILES):
        tiles += (tl.zeros((BLOCK_M, BLOCK_N), tl.float32),)
    return tiles


@triton.jit
def _normalize(x, mean, rstd, mask, SUBTRACT_MEAN: tl.constexpr):
    """x_hat, zero in masked-off elements so that they add nothing to sums."""
    return tl.where(mask, (x - mean) * rstd, 0.0) if SUBTRACT_MEAN else x * rstd


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def norm_backward(
    dy_ptr, dresidual_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, dweight_ptr, dbias_ptr,
    dy_inner_size, stride_dy_outer, stride_dy_inner, x_inner_size, stride_x_outer, stride_x_inner,
    M, workspace_ptr,
    N: tl.constexpr, weight_offset: tl.constexpr, SUBTRACT_MEAN: tl.constexpr, CAST_FIRST: tl.constexpr,
    NUM_TILES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, NUM_SPLITS: tl.constexpr, RELOAD: tl.constexpr, PHASE: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):  # fmt: skip
    """dx, and one partial row of dweight and dbias for each program; dx and dresidual are contiguous."""
    grid_dependency_wait()
    first_block_row, split = program_coords(BLOCK_M, NUM_SPLITS)
    dweight, dbias = _zeros(BLOCK_M, BLOCK_N, NUM_TILES), _zeros(BLOCK_M, BLOCK_N, NUM_TILES)
    for row_start in tl.range(first_block_row, M, tl.num_programs(0) // NUM_SPLITS * BLOCK_M, num_stages=NUM_STAGES):
        offs_m, _ = tile_offsets(row_start, split, BLOCK_M, BLOCK_N)
        rstd = tl.load(rstd_ptr + offs_m, mask=offs_m < M, other=0.0)
        mean = 0.0
        if SUBTRACT_MEAN:
            mean = tl.load(mean_ptr + offs_m, mask=offs_m < M, other=0.0)
        tiles, next_dweight, next_dbias = (), (), ()
        sum_dy_xhat, sum_dy = tl.zeros((BLOCK_M, BLOCK_N), tl.float32), tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for i in tl.static_range(NUM_TILES):
            _, offs_n = tile_offsets(row_start, split * NUM_TILES + i, BLOCK_M, BLOCK_N)
            mask = (offs_m < M) & (offs_n < N)
            dy = load_tile(dy_ptr, offs_m, offs_n, mask, dy_inner_size, stride_dy_outer, stride_dy_inner, 0.0)
            x = load_tile(x_ptr, offs_m, offs_n, mask, x_inner_size, stride_x_outer, stride_x_inner, 0.0)
            x = _normalize(x, mean, rstd, mask, SUBTRACT_MEAN)
            next_dweight += (dweight[i] + dy * (x.to(dy_ptr.dtype.element_ty).to(tl.float32) if CAST_FIRST else x),)
            next_dbias += (dbias[i] + dy,)
            if weight_ptr is not None:
                dy *= load_row_vector(weight_ptr, offs_n, N) + weight_offset
            sum_dy_xhat = mul_rn(dy, x, BLOCK_N) if NUM_TILES == 1 else sum_dy_xhat + dy * x
            sum_dy = dy if NUM_TILES == 1 else sum_dy + dy
            tiles += ((dy, x, offs_n, mask),)
        dweight, dbias = next_dweight, next_dbias
        if SUBTRACT_MEAN:
            sum_dy_xhat, sum_dy = row_sum2(sum_dy_xhat, sum_dy)
        else:
            sum_dy_xhat = tl.sum(sum_dy_xhat, 1, keep_dims=True)
        if NUM_SPLITS > 1:
            store_partial(to_scalar(sum_dy_xhat), 0, row_start, split, workspace_ptr, NUM_SPLITS, PHASE)
            if SUBTRACT_MEAN:
                store_partial(to_scalar(sum_dy), 1, row_start, split, workspace_ptr, NUM_SPLITS, PHASE)
            sum_dy_xhat = tl.sum(wait_partials(0, 0.0, row_start, workspace_ptr, NUM_SPLITS, PHASE), 0)
            if SUBTRACT_MEAN:
                sum_dy = tl.sum(wait_partials(1, 0.0, row_start, workspace_ptr, NUM_SPLITS, PHASE), 0)
        for i in tl.static_range(NUM_TILES):
            dy, x, offs_n, mask = tiles[i]
            dx = dy - x * (sum_dy_xhat * (1.0 / N))
            if SUBTRACT_MEAN:
                dx -= sum_dy * (1.0 / N)
            dx *= rstd
            if PHASE != PHASE_STORE:
                if dresidual_ptr is not None:
                    dx += load_tile(dresidual_ptr, offs_m, offs_n, mask, 1, N, 0, 0.0)
                tl.store(dx_ptr + offs_m * N + offs_n, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    if PHASE != PHASE_STORE:
        for i in tl.static_range(NUM_TILES):
            offs_n = (split * NUM_TILES + i) * BLOCK_N + tl.arange(0, BLOCK_N)
            offs = (first_block_row // BLOCK_M) * N + offs_n
            if dweight_ptr is not None:
                tl.store(dweight_ptr + offs, tl.sum(dweight[i], 0), mask=offs_n < N)
            if dbias_ptr is not None:
                tl.store(dbias_ptr + offs, tl.sum(dbias[i], 0), mask=offs_n < N)


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def weight_grad_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, dweight_ptr, dbias_ptr,
    dy_inner_size, stride_dy_outer, stride_dy_inner, x_inner_size, stride_x_outer, stride_x_inner, M,
    N: tl.constexpr, SUBTRACT_MEAN: tl.constexpr, CAST_FIRST: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Weight and bias gradients of few rows, summed over the rows in a fixed order."""
    grid_dependency_wait()
    dweight, dbias = tl.zeros((BLOCK_M, BLOCK_N), tl.float32), tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for row_start in range(0, M, BLOCK_M):
        offs_m, offs_n = tile_offsets(row_start, tl.program_id(0), BLOCK_M, BLOCK_N)
        mask = (offs_m < M) & (offs_n < N)
        rstd = tl.load(rstd_ptr + offs_m, mask=offs_m < M, other=0.0)
        mean = 0.0
        if SUBTRACT_MEAN:
            mean = tl.load(mean_ptr + offs_m, mask=offs_m < M, other=0.0)
        dy = load_tile(dy_ptr, offs_m, offs_n, mask, dy_inner_size, stride_dy_outer, stride_dy_inner, 0.0)
        x = load_tile(x_ptr, offs_m, offs_n, mask, x_inner_size, stride_x_outer, stride_x_inner, 0.0)
        x = _normalize(x, mean, rstd, mask, SUBTRACT_MEAN)
        dweight += dy * (x.to(dy_ptr.dtype.element_ty).to(tl.float32) if CAST_FIRST else x)
        dbias += dy
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    if dweight_ptr is not None:
        tl.store(dweight_ptr + offs_n, tl.sum(dweight, 0).to(dweight_ptr.dtype.element_ty), mask=offs_n < N)
    if dbias_ptr is not None:
        tl.store(dbias_ptr + offs_n, tl.sum(dbias, 0).to(dbias_ptr.dtype.element_ty), mask=offs_n < N)


@programmatic_launch
@triton.jit(do_not_specialize=["num_partials"])
def sum_partials_kernel(
    partials_ptr, sum_ptr, partials2_ptr, sum2_ptr, num_partials,
    N: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_PARTIALS: tl.constexpr,
):  # fmt: skip
    """Sum (num_partials, N) over its rows in a fixed order, and optionally a second tensor with as many more
    programs."""
    grid_dependency_wait()
    BLOCKS: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    offs_n = tl.program_id(0) % BLOCKS * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    if partials2_ptr is not None:
        is_second = tl.program_id(0) >= BLOCKS
        if is_second:
            partials_ptr, sum_ptr = partials2_ptr, sum2_ptr
    acc = tl.zeros((BLOCK_PARTIALS, BLOCK_N), tl.float32)
    for row_start in range(0, num_partials, BLOCK_PARTIALS):
        offs_m = row_start + tl.arange(0, BLOCK_PARTIALS)[:, None]
        acc += tl.load(partials_ptr + offs_m * N + offs_n, mask=(offs_m < num_partials) & (offs_n < N), other=0.0)
    acc = tl.sum(acc, 0, keep_dims=True)
    tl.store(sum_ptr + offs_n, acc.to(sum_ptr.dtype.element_ty), mask=offs_n < N)
