"""The search space of a region on a GPU, most promising configs first."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import msgspec

from kernelwright.compiler.regions.region import Region, Scan
from kernelwright.compiler.triton.passes import TilePasses
from kernelwright.compiler.triton.reduction_grouping import partials_fit_32_bits
from kernelwright.compiler.triton.target import Target, current_target
from kernelwright.compiler.triton.tile import (
    VECTOR_BYTES,
    Tile,
    TritonConfig,
    contiguous_axes,
    flat_inner_axes,
    is_row_contiguous,
    is_weight,
    is_weighted,
)
from kernelwright.core.units import DTYPE_BYTES

MAX_CONFIGS = 14
LONG_ROW_ELEMENTS = 4096
"""From this length on, a row is worth a pipelined loop, or two rows per tile in many warps."""
MIN_SPLIT_ELEMENTS, SINGLE_STEP_ELEMENTS = 1024, 8192
"""Elements of a split: fewer are not worth another launch; and of a split that is a single tile."""
FINE_SPLIT_ELEMENTS, MAX_FINE_SPLITS = 65536, 32768
"""Elements of a split of one very long row, and the maximum number of such splits: 2 % faster than 1,024 splits of
2^30 elements."""
DEEP_PIPELINE_TILES = ((512, 4, 8, 4), (128, 4, 2, 4), (128, 128, 8, 1), (64, 64, 4, 1))
"""(BLOCK_M, BLOCK_N, warps, stages) for rows that are adjacent in memory, with many loads in flight: four loop
iterations, or 64 and 32 elements per thread."""
SPLIT_COLUMN_TILES, COMBINED_COLUMN_TILES = ((64, 8, 2, 4, 10),), ((128, 16, 8, 3, 4), (128, 8, 4, 4, 4))
"""(BLOCK_M, BLOCK_N, warps, stages, programs for each multiprocessor) for split rows that are adjacent in memory; rows
that need several passes are combined by a separate kernel."""
GRID_SYNC_TILES = (
    (65536, 8192, 16, 4),
    (32768, 4096, 8, 8),
    (65536, 4096, 16, 8),
    (32768, 8192, 16, 4),
    (8192, 2048, 4, 4),
)
"""(approximate elements of a split, BLOCK_N, warps, register tiles) for long rows with grid sync."""
REGISTER_TILES = ((8192, 16, 4), (4096, 8, 4), (8192, 32, 8), (4096, 8, 8))
REGISTER_TILES_HALF_ROW = ((32768, 32, 1), (16384, 32, 2))
REGISTER_TILES_WHOLE_ROW = ((2048, 8, 16), (1024, 4, 32))
"""(BLOCK_N, warps, register tiles) for long rows; for rows of which half is register-resident, in all registers of a
multiprocessor, which leaves none for accumulators per lane; and for rows that only the largest tile could hold.
Register tiles are loaded before the loop, which therefore needs no loads in flight."""
SHARED_ROW_TILES = ((4, 64), (2, 32), (8, 64), (4, 32))
"""(BLOCK_M, elements per thread) of tiles of whole rows that are multiplied by the same row, as in a product with one
row of activations: several rows in few warps read the shared one, which is as long, once, with 4 or 8 loads of 16 bytes
in flight for each thread."""

WEIGHTED_PLANE_TILES = ((512, 4), (1024, 8), (1024, 4), (256, 2), (256, 8), (2048, 8), (512, 16), (2048, 16))
"""(elements, warps) of tiles of a depthwise convolution: with four elements for each thread half of the instructions
per element that one takes (70 of 144 for 3 x 3 taps), with one all loads of adjacent threads are adjacent."""
WEIGHTED_ROW_TILES = ((2048, 8), (1024, 8), (2048, 4), (4096, 8))
"""The same of channels-last images, of which each thread reads vectors of channels."""
MAX_THREAD_LOADS, MAX_TILE_LOADS = 200, 51200
"""Loads of windows for each thread, and for each tile without rows: the compiler issues all before the first sum. With
5 x 5 taps 8 elements take 178 registers, 16 elements some of the local memory."""


def generate_configs(region: Region, target: Target | None = None) -> list[TritonConfig]:
    """The configs of a region, at most `MAX_CONFIGS`; by default for the GPU that is here."""
    target = target or current_target()
    if is_weighted(region):
        configs = [*_weighted_configs(region), *_flat_configs(region, target)[:3]]
    elif region.row:
        configs = _row_configs(region, target) if is_row_contiguous(region) else _column_configs(region, target)
    elif len(contiguous_axes(region)) > 1:
        configs = [
            _make_config(block_m, block_n)
            for block_m, block_n in ((64, 64), (32, 64), (64, 32), (32, 128), (128, 32), (32, 32))
        ]
        configs.append(TritonConfig(BLOCK_M=1024, BLOCK_N=1, num_warps=4))
    else:
        configs = _flat_configs(region, target)
    if any(isinstance(step, Scan) for step in region.steps):
        configs = [config for config in configs if config.num_splits == 1 and not config.register_tiles]
    if any(map(is_weight, region.loads)):
        configs = _limit_loads(region, configs)
    return list(dict.fromkeys(configs))[:MAX_CONFIGS]


def _weighted_configs(region: Region) -> list[TritonConfig]:
    """Configs of a depthwise convolution: rows of a tile have one weight for each tap, or the weights of many channels
    are loaded for several pixels."""
    inner = flat_inner_axes(region)
    size_n = prod(axis.size for axis in inner)
    is_channels_last = any(axis.name in load.axes for axis in inner for load in region.loads if is_weight(load))
    widths = (64, 128, 32) if is_channels_last else (2048,)
    tiles = WEIGHTED_ROW_TILES if is_channels_last else WEIGHTED_PLANE_TILES
    configs = []
    for width in widths:
        for size, warps in tiles:
            block_n = min(_next_power_of_2(size_n), width, size)
            block_m = max(1, min(size // block_n, _next_power_of_2(region.num_rows // size_n)))
            configs.append(TritonConfig(BLOCK_M=block_m, BLOCK_N=block_n, num_warps=warps))
    return configs


def _limit_loads(region: Region, configs: Iterable[TritonConfig]) -> list[TritonConfig]:
    """The configs that keep the windows of a depthwise convolution in registers, with as many warps as that takes."""
    taps, limited = sum(map(is_weight, region.loads)), []
    for config in configs:
        loads = config.BLOCK_M * config.BLOCK_N * taps
        warps = max(config.num_warps, _next_power_of_2(-(-loads // (32 * MAX_THREAD_LOADS))))
        if warps <= 32 and (region.row or loads <= MAX_TILE_LOADS):
            limited.append(msgspec.structs.replace(config, num_warps=warps))
    return limited


def _flat_configs(region: Region, target: Target) -> list[TritonConfig]:
    max_size = max(_next_power_of_2(region.num_rows), 1)
    sizes = ((1024, 4), (512, 4), (2048, 8), (1024, 2), (512, 1), (2048, 4), (1024, 8), (256, 2), (8192, 8))
    sizes += ((128, 1), (1024, 1))  # 2 % faster than the others where loads and stores are unaligned
    configs = [
        TritonConfig(BLOCK_M=min(size, max_size), BLOCK_N=1, num_warps=max(1, min(warps, min(size, max_size) // 128)))
        for size, warps in sizes
    ]
    return sorted(configs, key=lambda config: -(-region.num_rows // config.BLOCK_M) < target.min_programs)


def _row_configs(region: Region, target: Target) -> list[TritonConfig]:
    """Configs for rows along which memory is contiguous."""
    width = _next_power_of_2(region.row_size)
    max_rows = _next_power_of_2(region.num_rows)
    single_tile = []
    if width <= target.max_tile_elements:
        for elements in (2048, 4096, 1024, 8192):
            single_tile.append(_make_config(max(1, min(elements // width, max_rows)), width))
        single_tile += _vary_num_warps(single_tile[0], (2, 0.5, 0.25)) + _vary_num_warps(single_tile[2], (0.5,))
        single_tile[3:3] = _shared_row_configs(region, width, target)
        if _has_unaligned_rows(region):  # where loads are by element, the instruction of an eviction hint may count
            single_tile += [
                msgspec.structs.replace(config, evict_last=False) for config in (single_tile[0], single_tile[-1])
            ]
    looped = [_make_config(1, block_n) for block_n in (2048, 4096, 1024, 8192) if block_n < region.row_size]
    if region.row_size > LONG_ROW_ELEMENTS:
        looped[:0] = [
            TritonConfig(BLOCK_M=1, BLOCK_N=512, num_warps=2, num_stages=3),
            TritonConfig(BLOCK_M=2, BLOCK_N=4096, num_warps=32),
        ]
        looped.append(TritonConfig(BLOCK_M=2, BLOCK_N=1024, num_warps=16, num_stages=3))
    else:
        looped += [msgspec.structs.replace(config, num_stages=3) for config in looped[:1]]
    grid_sync = []
    if target.max_tile_elements // 2 < region.row_size <= target.max_tile_elements and _needs_second_pass(region):
        looped[:0] = _register_tile_configs(REGISTER_TILES_WHOLE_ROW)
    if region.row_size > target.max_tile_elements:
        # few rows in flight, so that what is reloaded is still in the L2; or many
        looped[:0] = [
            TritonConfig(BLOCK_M=1, BLOCK_N=block_n, num_warps=warps, num_stages=3)
            for block_n, warps in ((8192, 8), (16384, 16), (1024, 1))
        ]
        if _needs_second_pass(region):
            grid_sync = _grid_sync_configs(region, target)
            half_row = []
            if not _has_unaligned_rows(region):
                half_row = _register_tile_configs(REGISTER_TILES_HALF_ROW, vector_accumulators=True)
            looped[:1] = [*half_row, *_register_tile_configs(REGISTER_TILES), *grid_sync]
    split = _split_row_configs(region, target)
    if region.num_rows < target.multiprocessors:
        return [*split[:5], *grid_sync, *split[5:7], *single_tile, *looped]
    if region.row_size > LONG_ROW_ELEMENTS:
        return [*single_tile[:5], *looped, *split[:3], *single_tile[5:]]
    return [*single_tile, *looped, *split[:3]]


def _shared_row_configs(region: Region, width: int, target: Target) -> list[TritonConfig]:
    """Configs for many rows that read the same row; none where the rows share nothing, or too few programs are left."""
    row = {axis.name for axis in region.row}
    touched = [{axis for axis, stride in load.strides.items() if stride} for load in region.loads]
    if not any(axes and axes <= row for axes in touched) or not any(axes & row and axes - row for axes in touched):
        return []
    return [
        TritonConfig(BLOCK_M=block_m, BLOCK_N=width, num_warps=block_m * width // (32 * elements))
        for block_m, elements in SHARED_ROW_TILES
        if region.num_rows >= block_m * target.min_programs and 1 <= block_m * width // (32 * elements) <= 16
    ]


def _register_tile_configs(
    tiles: Iterable[tuple[int, int, int]], vector_accumulators: bool = False
) -> list[TritonConfig]:
    return [
        TritonConfig(
            BLOCK_M=1,
            BLOCK_N=block_n,
            num_warps=warps,
            register_tiles=register_tiles,
            vector_accumulators=vector_accumulators,
        )
        for block_n, warps, register_tiles in tiles
    ]


def _needs_second_pass(region: Region) -> bool:
    """Whether a row that does not fit a tile needs more than one pass."""
    tile = Tile(region, TritonConfig(BLOCK_M=1, BLOCK_N=2, num_warps=1))
    return TilePasses(region, tile, single_tile=False).last_pass > 0


def _grid_sync_configs(region: Region, target: Target) -> list[TritonConfig]:
    """Configs with grid sync; none where there are too few programs or the partial results do not fit 32 bits."""
    if not partials_fit_32_bits(region) or region.row_size > target.max_grid_sync_elements:
        return []
    tiles = [(min(round(region.row_size / size), target.max_synced_splits), *tile) for size, *tile in GRID_SYNC_TILES]
    return [
        TritonConfig(
            BLOCK_M=1,
            BLOCK_N=block_n,
            num_warps=warps,
            num_splits=num_splits,
            grid_sync=True,
            register_tiles=register_tiles,
        )
        for num_splits, block_n, warps, register_tiles in tiles
        if num_splits > 1 and region.num_rows * num_splits >= target.min_programs
    ]


def _split_row_configs(region: Region, target: Target) -> list[TritonConfig]:
    """Configs that split rows over programs, with at least two tiles per split."""
    tiles = ((2048, 4, 3), (1024, 4, 3), (2048, 8, 1), (8192, 8, 3))
    if _has_unaligned_rows(region):
        tiles = ((1024, 8, 1), (2048, 16, 1), (1024, 4, 3))
    many = [min(_next_power_of_2(region.row_size // elements), 1024) for elements in (2048, 4096)]
    configs = [
        TritonConfig(BLOCK_M=1, BLOCK_N=block_n, num_warps=warps, num_stages=stages, num_splits=num_splits)
        for num_splits in dict.fromkeys([*many, *_split_counts(region, region.num_rows, target)])
        for block_n, warps, stages in tiles
        if num_splits > 1 and block_n * num_splits <= region.row_size
    ]
    single_step_splits = -(-region.row_size // SINGLE_STEP_ELEMENTS)
    fine_splits = region.row_size // FINE_SPLIT_ELEMENTS
    if region.num_rows == 1 and 1024 < single_step_splits <= 2048:  # beyond the 1,024 splits of the configs above
        configs.insert(
            3, TritonConfig(BLOCK_M=1, BLOCK_N=SINGLE_STEP_ELEMENTS, num_warps=16, num_splits=single_step_splits)
        )
    needs_combine = _needs_second_pass(region)
    if region.num_rows == 1 and fine_splits > 1024 and (not needs_combine or partials_fit_32_bits(region)):
        configs.insert(
            1,
            TritonConfig(
                BLOCK_M=1,
                BLOCK_N=SINGLE_STEP_ELEMENTS,
                num_warps=32,
                num_splits=min(fine_splits, MAX_FINE_SPLITS),
                combine_kernel=needs_combine,
            ),
        )
    return configs


def _has_unaligned_rows(region: Region) -> bool:
    """Whether rows start where a thread can only load one element at once."""
    row = {axis.name for axis in region.row}
    accesses = [access for access in (*region.loads, *region.stores) if row & access.strides.keys()]
    strides = [(DTYPE_BYTES[one.dtype], one.strides.get(axis.name, 0)) for one in accesses for axis in region.outer]
    return any(size * stride % VECTOR_BYTES for size, stride in strides)


def _column_configs(region: Region, target: Target) -> list[TritonConfig]:
    """Configs for rows that are adjacent in memory: a tile covers enough of them for whole cache lines."""
    max_rows, width = _next_power_of_2(region.num_rows), _next_power_of_2(region.row_size)
    block_ms = (max_rows, 32) if max_rows <= 128 else (32, 64, 128)
    single_tile = [
        _make_config(block_m, width) for block_m in block_ms if block_m * width <= target.max_tile_elements // 2
    ] or _narrow_column_configs(width, max_rows, target)
    looped = [
        _make_config(block_m, block_n) for block_m in block_ms for block_n in (32, 64, 16) if block_n < region.row_size
    ]
    if max_rows > 128:
        looped[1:1] = [
            TritonConfig(BLOCK_M=block_m, BLOCK_N=block_n, num_warps=warps, num_stages=stages)
            for block_m, block_n, warps, stages in DEEP_PIPELINE_TILES
            if block_n < region.row_size
        ]
    if region.row_size > LONG_ROW_ELEMENTS:
        looped.insert(1, TritonConfig(BLOCK_M=32, BLOCK_N=128, num_warps=2, num_stages=3))
    if -(-region.num_rows // 32) >= target.min_programs:
        return [*single_tile, *looped]
    split = [
        [
            msgspec.structs.replace(config, num_splits=num_splits)
            for num_splits in _split_counts(region, -(-region.num_rows // config.BLOCK_M), target, config.BLOCK_M)
        ]
        for config in looped
        if region.row_size >= config.BLOCK_N * 4
    ]
    first = [configs[0] for configs in split if configs]
    return [
        *first[:1],
        *_split_column_configs(region, target),
        *first[1:5],
        *single_tile,
        *looped[:2],
        *(config for configs in split[:3] for config in configs[1:3]),
        *looped[2:],
    ]


def _split_column_configs(region: Region, target: Target) -> list[TritonConfig]:
    """Configs that split columns so that there are enough programs."""
    needs_combine = _needs_second_pass(region)
    if needs_combine and not partials_fit_32_bits(region):
        return []
    configs = [
        TritonConfig(
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            num_warps=warps,
            num_stages=stages,
            num_splits=programs * target.multiprocessors // -(-region.num_rows // block_m),
            combine_kernel=needs_combine,
        )
        for block_m, block_n, warps, stages, programs in (
            COMBINED_COLUMN_TILES if needs_combine else SPLIT_COLUMN_TILES
        )
    ]
    return [one for one in configs if one.num_splits > 1 and one.BLOCK_N * one.num_splits <= region.row_size]


def _narrow_column_configs(width: int, max_rows: int, target: Target) -> list[TritonConfig]:
    """Single tiles of a few long columns, which read short pieces of cache lines once: 77 us for 256 x 1199 x 80 on an
    H100, where two passes over wider tiles take 110 to 120 us and a copy 68 us."""
    block_ms = [size for size in (16, 32, 8) if size <= max(max_rows, 8) and size * width <= target.registers]
    return [TritonConfig(BLOCK_M=block_m, BLOCK_N=width, num_warps=16) for block_m in block_ms]


def _split_counts(region: Region, num_programs: int, target: Target, block_m: int = 1) -> Iterable[int]:
    """Numbers of splits of a row that give enough programs; `num_programs` without splits."""
    max_splits = region.row_size * block_m // MIN_SPLIT_ELEMENTS
    wanted = (-(-target.multiprocessors * times // num_programs) for times in (4, 2, 1, 8))
    return dict.fromkeys(
        _next_power_of_2(min(splits, max_splits, 1024)) for splits in wanted if min(splits, max_splits) > 1
    )


def _make_config(block_m: int, block_n: int) -> TritonConfig:
    return TritonConfig(BLOCK_M=block_m, BLOCK_N=block_n, num_warps=_num_warps_for(block_m * block_n, 32))


def _num_warps_for(elements: int, max_warps: int) -> int:
    """The warps that leave each thread about sixteen elements, at least one."""
    return max(1, min(max_warps, _next_power_of_2(elements // 512)))


def _vary_num_warps(config: TritonConfig, factors: Iterable[float]) -> list[TritonConfig]:
    """The config with other numbers of warps, from 1 to 32."""
    counts = [int(config.num_warps * factor) for factor in factors]
    return [msgspec.structs.replace(config, num_warps=count) for count in counts if 1 <= count <= 32]


def _next_power_of_2(number: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << max(number - 1, 0).bit_length()
