"""Chooses the configuration of a product from its shape: a model of tiles and waves, fitted to measurements.

The model is for ranking. A wave of tiles takes `fixed + k_tiles * step`; both were fitted by least squares to 18
products of 16-bit operands for each tile (1024 to 16384, K from 1024 to 16384) on an H200 at its power limit, to within
8 %, with errors that are alike for all tiles of one product. Products of at most 64 rows are read at the speed of
memory: there the tile is chosen that keeps enough loads in flight. Measured choices of `recorded.py` come first.
Not fitted: 128 x 160, interpolated, and 128 x 192 with ping-pong, scaled from its time over that of 128 x 128 in the
last rung of `gemm_hopper`.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from kernelwright.kernels.matmul.configs import ELEMENT_BYTES, MAX_SHARED_BYTES, SWIZZLE_BYTES, GemmConfig, Variant
from kernelwright.kernels.matmul.recorded import find_recorded

TILES: tuple[tuple[GemmConfig, float, float], ...] = (
    (GemmConfig(128, 128, 6, 2, ping_pong=True), -1.2, 0.407),
    (GemmConfig(128, 192, 4, 2, ping_pong=True), -1.8, 0.612),
    (GemmConfig(128, 256, 4, 2), -3.0, 0.844),
    (GemmConfig(256, 128, 4, 2, cluster_m=2), -2.6, 0.838),
    (GemmConfig(128, 224, 4, 2, cluster_m=2), -2.2, 0.736),
    (GemmConfig(128, 192, 4, 2), -2.2, 0.637),
    (GemmConfig(128, 160, 5, 2), -2.2, 0.545),
    (GemmConfig(128, 112, 6, 2, ping_pong=True), -0.9, 0.364),
    (GemmConfig(128, 96, 6, 2, ping_pong=True), -1.2, 0.344),
    (GemmConfig(64, 256, 4, 2, ping_pong=True), -1.4, 0.427),
    (GemmConfig(64, 192, 5, 2, ping_pong=True), -0.6, 0.322),
    (GemmConfig(64, 128, 8, 2, ping_pong=True), -1.1, 0.262),
    (GemmConfig(128, 64, 8, 2), -1.2, 0.275),
    (GemmConfig(64, 64, 8, 1), -0.7, 0.211),
)
"""Tiles with their fixed time and the time of a step of 128 bytes along K, in us."""
MODEL_SMS = 132
MIN_FIXED_US, MIN_STEP_SHARE = 1.0, 0.75
"""A product that is too short to be limited by power: its fixed time, and its share of a step's time. Set by hand for
the range where the fitted times, some of them negative, do not hold. All times are those of MODEL_SMS
multiprocessors."""
MAX_VECTOR_ROWS, MAX_SKINNY_ROWS, MAX_FEW_ROWS, FEW_ROWS_MAX_COLUMNS = 16, 64, 128, 8448
"""Most rows with which rows and columns are swapped: for tiles of 8 or 16, of 64, and of 128 columns, the last up to
so many columns of the result; with more, tiles that are not swapped fill the chip."""
SPLITS, MIN_SPLIT_K_TILES, MIN_GPC_SMS = (2, 4, 8), 8, 16
"""Blocks that share the steps of K, the least steps of each in 16 bits, and the multiprocessors of the smallest GPC."""
IN_LOOP_COLUMNS, IN_LOOP_K = (8, 16, 32, 64, 128), 32
"""Tiles for few rows of FP32, and the elements after which the order of K repeats."""
SPLIT_TILE = GemmConfig(128, 128, 3, 2, terms=2, promote_tiles=1)
"""FP32 as two FP16 terms. Sums are promoted after every 64 of K: no slower than after 128, and the error on positive
data is 2.1e-7 in place of 4.7e-7 at K = 4096."""
EMULATED_TILES: tuple[tuple[GemmConfig, float, float], ...] = (
    (replace(SPLIT_TILE, cluster_n=2), 2.1, 1.20),
    (replace(SPLIT_TILE, block_m=64, num_stages=4, ping_pong=True), 1.0, 0.685),
    (replace(SPLIT_TILE, block_m=64, block_n=64, num_stages=6, num_consumers=1), 1.9, 0.365),
    (replace(SPLIT_TILE, block_m=64, block_n=32, num_stages=8, num_consumers=1), 0.8, 0.276),
    (replace(SPLIT_TILE, block_m=64, block_n=32, num_stages=8, num_consumers=1, split_k=2), 2.0, 0.281),
    (replace(SPLIT_TILE, block_m=64, block_n=64, num_stages=6, num_consumers=1, split_k=2), 3.4, 0.375),
    (replace(SPLIT_TILE, block_m=64, num_stages=4, num_consumers=1, split_k=8), 4.0, 0.686),
)
"""Of FP32 in two terms, with the times of a wave as above: fitted to 73 products on an H200, whose chosen tiles take
1.012 times as long as the fastest of 20."""
EMULATED_US, SPLIT_BYTES_PER_US = 4.5, 3.4e6
"""What a product of two terms takes in addition: launches, and the splitting of its operands, read and written once."""
MIN_EMULATED_K = 64
"""Below, two terms of 22 bits are less exact than FP32 FMAs: these add too few products to lose as much."""
IN_LOOP_US, IN_LOOP_BYTES_PER_US, IN_LOOP_FLOPS_PER_US = 9.0, 3.9e6, 160e6
"""The same where the main loop splits the columns."""
FMA_US, FMA_FLOPS_PER_US, FMA_BYTES_PER_US, MIN_FEW_ROWS, FEW_ROWS_BYTES_PER_US = 5.0, 40e6, 3e6, 4, 2e6
"""cuBLAS in FP32 on an H200: below 1e10 operations, and where it reads weights for a few rows."""
FP8_TILES: tuple[tuple[GemmConfig, float, float], ...] = (
    (GemmConfig(128, 128, 6, 2, promote_tiles=1), 0.0, 0.424),
    (GemmConfig(128, 128, 6, 2, cluster_m=2, promote_tiles=1), 0.0, 0.416),
)
"""The same for FP8, promoted after every 128 of K: the time of a step from squares of 4096 and 8192 alone."""


def choose_config(
    m: int, n: int, k: int, batch: int, variant: Variant, num_sms: int, *, use_tables: bool = True
) -> GemmConfig:
    """The configuration for a product of (batch, m, k) and (batch, k, n): a recorded one, else that of the model."""
    recorded = find_recorded(m, n, k, batch, variant) if use_tables else None
    return _fit(recorded or _choose_tile(m, n, k, batch, variant, num_sms), variant)


@functools.lru_cache(4096)
def choose_emulated(m: int, n: int, k: int, batch: int, variant: Variant, num_sms: int, *, in_loop: bool) -> GemmConfig:
    """The configuration for a product of FP32 operands in two terms.

    Args:
        in_loop: whether the main loop can split the operand of n columns; see `can_split_in_loop`.
    """
    if in_loop:
        chosen = _choose_in_loop(m, n, k, num_sms)
    else:
        chosen, _ = _choose_emulated_tile(m, n, k, batch, num_sms, variant)
    return _fit(chosen, variant)


def _choose_emulated_tile(
    m: int, n: int, k: int, batch: int, num_sms: int, variant: Variant | None = None
) -> tuple[GemmConfig, float]:
    """The tile, of those that the kernel has for a variant, and its predicted time in us."""
    k_tiles = -(-2 * k // SWIZZLE_BYTES)
    times = [
        (config, predict_us(config, fixed, step, m, n, -(-k_tiles // config.split_k), batch, num_sms))
        for config, fixed, step in EMULATED_TILES
        if config.split_k == 1 or (_runs_at_once(config, m, n, batch, num_sms) and k_tiles >= 2 * config.split_k)
        if variant is None or permits(config, variant.oriented(config))
    ]
    return min(times, key=lambda one: one[1])


def _runs_at_once(config: GemmConfig, m: int, n: int, batch: int, num_sms: int) -> bool:
    """Whether all blocks run at the same time; a cluster is within a GPC."""
    tiles = -(-m // config.block_m) * -(-n // config.block_n) * batch
    return tiles * config.split_k <= num_sms // MIN_GPC_SMS * MIN_GPC_SMS


def _choose_in_loop(m: int, n: int, k: int, num_sms: int) -> GemmConfig:
    """Half of the multiprocessors or more read the weights, with clusters of two blocks where that is enough: the
    fastest or within 10 % on 8 weights at 8 to 128 rows, H200."""
    columns = next(one for one in IN_LOOP_COLUMNS if one >= m)
    wide, narrow, k_tiles = -(-n // 128), -(-n // 64), -(-2 * k // SWIZZLE_BYTES)
    if 8 * wide <= num_sms:
        block_m, split = 128, max((one for one in SPLITS if 2 * one * wide <= num_sms), default=1)
    elif 2 * narrow <= num_sms:
        block_m, split = 64, 2
    else:
        block_m, split = 128, 2 if 2 * wide <= num_sms else 1
    split = max((one for one in (1, *SPLITS) if one <= min(split, k_tiles)), default=1)
    return replace(
        SPLIT_TILE, block_m=block_m, block_n=columns, num_stages=8, num_consumers=block_m // 64, swapped=True,
        split_in_loop=True, split_k=split,
    )  # fmt: skip


def _fit(config: GemmConfig, variant: Variant) -> GemmConfig:
    """With fewer stages where they exceed the shared memory."""
    oriented = variant.oriented(config)
    while oriented.shared_bytes(config) > MAX_SHARED_BYTES // config.min_blocks:
        config = replace(config, num_stages=config.num_stages - 1)
    return config


def _choose_tile(m: int, n: int, k: int, batch: int, variant: Variant, num_sms: int) -> GemmConfig:
    k_tiles = -(-k * ELEMENT_BYTES[variant.a] // SWIZZLE_BYTES)
    is_fp8 = variant.a in ("e4m3", "e5m2")
    is_swappable = batch == 1 and not is_fp8 and not variant.gated and variant.row_statistics == "kNone"
    if is_swappable and (m <= MAX_SKINNY_ROWS or (m <= MAX_FEW_ROWS and n <= FEW_ROWS_MAX_COLUMNS)):
        return _choose_skinny(m, n, k_tiles, num_sms)
    permitted = [tile for tile in (FP8_TILES if is_fp8 else TILES) if permits(tile[0], variant)]
    return min(permitted, key=lambda tile: predict_us(*tile, m, n, k_tiles, batch, num_sms, gated=variant.gated))[0]


def predict_us(
    config: GemmConfig,
    fixed_us: float,
    step_us: float,
    m: int,
    n: int,
    k_tiles: int,
    batch: int,
    num_sms: int,
    *,
    gated: bool = False,
) -> float:
    """Time of all waves of tiles."""
    out_n = config.block_n // 2 if gated else config.block_n
    tiles = -(-m // (config.block_m * config.cluster_m)) * -(-n // (out_n * config.cluster_n)) * config.cluster * batch
    waves = -(-tiles // (num_sms // config.cluster * config.cluster))
    return waves * max(fixed_us + step_us * k_tiles, MIN_FIXED_US + MIN_STEP_SHARE * step_us * k_tiles)


def permits(config: GemmConfig, variant: Variant) -> bool:
    """Whether the kernel has this tile for a variant."""
    if config.swapped:
        return True
    columns = 64 if variant.out != "f32" else 32
    out_n = variant.out_columns(config)
    if variant.block_scales and out_n != 128:
        return False
    if variant.tma_store and out_n < columns:
        return False  # a stored tile is 128 bytes wide
    if variant.gated and out_n % 8:
        return False
    return not (variant.transpose_b and variant.gated) or out_n % 64 == 0


def can_split_in_loop(m: int, k: int, batch: int) -> bool:
    """Whether the main loop can split the operand of columns, contiguous along K, which saves two thirds of its traffic
    but repeats it for every tile of rows; K is a multiple of what its order repeats."""
    return batch == 1 and m <= IN_LOOP_COLUMNS[-1] and k % IN_LOOP_K == 0


@functools.lru_cache(4096)
def emulation_pays(m: int, n: int, k: int, batch: int, *, in_loop: bool) -> bool:
    """Whether an FP32 product takes less time as three products of FP16 terms than with FMAs, by a model of an H200."""
    flops, weights = 2 * batch * m * n * k, 4 * batch * n * k
    bytes_per_us = FEW_ROWS_BYTES_PER_US if in_loop else FMA_BYTES_PER_US
    fma_us = FMA_US + max(flops / FMA_FLOPS_PER_US, 4 * batch * (m * k + n * k + m * n) / bytes_per_us)
    if in_loop:
        return (
            m >= MIN_FEW_ROWS
            and IN_LOOP_US + max(weights / IN_LOOP_BYTES_PER_US, flops / IN_LOOP_FLOPS_PER_US) < fma_us
        )
    split_us = EMULATED_US + 8 * batch * (m + n) * k / SPLIT_BYTES_PER_US
    return split_us + _choose_emulated_tile(m, n, k, batch, MODEL_SMS)[1] < fma_us


def _choose_skinny(m: int, n: int, k_tiles: int, num_sms: int) -> GemmConfig:
    """Rows of the weights are rows of the product, and the few rows of activations its columns. Best of 28 on weights
    of 50 to 940 MB, H200; where tiles fill half of the chip at most, blocks share the steps of K."""
    if m <= MAX_VECTOR_ROWS and n >= 128 * num_sms:
        return GemmConfig(128, 8 if m <= 8 else 16, 8, 2, swapped=True)
    columns = 64 if MAX_VECTOR_ROWS < m <= MAX_SKINNY_ROWS or 64 * num_sms >= n * -(-m // 64) else 128
    columns = columns if m > MAX_VECTOR_ROWS else 8 if m <= 8 else 16
    tiles = -(-n // 64) * -(-m // columns)
    splits = [split for split in SPLITS if split * tiles <= num_sms and k_tiles >= split * MIN_SPLIT_K_TILES]
    min_blocks = 2 if m <= MAX_VECTOR_ROWS else 1
    return GemmConfig(64, columns, 8, 1, split_k=max(splits, default=1), swapped=True, min_blocks=min_blocks)
