"""Softmax over rows: one read and one write, in FP32.

Idea: a row stays in registers from the maximum through the sum to the result; the exponentials that are summed are
the ones that are stored, only rescaled, so each is computed once. Splits of a long row exchange their maximum and
sum (rows/tile.py). Bound: DRAM, 2 * M * N * itemsize bytes forward, 3 backward.

Source: Milakov & Gimelshein 2018, arXiv:1805.02867.
"""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import (
    EVICT_DEFAULT,
    EVICT_FIRST,
    PHASE_STORE,
    grid_dependency_wait,
    load_tile,
    mul_rn,
    program_coords,
    programmatic_launch,
    row_offset,
    store_partial,
    tile_offsets,
    to_scalar,
    wait_partials,
)

INFINITY, LOG2_E = tl.constexpr(float("inf")), tl.constexpr(1.4426950408889634)


@triton.jit
def fast_exp(x):
    """exp(x) by ex2; subnormal results are flushed to 0, which saves three instructions per element."""
    return tl.exp2(x * LOG2_E)


@triton.jit
def _exp_and_sum(tiles, shift):
    """exp(x - shift) of all tiles of a program, and the row sums."""
    row_sum = fast_exp(tiles[0] - shift)
    exp_x = (row_sum,)
    for i in tl.static_range(1, len(tiles)):
        exp_x += (fast_exp(tiles[i] - shift),)
        row_sum += exp_x[i]
    return exp_x, tl.sum(row_sum, 1, keep_dims=True)


@triton.jit
def row_softmax_stats(
    tiles, extra, row, split, workspace_ptr, HAS_EXTRA: tl.constexpr, NUM_SPLITS: tl.constexpr, PHASE: tl.constexpr
):
    """exp(x - shift) of all tiles, where shift is the row maximum, or the split's maximum if the row is split.

    Also returns the row maximum and the row sum of exp(x - row maximum), as scalars if the row is split, and the sum
    of `extra` over the splits. A row of only -inf has no softmax: NaN, as in torch.
    """
    row_max = tiles[0]
    for i in tl.static_range(1, len(tiles)):
        row_max = tl.maximum(row_max, tiles[i])
    row_max = tl.max(row_max, 1, keep_dims=True)
    if NUM_SPLITS == 1:
        exp_x, row_sum = _exp_and_sum(tiles, row_max)
    else:
        local_max = to_scalar(row_max)
        exp_x, row_sum = _exp_and_sum(tiles, tl.where(local_max == -INFINITY, 0.0, local_max))
        store_partial(local_max, 0, row, split, workspace_ptr, NUM_SPLITS, PHASE)
        store_partial(to_scalar(row_sum), 1, row, split, workspace_ptr, NUM_SPLITS, PHASE)
        if HAS_EXTRA:
            store_partial(extra, 2, row, split, workspace_ptr, NUM_SPLITS, PHASE)
        split_max = wait_partials(0, -INFINITY, row, workspace_ptr, NUM_SPLITS, PHASE)
        row_max = tl.max(split_max, 0)
        row_sum = tl.sum(
            wait_partials(1, 0.0, row, workspace_ptr, NUM_SPLITS, PHASE) * fast_exp(split_max - row_max), 0
        )
        if HAS_EXTRA:
            extra = tl.sum(wait_partials(2, 0.0, row, workspace_ptr, NUM_SPLITS, PHASE), 0)
    return exp_x, row_max, row_sum, extra


