"""Cross-entropy loss of rows of logits without the gradient: one read.

Idea: every lane keeps the maximum of its own logits and the sum of their exponentials until the whole row is read:
in one load, or, for a long row, in chunks with an online rescaling of the sum. Lanes are reduced once at the end.
Bound: DRAM, M * N * itemsize bytes. Formula and names as in kernel.py.
"""

import triton
import triton.language as tl

from kernelwright.kernels.losses.kernel import apply_softcap, compute_losses, load_pivot, load_targets
from kernelwright.kernels.losses.total_kernel import store_total
from kernelwright.kernels.rows.tile import (
    PHASE_STORE,
    grid_dependency_wait,
    load_row_vector,
    mul_rn,
    program_coords,
    programmatic_launch,
    row_offset,
    store_partial,
    wait_partials,
)
from kernelwright.kernels.softmaxes.kernel import INFINITY, LOG2_E

FLT_MAX, LN_2 = tl.constexpr(3.4028234663852886e38), tl.constexpr(0.6931471805599453)
COARSE_FP32 = tl.constexpr(2.0**30)
"""From here on FP32 numbers are at least 64 apart, and e^-64 of a term is negligible."""


@triton.jit
def _exp2_args(row_max):
    """exp2_scale and exp2_shift such that exp(x - row_max) is exp2(x * exp2_scale - exp2_shift), one fused
    operation, and the exponent of the power of two that their sum is relative to.

    Where products would overflow, different logits are so far apart that the smaller one is negligible, whatever the
    factor.
    """
    exp2_exponent = tl.minimum(tl.maximum(row_max * LOG2_E, -FLT_MAX), FLT_MAX)
    is_coarse = tl.abs(row_max) >= COARSE_FP32
    exp2_shift = tl.where(is_coarse, tl.where(row_max == -INFINITY, 0.0, row_max), exp2_exponent)
    return tl.where(is_coarse, 1.0, LOG2_E), exp2_shift, exp2_exponent


@triton.jit
def _rescale(row_max, exp2_exponent, new_max, new_exponent):
    """Factor that turns a sum relative to `row_max` into one relative to `new_max`."""
    rescale = tl.exp2(exp2_exponent - new_exponent)
    return tl.where(tl.abs(new_max) < COARSE_FP32, rescale, tl.where(row_max < new_max, 0.0, rescale))


@triton.jit
def _load_tiles(
    x_ptr, row_offs, chunk, offs_n, row_mask,
    N: tl.constexpr, softcap: tl.constexpr, BLOCK_N: tl.constexpr, NUM_TILES: tl.constexpr, FULL_COLUMNS: tl.constexpr,
):  # fmt: skip
    """NUM_TILES tiles (BLOCK_M, NUM_LANES, ELEMS_PER_LOAD), all loads in flight together; the first `FULL_COLUMNS`
    columns need no mask."""
    tiles = ()
    for i in tl.static_range(NUM_TILES):
        ptrs = x_ptr + row_offs[:, None, None] + chunk + i * BLOCK_N + offs_n
        if row_offs.shape[0] == 1 and (i + 1) * BLOCK_N <= FULL_COLUMNS:
            x = apply_softcap(tl.load(ptrs), softcap)
        else:
            mask = row_mask[:, None, None]
            if (i + 1) * BLOCK_N > FULL_COLUMNS:
                mask = mask & (chunk + i * BLOCK_N + offs_n < N)
            x = tl.load(ptrs, mask=mask, other=-INFINITY)
            x = x if softcap == 0.0 else tl.where(mask, apply_softcap(x, softcap), -INFINITY)
        tiles += (x,)
    return tiles


