"""Which tiles are worth a try for a region on a GPU, the likeliest first."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kernelwright.compiler.regions.region import Region, Scan
from kernelwright.compiler.triton.passes import TilePasses
from kernelwright.compiler.triton.reductions import partials_fit_32_bits
from kernelwright.compiler.triton.tile import VECTOR_BYTES, Tile, TritonConfig, contiguous_axes, is_row_contiguous
from kernelwright.core.units import DTYPE_BYTES

MAX_CONFIGS = 14
HALF_TILE_ELEMENTS, MAX_TILE_ELEMENTS = 16384, 32768
"""Elements of a tile that stays in registers: 32 of float32 for each of 1024 threads."""
MIN_PROGRAMS = 2 * 132
"""Programs that leave an H200, with 132 multiprocessors, without enough loads under way."""
LONG_ROW_ELEMENTS = 4096
"""From here on a row is worth a loop with loads under way, or two rows at a time in many warps."""
STAGES, SHARED_BYTES = 3, 200 * 2**10
"""Tiles under way wait in shared memory, of which a multiprocessor has 227 KiB for all of them."""
MIN_SPLIT_ELEMENTS, SINGLE_STEP_ELEMENTS = 1024, 8192
"""Elements of a part of a row: fewer are not worth a launch more; and of one that is a single step."""
FINE_SPLIT_ELEMENTS, MAX_FINE_SPLITS = 65536, 32768
"""Elements of a part of one row of very many, and such parts at most: 2 % faster than 1,024 parts of 2^30 elements."""
DEEP_PIPELINE_TILES = ((512, 4, 8, 4), (128, 4, 2, 4), (128, 128, 8, 1), (64, 64, 4, 1))
"""(outer, inner, warps, stages) of tiles over rows which lie beside each other, with many loads under way: four steps
of a loop, or 64 and 32 elements for each thread."""
SPLIT_COLUMN_TILES, COMBINED_COLUMN_TILES = ((64, 8, 2, 4, 1320),), ((128, 16, 8, 3, 528), (128, 8, 4, 4, 528))
"""The same over rows in parts, with how many programs in all; those of rows that are swept again are put together by a
launch of its own."""
GRID_SYNC_TILES = (
    (65536, 8192, 16, 4),
    (32768, 4096, 8, 8),
    (65536, 4096, 16, 8),
    (32768, 8192, 16, 4),
    (8192, 2048, 4, 4),
)
"""(elements of a part, about; inner; warps; held) of long rows whose parts wait for each other."""
REGISTER_TILES = ((8192, 16, 4), (4096, 8, 4), (8192, 32, 8), (4096, 8, 8))
REGISTER_TILES_HALF_ROW = ((32768, 32, 1), (16384, 32, 2))
REGISTER_TILES_WHOLE_ROW = ((2048, 8, 16), (1024, 4, 32))
"""(inner, warps, held) of long rows; of those of which half is held, by all the registers of a multiprocessor, which
has none left for what each lane keeps; and of those of more than `HALF_TILE_ELEMENTS` elements that a tile could hold:
what is held is read before the loop, which therefore needs no loads under way."""
MAX_SYNCED_SPLITS = 32
"""Parts of a row that wait for each other: with a multiprocessor for each, four streams of an H100's 132 may do so at
once. Four times as many would gain a group norm 5 % of a copy, rows of 4 million 13."""
MAX_GRID_SYNC_ELEMENTS = 2**21
"""Elements of a longer row, in so many parts, are out of the L2, of 50 MB, when they are read again."""


def generate_configs(region: Region) -> list[TritonConfig]:
    """The space of one region, at most `MAX_CONFIGS`."""
    if region.row:
        found = _row_configs(region) if is_row_contiguous(region) else _column_configs(region)
    elif len(contiguous_axes(region)) > 1:
        found = [
            _make_config(outer, inner)
            for outer, inner in ((64, 64), (32, 64), (64, 32), (32, 128), (128, 32), (32, 32))
        ]
        found.append(TritonConfig(BLOCK_M=1024, BLOCK_N=1, num_warps=4))
    else:
        found = _flat_configs(region)
    if any(isinstance(step, Scan) for step in region.steps):
        found = [choice for choice in found if choice.num_splits == 1 and not choice.register_tiles]
    return list(dict.fromkeys(found))[:MAX_CONFIGS]


def _flat_configs(region: Region) -> list[TritonConfig]:
    most = max(_next_power_of_2(region.num_rows), 1)
    sizes = ((1024, 4), (512, 4), (2048, 8), (1024, 2), (512, 1), (2048, 4), (1024, 8), (256, 2), (8192, 8))
    sizes += ((128, 1), (1024, 1))  # 2 % faster than the others where loads and stores begin anywhere
    found = [
        TritonConfig(BLOCK_M=min(size, most), BLOCK_N=1, num_warps=max(1, min(warps, min(size, most) // 128)))
        for size, warps in sizes
    ]
    return sorted(found, key=lambda choice: -(-region.num_rows // choice.BLOCK_M) < MIN_PROGRAMS)


def _row_configs(region: Region) -> list[TritonConfig]:
    """Rows along which memory lies together."""
    width = _next_power_of_2(region.row_size)
    most = _next_power_of_2(region.num_rows)
    whole = []
    if width <= MAX_TILE_ELEMENTS:
        for elements in (2048, 4096, 1024, 8192):
            outer = max(1, min(elements // width, most))
            whole.append(_make_config(outer, width))
        whole += _vary_num_warps(whole[0], (2, 0.5, 0.25)) + _vary_num_warps(whole[2], (0.5,))
        if _has_unaligned_rows(region):  # where loads are of one element, the instruction that a hint takes may count
            whole += [msgspec.structs.replace(one, evict_last=False) for one in (whole[0], whole[-1])]
    looped = [_make_config(1, inner) for inner in (2048, 4096, 1024, 8192) if inner < region.row_size]
    if region.row_size > LONG_ROW_ELEMENTS:
        looped[:0] = [
            TritonConfig(BLOCK_M=1, BLOCK_N=512, num_warps=2, num_stages=3),
            TritonConfig(BLOCK_M=2, BLOCK_N=4096, num_warps=32),
        ]
        looped.append(TritonConfig(BLOCK_M=2, BLOCK_N=1024, num_warps=16, num_stages=3))
    else:
        looped += [msgspec.structs.replace(one, num_stages=3) for one in looped[:1]]
    meeting = []
    if HALF_TILE_ELEMENTS < region.row_size <= MAX_TILE_ELEMENTS and _needs_second_pass(region):
        looped[:0] = _register_tile_configs(REGISTER_TILES_WHOLE_ROW)
    if (
        region.row_size > MAX_TILE_ELEMENTS
    ):  # few rows under way, so that what is read again is still in the L2; or many
        looped[:0] = [
            TritonConfig(BLOCK_M=1, BLOCK_N=inner, num_warps=warps, num_stages=3)
            for inner, warps in ((8192, 8), (16384, 16), (1024, 1))
        ]
        if _needs_second_pass(region):
            meeting = _grid_sync_configs(region)
            half = [] if _has_unaligned_rows(region) else _register_tile_configs(REGISTER_TILES_HALF_ROW, grouped=True)
            looped[:1] = [*half, *_register_tile_configs(REGISTER_TILES), *meeting]
    split = _split_row_configs(region)
    if region.num_rows < MIN_PROGRAMS // 2:
        return [*split[:5], *meeting, *split[5:7], *whole, *looped]
    return (
        [*whole[:5], *looped, *split[:3], *whole[5:]]
        if region.row_size > LONG_ROW_ELEMENTS
        else [*whole, *looped, *split[:3]]
    )


def _register_tile_configs(tiles: Iterable[tuple[int, int, int]], grouped: bool = False) -> list[TritonConfig]:
    return [
        TritonConfig(BLOCK_M=1, BLOCK_N=inner, num_warps=warps, register_tiles=held, vector_accumulators=grouped)
        for inner, warps, held in tiles
    ]


def _needs_second_pass(region: Region) -> bool:
    """Whether a row that no tile holds is swept more than once."""
    return (
        TilePasses(region, Tile(region, TritonConfig(BLOCK_M=1, BLOCK_N=2, num_warps=1)), single_tile=False).last_pass
        > 0
    )


def _grid_sync_configs(region: Region) -> list[TritonConfig]:
    """Rows in parts that wait for each other, unless there are too few programs or what they say is no word."""
    if not partials_fit_32_bits(region) or region.row_size > MAX_GRID_SYNC_ELEMENTS:
        return []
    pieces = [(min(round(region.row_size / size), MAX_SYNCED_SPLITS), *tile) for size, *tile in GRID_SYNC_TILES]
    return [
        TritonConfig(BLOCK_M=1, BLOCK_N=inner, num_warps=warps, num_splits=parts, grid_sync=True, register_tiles=held)
        for parts, inner, warps, held in pieces
        if parts > 1 and region.num_rows * parts >= MIN_PROGRAMS
    ]


def _split_row_configs(region: Region) -> list[TritonConfig]:
    """Rows in parts that run side by side, from two tiles a part on."""
    tiles = ((2048, 4, 3), (1024, 4, 3), (2048, 8, 1), (8192, 8, 3))
    if _has_unaligned_rows(region):
        tiles = ((1024, 8, 1), (2048, 16, 1), (1024, 4, 3))
    many = [min(_next_power_of_2(region.row_size // elements), 1024) for elements in (2048, 4096)]
    found = [
        TritonConfig(BLOCK_M=1, BLOCK_N=inner, num_warps=warps, num_stages=stages, num_splits=parts)
        for parts in dict.fromkeys([*many, *_split_counts(region, region.num_rows)])
        for inner, warps, stages in tiles
        if parts > 1 and inner * parts <= region.row_size
    ]
    single, fine = -(-region.row_size // SINGLE_STEP_ELEMENTS), region.row_size // FINE_SPLIT_ELEMENTS
    if region.num_rows == 1 and 1024 < single <= 2048:  # more parts than rows are cut into otherwise
        found.insert(3, TritonConfig(BLOCK_M=1, BLOCK_N=SINGLE_STEP_ELEMENTS, num_warps=16, num_splits=single))
    join = _needs_second_pass(region)
    if region.num_rows == 1 and fine > 1024 and (not join or partials_fit_32_bits(region)):
        found.insert(
            1,
            TritonConfig(
                BLOCK_M=1,
                BLOCK_N=SINGLE_STEP_ELEMENTS,
                num_warps=32,
                num_splits=min(fine, MAX_FINE_SPLITS),
                combine_kernel=join,
            ),
        )
    return found


def _has_unaligned_rows(region: Region) -> bool:
    """Whether rows begin where a thread can load no more than one element at once."""
    row = {axis.name for axis in region.row}
    inside = [place for place in (*region.loads, *region.stores) if row & place.strides.keys()]
    steps = [(DTYPE_BYTES[one.dtype], one.strides.get(axis.name, 0)) for one in inside for axis in region.outer]
    return any(size * stride % VECTOR_BYTES for size, stride in steps)


def _column_configs(region: Region) -> list[TritonConfig]:
    """Rows that lie beside each other: a tile is wide enough over them for whole lines of memory."""
    most, width = _next_power_of_2(region.num_rows), _next_power_of_2(region.row_size)
    outers = (most, 32) if most <= 128 else (32, 64, 128)
    whole = [
        _make_config(outer, width) for outer in outers if outer * width <= MAX_TILE_ELEMENTS // 2
    ] or _narrow_column_configs(width, most)
    looped = [_make_config(outer, inner) for outer in outers for inner in (32, 64, 16) if inner < region.row_size]
    if most > 128:
        looped[1:1] = [TritonConfig(BLOCK_M=outer, BLOCK_N=inner, num_warps=warps, num_stages=stages)
                       for outer, inner, warps, stages in DEEP_PIPELINE_TILES if inner < region.row_size]  # fmt: skip
    if region.row_size > LONG_ROW_ELEMENTS:
        looped.insert(1, TritonConfig(BLOCK_M=32, BLOCK_N=128, num_warps=2, num_stages=3))
    if -(-region.num_rows // 32) >= MIN_PROGRAMS:
        return [*whole, *looped]
    split = [
        [
            msgspec.structs.replace(one, num_splits=parts)
            for parts in _split_counts(region, -(-region.num_rows // one.BLOCK_M), one.BLOCK_M)
        ]
        for one in looped
        if region.row_size >= one.BLOCK_N * 4
    ]
    first = [parts[0] for parts in split if parts]
    spread = _split_column_configs(region)
    return [
        *first[:1],
        *spread,
        *first[1:5],
        *whole,
        *looped[:2],
        *(one for parts in split[:3] for one in parts[1:3]),
        *looped[2:],
    ]


def _split_column_configs(region: Region) -> list[TritonConfig]:
    """Columns in so many parts that there are programs enough."""
    join = _needs_second_pass(region)
    if join and not partials_fit_32_bits(region):
        return []
    tiles = [
        TritonConfig(
            BLOCK_M=outer,
            BLOCK_N=inner,
            num_warps=warps,
            num_stages=stages,
            num_splits=programs // -(-region.num_rows // outer),
            combine_kernel=join,
        )
        for outer, inner, warps, stages, programs in (COMBINED_COLUMN_TILES if join else SPLIT_COLUMN_TILES)
    ]
    return [one for one in tiles if one.num_splits > 1 and one.BLOCK_N * one.num_splits <= region.row_size]


def _narrow_column_configs(width: int, most: int) -> list[TritonConfig]:
    """A few long columns held whole, read once in short pieces of lines: 77 us of 256 x 1199 x 80 on an H100 where two
    sweeps over wider tiles take 110 to 120, and a copy 68."""
    outers = [outer for outer in (16, 32, 8) if outer <= max(most, 8) and outer * width <= 2 * MAX_TILE_ELEMENTS]
    return [TritonConfig(BLOCK_M=outer, BLOCK_N=width, num_warps=16) for outer in outers]


def _split_counts(region: Region, programs: int, outer: int = 1) -> Iterable[int]:
    """Into how many parts a row may be cut so that there are programs enough."""
    longest = region.row_size * outer // MIN_SPLIT_ELEMENTS
    wanted = (-(-MIN_PROGRAMS * times // 2 // programs) for times in (4, 2, 1, 8))
    return dict.fromkeys(_next_power_of_2(min(parts, longest, 1024)) for parts in wanted if min(parts, longest) > 1)


def _make_config(outer: int, inner: int) -> TritonConfig:
    return TritonConfig(BLOCK_M=outer, BLOCK_N=inner, num_warps=_num_warps_for(outer * inner, 32))


def _num_warps_for(elements: int, most: int) -> int:
    """Warps that leave each thread about sixteen elements, or four where there are few."""
    return max(1, min(most, _next_power_of_2(elements // 512)))


def _vary_num_warps(choice: TritonConfig, times: Iterable[float]) -> list[TritonConfig]:
    """The same with more warps or fewer."""
    counts = [int(choice.num_warps * factor) for factor in times]
    return [msgspec.structs.replace(choice, num_warps=count) for count in counts if 1 <= count <= 32]


def _next_power_of_2(number: int) -> int:
    """The power of two that is not below a number."""
    return 1 << max(number - 1, 0).bit_length()
