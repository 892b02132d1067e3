"""Chooses the configuration of a product from its shape: a model of tiles and waves, fitted to measurements.

The model is for ranking. A wave of tiles takes `fixed + k_tiles * step`; both were fitted by least squares to 18
products of 16-bit operands for each tile (1024 to 16384, K from 1024 to 16384) on an H200 at its power limit, to within
8 %, with errors that are alike for all tiles of one product. Products of at most 64 rows are read at the speed of
memory: there the tile is chosen that keeps enough loads in flight. Measured choices of `recorded.py` come first.
Not fitted: 128 x 160, interpolated, and 128 x 192 with ping-pong, scaled from its time over that of 128 x 128 in the
last rung of `gemm_hopper`.
"""

from __future__ import annotations

from dataclasses import replace

from kernelwright.kernels.matmul.configs import ELEMENT_BYTES, MAX_SHARED_BYTES, SWIZZLE_BYTES, GemmConfig, Variant
from kernelwright.kernels.matmul.recorded import find_recorded

TILES: tuple[tuple[GemmConfig, float, float], ...] = (
    (GemmConfig(128, 128, 6, 2, ping_pong=True), -1.2, 0.407),
    (GemmConfig(128, 128, 6, 2, cluster_m=2, ping_pong=True), -0.7, 0.402),
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
MIN_FIXED_US, MIN_STEP_SHARE = 1.0, 0.75
"""A product that is too short to be limited by power: its fixed time, and its share of a step's time. Set by hand for
the range where the fitted times, some of them negative, do not hold."""
MAX_VECTOR_ROWS, MAX_SKINNY_ROWS, MAX_FEW_ROWS, FEW_ROWS_MAX_COLUMNS = 16, 64, 128, 8448
"""Most rows with which rows and columns are swapped: for tiles of 8 or 16, of 64, and of 128 columns, the last up to
so many columns of the result; with more, tiles that are not swapped fill the chip."""
SPLITS, MIN_SPLIT_K_TILES, MIN_GPC_SMS = (2, 4, 8), 8, 16
"""Blocks that share the steps of K, the least steps of each in 16 bits, and the multiprocessors of the smallest GPC."""
IN_LOOP_COLUMNS, IN_LOOP_K, IN_LOOP_IS_CHOSEN = (8, 16, 32, 64, 128), 32, False
"""Tiles for few rows of FP32, the elements after which the order of K repeats, and whether these tiles are chosen: not
before they have run on a GPU; `config=` takes them."""
SPLIT_TILE = GemmConfig(128, 128, 3, 2, terms=2, promote_tiles=1)
"""FP32 as two FP16 terms. Sums are promoted after every 64 of K: no slower than after 128, and the error on positive
data is 2.1e-7 in place of 4.7e-7 at K = 4096."""
FMA_FLOPS, EMULATED_FLOPS, COPY_BYTES, EMULATED_LAUNCHES_S = 51e12, 225e12, 4e12, 3e-6
"""Rates of an H200 per second, of products in FP32 at 4096 and of a copy; the time of two more launches is a guess."""
FP8_TILES: tuple[tuple[GemmConfig, float, float], ...] = (
    (GemmConfig(128, 128, 6, 2, promote_tiles=1), 0.0, 0.424),
    (GemmConfig(128, 192, 4, 2, cluster_m=2, promote_tiles=1), 0.0, 0.607),
)
"""The same for FP8, promoted after every 128 of K: the time of a step from squares of 4096 and 8192 alone."""


def choose_config(
    m: int, n: int, k: int, batch: int, variant: Variant, num_sms: int, *, use_tables: bool = True
) -> GemmConfig:
    """The configuration for a product of (batch, m, k) and (batch, k, n): a recorded one, else that of the model."""
    recorded = find_recorded(m, n, k, batch, variant) if use_tables else None
    return _fit(recorded or _choose_tile(m, n, k, batch, variant, num_sms), variant)


def choose_emulated(m: int, n: int, k: int, batch: int, variant: Variant, num_sms: int, *, in_loop: bool) -> GemmConfig:
    """The configuration for a product of FP32 operands in two terms. Blocks share the steps of K, of more than a
    microsecond each, where tiles are few.

    Args:
        in_loop: whether the main loop can split the operand of n columns; see `can_split_in_loop`.
    """
    k_tiles, tile = -(-k * ELEMENT_BYTES[variant.a] // SWIZZLE_BYTES), SPLIT_TILE
    tiles = -(-m // tile.block_m) * -(-n // tile.block_n) * batch
    if in_loop and IN_LOOP_IS_CHOSEN:
        columns = next(one for one in IN_LOOP_COLUMNS if one >= m)
        tile = replace(SPLIT_TILE, block_n=columns, num_stages=8, swapped=True, split_in_loop=True)
        tiles = -(-n // tile.block_m)
    blocks = num_sms // MIN_GPC_SMS * MIN_GPC_SMS  # a cluster is within a GPC
    splits = [split for split in SPLITS if split * tiles <= blocks and k_tiles >= split]
    return _fit(replace(tile, split_k=max(splits, default=1)), variant)


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
    if variant.tma_store and out_n < columns:
        return False  # a stored tile is 128 bytes wide
    if variant.gated and out_n % 8:
        return False
    return not (variant.transpose_b and variant.gated) or out_n % 64 == 0


def can_split_in_loop(m: int, k: int, batch: int) -> bool:
    """Whether the main loop can split the operand of columns, contiguous along K, which saves two thirds of its traffic
    but repeats it for every tile of rows; K is a multiple of what its order repeats."""
    return batch == 1 and m <= IN_LOOP_COLUMNS[-1] and k % IN_LOOP_K == 0


def emulation_pays(m: int, n: int, k: int, batch: int, *, in_loop: bool) -> bool:
    """Whether an FP32 product takes less time as three products of FP16 terms than with FMAs.

    A model of an H200: either takes the time of its operations or of its bytes, whichever is longer. A kernel before it
    reads 4 bytes and writes 4 for each element of the operands; of the rows only if the main loop splits the columns.
    """
    flops, split = 2 * batch * m * n * k, batch * (m if in_loop and IN_LOOP_IS_CHOSEN else m + n) * k
    bytes_s = 4 * batch * (m * k + n * k + m * n) / COPY_BYTES
    emulated_s = max(flops / EMULATED_FLOPS, bytes_s) + 8 * split / COPY_BYTES + EMULATED_LAUNCHES_S
    return emulated_s < max(flops / FMA_FLOPS, bytes_s)


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