@triton.jit
def _update_online(
    row_max, row_sum, weighted_sum, tiles, pivot, weight_ptr, chunk, offs_n,
    N: tl.constexpr, BLOCK_N: tl.constexpr, label_smoothing: tl.constexpr,
):  # fmt: skip
    """Add tiles to the running state of each lane: maximum logit, sum of exponentials relative to it (`_exp2_args`),
    and, for label smoothing, the weighted sum of logits relative to the pivot."""
    new_max = row_max
    for i in tl.static_range(len(tiles)):
        new_max = tl.maximum(new_max, tl.max(tiles[i].to(tl.float32), 2))
    exp2_scale, exp2_shift, exp2_exponent = _exp2_args(new_max)
    row_sum *= _rescale(row_max, _exp2_args(row_max)[2], new_max, exp2_exponent)
    for i in tl.static_range(len(tiles)):
        x = tiles[i].to(tl.float32)
        row_sum += tl.sum(tl.exp2(tl.fma(x, exp2_scale[:, :, None], -exp2_shift[:, :, None])), 2)
        if label_smoothing != 0.0:
            offs = chunk + i * BLOCK_N + offs_n
            weights = 1.0 if weight_ptr is None else load_row_vector(weight_ptr, offs, N)
            weighted_sum += tl.sum(tl.where(offs < N, weights * (x - pivot[:, None, None]), 0.0), 2)
    return new_max, row_sum, weighted_sum


