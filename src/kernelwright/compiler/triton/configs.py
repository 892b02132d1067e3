"""Which tiles are worth a try for a region on a GPU, the likeliest first."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kernelwright.compiler.regions.region import Region, Scan
from kernelwright.compiler.triton.passes import Sweeps
from kernelwright.compiler.triton.reductions import told_in_words
from kernelwright.compiler.triton.tile import LINE_BYTES, CudaChoice, Tile, lane_axes, lanes_along_row
from kernelwright.core.units import DTYPE_BYTES

MOST = 14
HALF_TILE, WHOLE_TILE = 16384, 32768
"""Elements of a tile that stays in registers: 32 of float32 for each of 1024 threads."""
FEW_ROWS = 2 * 132
"""Programs that leave an H200, with 132 multiprocessors, without enough loads under way."""
LONG_ROW = 4096
"""From here on a row is worth a loop with loads under way, or two rows at a time in many warps."""
STAGES, SHARED_BYTES = 3, 200 * 2**10
"""Tiles under way wait in shared memory, of which a multiprocessor has 227 KiB for all of them."""
LEAST_PART, SINGLE = 1024, 8192
"""Elements of a part of a row: fewer are not worth a launch more; and of one that is a single step."""
FINE_PART, MOST_FINE = 65536, 32768
"""Elements of a part of one row of very many, and such parts at most: 2 % faster than 1,024 parts of 2^30 elements."""
DEEP = ((512, 4, 8, 4), (128, 4, 2, 4), (128, 128, 8, 1), (64, 64, 4, 1))
"""(outer, inner, warps, stages) of tiles over rows which lie beside each other, with many loads under way: four steps
of a loop, or 64 and 32 elements for each thread."""
SPREAD, JOINED = ((64, 8, 2, 4, 1320),), ((128, 16, 8, 3, 528), (128, 8, 4, 4, 528))
"""The same over rows in parts, with how many programs in all; those of rows that are swept again are put together by a
launch of its own."""
MEETING = ((65536, 8192, 16, 4), (32768, 4096, 8, 8), (65536, 4096, 16, 8), (32768, 8192, 16, 4), (8192, 2048, 4, 4))
"""(elements of a part, about; inner; warps; held) of long rows whose parts wait for each other."""
HELD = ((8192, 16, 4), (4096, 8, 4), (8192, 32, 8), (4096, 8, 8))
HELD_HALF = ((32768, 32, 1), (16384, 32, 2))
HELD_WHOLE = ((2048, 8, 16), (1024, 4, 32))
"""(inner, warps, held) of long rows; of those of which half is held, by all the registers of a multiprocessor, which
has none left for what each lane keeps; and of those of more than `HALF_TILE` elements that a tile could hold: what is
held is read before the loop, which therefore needs no loads under way."""
MOST_TOGETHER = 32
"""Parts of a row that wait for each other: with a multiprocessor for each, four streams of an H100's 132 may do so at
once. Four times as many would gain a group norm 5 % of a copy, rows of 4 million 13."""
MOST_MET = 2**21
"""Elements of a longer row, in so many parts, are out of the L2, of 50 MB, when they are read again."""


def choices(region: Region) -> list[CudaChoice]:
    """The space of one region, at most `MOST`."""
    if region.row:
        found = _rows(region) if lanes_along_row(region) else _columns(region)
    elif len(lane_axes(region)) > 1:
        found = [_tile(outer, inner) for outer, inner in ((64, 64), (32, 64), (64, 32), (32, 128), (128, 32), (32, 32))]
        found.append(CudaChoice(outer=1024, inner=1, warps=4))
    else:
        found = _flat(region)
    if any(isinstance(step, Scan) for step in region.steps):
        found = [choice for choice in found if choice.parts == 1 and not choice.held]
    return list(dict.fromkeys(found))[:MOST]


def _flat(region: Region) -> list[CudaChoice]:
    most = max(_power(region.rows), 1)
    sizes = ((1024, 4), (512, 4), (2048, 8), (1024, 2), (512, 1), (2048, 4), (1024, 8), (256, 2), (8192, 8))
    sizes += ((128, 1), (1024, 1))  # 2 % faster than the others where loads and stores begin anywhere
    found = [
        CudaChoice(outer=min(size, most), inner=1, warps=max(1, min(warps, min(size, most) // 128)))
        for size, warps in sizes
    ]
    return sorted(found, key=lambda choice: -(-region.rows // choice.outer) < FEW_ROWS)


def _rows(region: Region) -> list[CudaChoice]:
    """Rows along which memory lies together."""
    width = _power(region.row_size)
    most = _power(region.rows)
    whole = []
    if width <= WHOLE_TILE:
        for elements in (2048, 4096, 1024, 8192):
            outer = max(1, min(elements // width, most))
            whole.append(_tile(outer, width))
        whole += _with_warps(whole[0], (2, 0.5, 0.25)) + _with_warps(whole[2], (0.5,))
        if _begins_anywhere(region):  # where loads are of one element, the instruction that a hint takes may count
            whole += [msgspec.structs.replace(one, keep=False) for one in (whole[0], whole[-1])]
    looped = [_tile(1, inner) for inner in (2048, 4096, 1024, 8192) if inner < region.row_size]
    if region.row_size > LONG_ROW:
        looped[:0] = [CudaChoice(outer=1, inner=512, warps=2, stages=3), CudaChoice(outer=2, inner=4096, warps=32)]
        looped.append(CudaChoice(outer=2, inner=1024, warps=16, stages=3))
    else:
        looped += [msgspec.structs.replace(one, stages=3) for one in looped[:1]]
    meeting = []
    if HALF_TILE < region.row_size <= WHOLE_TILE and _swept_again(region):
        looped[:0] = _held(HELD_WHOLE)
    if region.row_size > WHOLE_TILE:  # few rows under way, so that what is read again is still in the L2; or many
        looped[:0] = [
            CudaChoice(outer=1, inner=inner, warps=warps, stages=3)
            for inner, warps in ((8192, 8), (16384, 16), (1024, 1))
        ]
        if _swept_again(region):
            meeting = _meeting(region)
            half = [] if _begins_anywhere(region) else _held(HELD_HALF, grouped=True)
            looped[:1] = [*half, *_held(HELD), *meeting]
    split = _split_rows(region)
    if region.rows < FEW_ROWS // 2:
        return [*split[:5], *meeting, *split[5:7], *whole, *looped]
    return (
        [*whole[:5], *looped, *split[:3], *whole[5:]] if region.row_size > LONG_ROW else [*whole, *looped, *split[:3]]
    )


def _held(tiles: Iterable[tuple[int, int, int]], grouped: bool = False) -> list[CudaChoice]:
    return [CudaChoice(outer=1, inner=inner, warps=warps, held=held, grouped=grouped) for inner, warps, held in tiles]


def _swept_again(region: Region) -> bool:
    """Whether a row that no tile holds is swept more than once."""
    return Sweeps(region, Tile(region, CudaChoice(outer=1, inner=2, warps=1)), whole=False).last > 0


def _meeting(region: Region) -> list[CudaChoice]:
    """Rows in parts that wait for each other, unless there are too few programs or what they say is no word."""
    if not told_in_words(region) or region.row_size > MOST_MET:
        return []
    pieces = [(min(round(region.row_size / size), MOST_TOGETHER), *tile) for size, *tile in MEETING]
    return [
        CudaChoice(outer=1, inner=inner, warps=warps, parts=parts, meet=True, held=held)
        for parts, inner, warps, held in pieces
        if parts > 1 and region.rows * parts >= FEW_ROWS
    ]


def _split_rows(region: Region) -> list[CudaChoice]:
    """Rows in parts that run side by side, from two tiles a part on."""
    tiles = ((2048, 4, 3), (1024, 4, 3), (2048, 8, 1), (8192, 8, 3))
    if _begins_anywhere(region):
        tiles = ((1024, 8, 1), (2048, 16, 1), (1024, 4, 3))
    many = [min(_power(region.row_size // elements), 1024) for elements in (2048, 4096)]
    found = [
        CudaChoice(outer=1, inner=inner, warps=warps, stages=stages, parts=parts)
        for parts in dict.fromkeys([*many, *_parts(region, region.rows)])
        for inner, warps, stages in tiles
        if parts > 1 and inner * parts <= region.row_size
    ]
    single, fine = -(-region.row_size // SINGLE), region.row_size // FINE_PART
    if region.rows == 1 and 1024 < single <= 2048:  # more parts than rows are cut into otherwise
        found.insert(3, CudaChoice(outer=1, inner=SINGLE, warps=16, parts=single))
    join = _swept_again(region)
    if region.rows == 1 and fine > 1024 and (not join or told_in_words(region)):
        found.insert(1, CudaChoice(outer=1, inner=SINGLE, warps=32, parts=min(fine, MOST_FINE), join=join))
    return found


def _begins_anywhere(region: Region) -> bool:
    """Whether rows begin where a thread can load no more than one element at once."""
    row = {axis.name for axis in region.row}
    inside = [place for place in (*region.loads, *region.stores) if row & place.strides.keys()]
    steps = [(DTYPE_BYTES[one.dtype], one.strides.get(axis.name, 0)) for one in inside for axis in region.outer]
    return any(size * stride % LINE_BYTES for size, stride in steps)


def _columns(region: Region) -> list[CudaChoice]:
    """Rows that lie beside each other: a tile is wide enough over them for whole lines of memory."""
    most, width = _power(region.rows), _power(region.row_size)
    outers = (most, 32) if most <= 128 else (32, 64, 128)
    whole = [_tile(outer, width) for outer in outers if outer * width <= WHOLE_TILE // 2] or _narrow(width, most)
    looped = [_tile(outer, inner) for outer in outers for inner in (32, 64, 16) if inner < region.row_size]
    if most > 128:
        looped[1:1] = [CudaChoice(outer=outer, inner=inner, warps=warps, stages=stages)
                       for outer, inner, warps, stages in DEEP if inner < region.row_size]  # fmt: skip
    if region.row_size > LONG_ROW:
        looped.insert(1, CudaChoice(outer=32, inner=128, warps=2, stages=3))
    if -(-region.rows // 32) >= FEW_ROWS:
        return [*whole, *looped]
    split = [
        [msgspec.structs.replace(one, parts=parts) for parts in _parts(region, -(-region.rows // one.outer), one.outer)]
        for one in looped
        if one.inner * 4 <= region.row_size
    ]
    first = [parts[0] for parts in split if parts]
    spread = _spread(region)
    return [
        *first[:1],
        *spread,
        *first[1:5],
        *whole,
        *looped[:2],
        *(one for parts in split[:3] for one in parts[1:3]),
        *looped[2:],
    ]


def _spread(region: Region) -> list[CudaChoice]:
    """Columns in so many parts that there are programs enough."""
    join = _swept_again(region)
    if join and not told_in_words(region):
        return []
    tiles = [
        CudaChoice(
            outer=outer, inner=inner, warps=warps, stages=stages, parts=programs // -(-region.rows // outer), join=join
        )
        for outer, inner, warps, stages, programs in (JOINED if join else SPREAD)
    ]
    return [one for one in tiles if one.parts > 1 and one.inner * one.parts <= region.row_size]


def _narrow(width: int, most: int) -> list[CudaChoice]:
    """A few long columns held whole, read once in short pieces of lines: 77 us of 256 x 1199 x 80 on an H100 where two
    sweeps over wider tiles take 110 to 120, and a copy 68."""
    outers = [outer for outer in (16, 32, 8) if outer <= max(most, 8) and outer * width <= 2 * WHOLE_TILE]
    return [CudaChoice(outer=outer, inner=width, warps=16) for outer in outers]


def _parts(region: Region, programs: int, outer: int = 1) -> Iterable[int]:
    """Into how many parts a row may be cut so that there are programs enough."""
    longest = region.row_size * outer // LEAST_PART
    wanted = (-(-FEW_ROWS * times // 2 // programs) for times in (4, 2, 1, 8))
    return dict.fromkeys(_power(min(parts, longest, 1024)) for parts in wanted if min(parts, longest) > 1)


def _tile(outer: int, inner: int) -> CudaChoice:
    return CudaChoice(outer=outer, inner=inner, warps=_within(outer * inner, 32))


def _within(elements: int, most: int) -> int:
    """Warps that leave each thread about sixteen elements, or four where there are few."""
    return max(1, min(most, _power(elements // 512)))


def _with_warps(choice: CudaChoice, times: Iterable[float]) -> list[CudaChoice]:
    """The same with more warps or fewer."""
    counts = [int(choice.warps * factor) for factor in times]
    return [msgspec.structs.replace(choice, warps=count) for count in counts if 1 <= count <= 32]


def _power(number: int) -> int:
    """The power of two that is not below a number."""
    return 1 << max(number - 1, 0).bit_length()