@triton.jit
def _load_input(
    x_ptr, attn_mask_ptr, offs_m, offs_n, mask, x_inner_size, stride_x_outer, stride_x_inner,
    attn_mask_inner_size, attn_mask_middle_size,
    stride_attn_mask_outer, stride_attn_mask_middle, stride_attn_mask_inner, scale, EVICTION: tl.constexpr,
):  # fmt: skip
    """Load a tile of scale * x with the mask applied, in FP32."""
    x = load_tile(x_ptr, offs_m, offs_n, mask, x_inner_size, stride_x_outer, stride_x_inner, 0.0, EVICTION) * scale
    x = tl.where(mask, x, -INFINITY)
    if attn_mask_ptr is not None:
        offs = row_offset(
            offs_m // attn_mask_inner_size, attn_mask_middle_size, stride_attn_mask_outer, stride_attn_mask_middle
        )
        offs += (offs_m % attn_mask_inner_size) * stride_attn_mask_inner + offs_n
        attn_mask = tl.load(attn_mask_ptr + offs, mask=mask, other=0)
        x = tl.where(attn_mask, x, -INFINITY) if attn_mask.dtype == tl.int1 else x + attn_mask.to(tl.float32)
    return x


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def softmax_forward(
    x_ptr, attn_mask_ptr, y_ptr,
    x_inner_size, stride_x_outer, stride_x_inner,
    attn_mask_inner_size, attn_mask_middle_size,
    stride_attn_mask_outer, stride_attn_mask_middle, stride_attn_mask_inner,
    scale, M, workspace_ptr,
    N: tl.constexpr, LOG_SOFTMAX: tl.constexpr, NUM_TILES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, NUM_SPLITS: tl.constexpr, RELOAD: tl.constexpr, PHASE: tl.constexpr,
):  # fmt: skip
    """Softmax or log-softmax of BLOCK_M rows; y is contiguous."""
    grid_dependency_wait()
    first_row, split = program_coords(BLOCK_M, NUM_SPLITS)
    strides = (
        x_inner_size, stride_x_outer, stride_x_inner,
        attn_mask_inner_size, attn_mask_middle_size,
        stride_attn_mask_outer, stride_attn_mask_middle, stride_attn_mask_inner, scale,
    )  # fmt: skip
    tiles = ()
    for i in tl.static_range(NUM_TILES):
        offs_m, offs_n = tile_offsets(first_row, split * NUM_TILES + i, BLOCK_M, BLOCK_N)
        tiles += (
            _load_input(x_ptr, attn_mask_ptr, offs_m, offs_n, (offs_m < M) & (offs_n < N), *strides, EVICT_DEFAULT),
        )
    exp_x, row_max, row_sum, _ = row_softmax_stats(
        tiles, 0.0, first_row, split, workspace_ptr, False, NUM_SPLITS, PHASE
    )
    log_sum = tl.log(row_sum) if LOG_SOFTMAX else row_sum
    for i in tl.static_range(NUM_TILES):
        offs_m, offs_n = tile_offsets(first_row, split * NUM_TILES + i, BLOCK_M, BLOCK_N)
        mask = (offs_m < M) & (offs_n < N)
        x, exp_x_i = tiles[i], exp_x[i]
        if RELOAD:
            x = _load_input(x_ptr, attn_mask_ptr, offs_m, offs_n, mask, *strides, EVICT_FIRST)
            exp_x_i = fast_exp(x - row_max)
        y = (x - row_max) - log_sum if LOG_SOFTMAX else exp_x_i * (1.0 / row_sum)
        if PHASE != PHASE_STORE:
            tl.store(y_ptr + offs_m * N + offs_n, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _load_grad_and_output(
    dy_ptr, y_ptr, offs_m, offs_n, M, dy_inner_size, stride_dy_outer, stride_dy_inner,
    N: tl.constexpr, LOG_SOFTMAX: tl.constexpr, EVICTION: tl.constexpr,
):  # fmt: skip
    """Load a tile of dy and of y; also returns the mask."""
    mask = (offs_m < M) & (offs_n < N)
    other: tl.constexpr = -float("inf") if LOG_SOFTMAX else 0.0
    dy = load_tile(dy_ptr, offs_m, offs_n, mask, dy_inner_size, stride_dy_outer, stride_dy_inner, 0.0, EVICTION)
    return dy, load_tile(y_ptr, offs_m, offs_n, mask, 1, N, 0, other, EVICTION), mask


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def softmax_backward(
    dy_ptr, y_ptr, dx_ptr,
    dy_inner_size, stride_dy_outer, stride_dy_inner,
    scale, M, workspace_ptr,
    N: tl.constexpr, LOG_SOFTMAX: tl.constexpr, HAS_BOOL_MASK: tl.constexpr, NUM_TILES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, NUM_SPLITS: tl.constexpr, RELOAD: tl.constexpr, PHASE: tl.constexpr,
):  # fmt: skip
    """dx from dy and y = (log-)softmax(scale * x); y and dx are contiguous."""
    grid_dependency_wait()
    first_row, split = program_coords(BLOCK_M, NUM_SPLITS)
    strides = M, dy_inner_size, stride_dy_outer, stride_dy_inner
    tiles = ()
    for i in tl.static_range(NUM_TILES):
        tiles += (
            _load_grad_and_output(
                dy_ptr,
                y_ptr,
                *tile_offsets(first_row, split * NUM_TILES + i, BLOCK_M, BLOCK_N),
                *strides,
                N,
                LOG_SOFTMAX,
                EVICT_DEFAULT,
            ),
        )
    row_sum = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for i in tl.static_range(NUM_TILES):
        dy, y, _ = tiles[i]
        row_sum += dy if LOG_SOFTMAX else mul_rn(dy, y, NUM_TILES * BLOCK_N)
    row_sum = tl.sum(row_sum, 1, keep_dims=True)
    if NUM_SPLITS > 1:
        store_partial(to_scalar(row_sum), 0, first_row, split, workspace_ptr, NUM_SPLITS, PHASE)
        row_sum = tl.sum(wait_partials(0, 0.0, first_row, workspace_ptr, NUM_SPLITS, PHASE), 0)
    for i in tl.static_range(NUM_TILES):
        offs_m, offs_n = tile_offsets(first_row, split * NUM_TILES + i, BLOCK_M, BLOCK_N)
        dy, y, mask = tiles[i]
        if RELOAD:
            dy, y, _ = _load_grad_and_output(dy_ptr, y_ptr, offs_m, offs_n, *strides, N, LOG_SOFTMAX, EVICT_FIRST)
        dx = dy - fast_exp(y) * row_sum if LOG_SOFTMAX else y * (dy - row_sum)
        if LOG_SOFTMAX and HAS_BOOL_MASK:
            dx = tl.where(y == -INFINITY, 0.0, dx)
        if PHASE != PHASE_STORE:
            tl.store(dx_ptr + offs_m * N + offs_n, (dx * scale).to(dx_ptr.dtype.element_ty), mask=mask)