@programmatic_launch
@triton.jit(do_not_specialize=["M"])
def cross_entropy_forward(
    x_ptr, target_ptr, weight_ptr, weight_sum_ptr, loss_ptr, lse_ptr, total_ptr, scale_ptr,
    x_inner_size, stride_x_outer, stride_x_inner,
    M, workspace_ptr,
    N: tl.constexpr, ignore_index: tl.constexpr, label_smoothing: tl.constexpr, z_loss: tl.constexpr,
    softcap: tl.constexpr,
    MEAN: tl.constexpr, ELEMS_PER_LOAD: tl.constexpr, NUM_TILES: tl.constexpr, NUM_STAGES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, NUM_SPLITS: tl.constexpr, RELOAD: tl.constexpr, PHASE: tl.constexpr,
):  # fmt: skip
    """Losses of BLOCK_M rows, or, if `loss_ptr` is None since this program has all rows, their mean or sum."""
    grid_dependency_wait()
    first_row, split = program_coords(BLOCK_M, NUM_SPLITS)
    offs_m = (first_row + tl.arange(0, BLOCK_M)).to(tl.int64)
    row_mask, row_offs = offs_m < M, row_offset(offs_m, x_inner_size, stride_x_outer, stride_x_inner)
    target, not_ignored, in_range, target_weight, weight_sum = load_targets(
        offs_m, target_ptr, weight_ptr, weight_sum_ptr, M, N, ignore_index
    )
    NUM_LANES: tl.constexpr = BLOCK_N // ELEMS_PER_LOAD
    offs_n = tl.arange(0, NUM_LANES)[None, :, None] * ELEMS_PER_LOAD + tl.arange(0, ELEMS_PER_LOAD)[None, None, :]
    pivot = load_pivot(x_ptr, row_offs, target, in_range, softcap, label_smoothing) + tl.zeros((BLOCK_M,), tl.float32)
    row_max, row_sum = tl.full((BLOCK_M, NUM_LANES), -INFINITY, tl.float32), tl.zeros((BLOCK_M, NUM_LANES), tl.float32)
    weighted_sum = tl.zeros((BLOCK_M, NUM_LANES), tl.float32)
    CHUNK_SIZE: tl.constexpr = NUM_TILES * BLOCK_N
    SPLIT_SIZE: tl.constexpr = (N + NUM_SPLITS * CHUNK_SIZE - 1) // (NUM_SPLITS * CHUNK_SIZE) * CHUNK_SIZE
    FULL_COLUMNS: tl.constexpr = CHUNK_SIZE if N % CHUNK_SIZE == 0 else 0
    if CHUNK_SIZE >= N:
        tiles = _load_tiles(x_ptr, row_offs, 0, offs_n, row_mask, N, softcap, BLOCK_N, NUM_TILES, N)
        logit = tl.load(x_ptr + row_offs + target, mask=in_range, other=0.0).to(tl.float32)
        row_max, row_sum, weighted_sum = _update_online(
            row_max, row_sum, weighted_sum, tiles, pivot, weight_ptr, 0, offs_n, N, BLOCK_N, label_smoothing
        )  # fmt: skip
    else:
        for chunk in tl.range(
            split * SPLIT_SIZE, tl.minimum(split * SPLIT_SIZE + SPLIT_SIZE, N), CHUNK_SIZE, num_stages=NUM_STAGES
        ):
            tiles = _load_tiles(x_ptr, row_offs, chunk, offs_n, row_mask, N, softcap, BLOCK_N, NUM_TILES, FULL_COLUMNS)
            row_max, row_sum, weighted_sum = _update_online(
                row_max, row_sum, weighted_sum, tiles, pivot, weight_ptr, chunk, offs_n, N, BLOCK_N, label_smoothing
            )  # fmt: skip
        logit = tl.load(x_ptr + row_offs + target, mask=in_range, other=0.0).to(tl.float32)
    max_over_lanes = tl.max(row_max, 1)
    exp2_exponent = _exp2_args(max_over_lanes)[2]
    row_sum = tl.sum(
        mul_rn(
            row_sum,
            _rescale(row_max, _exp2_args(row_max)[2], max_over_lanes[:, None], exp2_exponent[:, None]),
            NUM_LANES,
        ),
        1,
    )
    row_max, weighted_sum = max_over_lanes, tl.sum(weighted_sum, 1)
    if NUM_SPLITS > 1:
        store_partial(tl.max(row_max, 0), 0, first_row, split, workspace_ptr, NUM_SPLITS, PHASE)
        store_partial(tl.sum(row_sum, 0), 1, first_row, split, workspace_ptr, NUM_SPLITS, PHASE)
        if label_smoothing != 0.0:
            store_partial(tl.sum(weighted_sum, 0), 2, first_row, split, workspace_ptr, NUM_SPLITS, PHASE)
    if PHASE != PHASE_STORE and split == 0:
        if NUM_SPLITS > 1:
            split_max, zeros = (
                wait_partials(0, -INFINITY, first_row, workspace_ptr, NUM_SPLITS, PHASE),
                tl.zeros((BLOCK_M,), tl.float32),
            )
            row_max = tl.max(split_max, 0) + zeros
            exp2_exponent = _exp2_args(row_max)[2]
            rescale = _rescale(split_max, _exp2_args(split_max)[2], tl.max(row_max, 0), tl.max(exp2_exponent, 0))
            row_sum = tl.sum(wait_partials(1, 0.0, first_row, workspace_ptr, NUM_SPLITS, PHASE) * rescale, 0) + zeros
            if label_smoothing != 0.0:
                weighted_sum = tl.sum(wait_partials(2, 0.0, first_row, workspace_ptr, NUM_SPLITS, PHASE), 0) + zeros
        log_sum = (
            tl.log(row_sum)
            + tl.where(tl.abs(row_max) < COARSE_FP32, tl.fma(row_max, -LOG2_E, exp2_exponent), 0.0) * LN_2
        )
        loss = compute_losses(
            row_max, log_sum, apply_softcap(logit, softcap), pivot, weighted_sum,
            not_ignored, in_range, target_weight, weight_sum, N, label_smoothing, z_loss,
        )  # fmt: skip
        if loss_ptr is None:
            store_total(loss, target_weight, total_ptr, scale_ptr, MEAN)
        else:
            tl.store(loss_ptr + offs_m, loss, mask=row_mask)
        if lse_ptr is not None:
            tl.store(lse_ptr + offs_m, row_max, mask=row_mask)
            tl.store(lse_ptr + M + offs_m, log_sum, mask=row_mask)
