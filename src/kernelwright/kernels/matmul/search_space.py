"""The search space of the product kernel: tiles, pipelines and splits, with the reasons why some are left out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from kernelwright.kernels.matmul.configs import MAX_SHARED_BYTES, SWIZZLE_BYTES, GemmConfig, Variant
from kernelwright.kernels.matmul.selection import TILES, permits

SKINNY_ROWS, SPLIT_ROWS, MIN_STAGES, MAX_STAGES = 256, 1024, 3, 8
"""Most rows for which rows and columns are swapped, and for which blocks share the steps of K."""
SPLITS, SPLIT_TILES = (1, 2, 4, 8), ((64, 64), (64, 128), (128, 64), (64, 256), (128, 96), (128, 128), (128, 192))
SWAPPED_COLUMNS = (8, 16, 32, 64, 128)
WIDE_TILES = tuple(
    GemmConfig(block_m, block_n, 8, 2, cluster_m, cluster_n, ping_pong=block_m < 256)
    for (block_m, block_n), (cluster_m, cluster_n) in itertools.product(
        ((128, 160), (128, 176), (128, 192), (128, 208), (192, 128), (256, 160), (256, 192)), ((2, 1), (1, 2))
    )
)
"""For many rows, with loads shared by two blocks; the model of `selection.py` does not have them."""
SHARED_ROWS, COVERING_ROWS, COVERING_COLUMNS, MAX_PING_PONG_COLUMNS = 32, 128, (64, 256), 208
"""For more rows than the first, blocks share loads of them; a tile of the second many rows, with columns in the given
range, is chosen so that the tiles fill the chip, with ping-pong where the sums of a tile fit the registers."""


class Shape(NamedTuple):
    """A product of (m, k) and (k, n) in 16 bits, on a chip with so many multiprocessors."""

    m: int
    n: int
    k: int
    num_sms: int


@dataclass(frozen=True)
class Constraint:
    """What a configuration must fulfil for a shape, and why."""

    reason: str
    holds: Callable[[GemmConfig, Variant, Shape], bool]


def _tiles(config: GemmConfig, shape: Shape) -> int:
    rows, columns = (shape.n, shape.m) if config.swapped else (shape.m, shape.n)
    return -(-rows // config.block_m) * -(-columns // config.block_n)


def _reduction_bytes(config: GemmConfig) -> int:
    inner, outer = (config.block_m, config.block_n) if config.swapped else (config.block_n, config.block_m)
    return 4 * (inner + 4) * outer


CONSTRAINTS = (
    Constraint("fewer stages do not cover the latency of loads", lambda config, _, __: config.num_stages >= MIN_STAGES),
    Constraint(
        "the blocks of all parts of K run at the same time",
        lambda config, _, shape: (
            config.split_k == 1 or _tiles(config, shape) * config.split_k <= shape.num_sms * config.min_blocks
        ),
    ),
    Constraint(
        "a part of K has at least four steps",
        lambda config, _, shape: 2 * shape.k >= 4 * SWIZZLE_BYTES * config.split_k or config.split_k == 1,
    ),
    Constraint(
        "partial sums are exchanged in the memory of the stages",
        lambda config, variant, _: (
            config.split_k == 1 or _reduction_bytes(config) <= config.num_stages * variant.stage_bytes(config)
        ),
    ),
    Constraint(
        "a tile of 128 rows is half empty",
        lambda config, _, shape: config.swapped or config.block_m <= 64 or shape.m > 64,
    ),
    Constraint("the kernel has this tile for this variant", lambda config, variant, _: permits(config, variant)),
)


def candidate_configs(shape: Shape, variant: Variant) -> list[GemmConfig]:
    """All configurations that are worth timing for a shape."""
    found: dict[GemmConfig, None] = {}
    for config in _all_configs(shape):
        oriented = variant.oriented(config)
        fitted = replace(config, num_stages=_most_stages(config, oriented))
        if all(one.holds(fitted, oriented, shape) for one in CONSTRAINTS):
            found[fitted] = None
    return list(found)


def _most_stages(config: GemmConfig, variant: Variant) -> int:
    stages = MAX_STAGES
    while stages and variant.shared_bytes(replace(config, num_stages=stages)) > MAX_SHARED_BYTES // config.min_blocks:
        stages -= 1
    return stages


def _all_configs(shape: Shape) -> Iterator[GemmConfig]:
    if shape.m <= SKINNY_ROWS:
        columns = [one for one in SWAPPED_COLUMNS if shape.m <= 2 * one and one <= 2 * max(8, shape.m)]
        for block_m, block_n, split, min_blocks in itertools.product((64, 128), columns, SPLITS, (1, 2)):
            if min_blocks == 1 or block_m * block_n <= 64 * 128:  # accumulators of two blocks fit the registers
                yield GemmConfig(block_m, block_n, 8, block_m // 64, split_k=split, swapped=True, min_blocks=min_blocks)
        for block_m, block_n, cluster_m in itertools.product((64, 128), columns, (2, 4)):
            if block_n > SHARED_ROWS:
                yield GemmConfig(block_m, block_n, 8, block_m // 64, cluster_m, swapped=True)
    if SHARED_ROWS < shape.m <= SPLIT_ROWS:
        yield from _covering_tiles(shape)
    if shape.m <= SPLIT_ROWS:
        for (block_m, block_n), split in itertools.product(SPLIT_TILES, SPLITS):
            yield GemmConfig(block_m, block_n, 8, block_m // 64, split_k=split)
    for tile, _, _ in TILES:
        yield tile
    if shape.m > SPLIT_ROWS:
        yield from WIDE_TILES


def _covering_tiles(shape: Shape) -> Iterator[GemmConfig]:
    """Tiles whose number is just below the multiprocessors, or a multiple of these."""
    tiles_m = -(-shape.m // COVERING_ROWS)
    for waves in (1, 2, 3):
        tiles_n = waves * shape.num_sms // tiles_m
        columns = 8 * -(-shape.n // (8 * tiles_n)) if tiles_n else 0
        if COVERING_COLUMNS[0] <= columns <= COVERING_COLUMNS[1]:
            yield GemmConfig(COVERING_ROWS, columns, 8, 2)
            yield GemmConfig(COVERING_ROWS, columns, 8, 2, cluster_n=2)
            if waves > 1 and columns <= MAX_PING_PONG_COLUMNS:
                yield GemmConfig(COVERING_ROWS, columns, 8, 2, ping_pong=True)
