"""How the rows of a matrix lie on the chip: several to a program, one, or one shared out over several programs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

WARP_SIZE = 32
BYTES_PER_THREAD = 64
"""Of rows that a thread holds: four loads of 16 bytes under way, and registers for as many programs as hide them."""
SHORT_TILE_BYTES = 2**11
"""Rows that are shorter than what a warp holds share it; half of it where their elements come one by one."""
VECTOR_BYTES = 16
NARROW_BYTES, NARROW_WARPS = 32, 8
"""Rows of fewer bytes than a sector cost instructions, not memory: they take many threads."""
MAX_WARPS = 8
MAX_ROW_BYTES = 2**15
"""Longer rows are shared out in tiles of this size: more would not leave registers for a second program."""
SPLIT_BYTES, SPLIT_WARPS = 2**13, 4
MIN_LANES, MAX_TILES = 8, 8
"""Lanes that have a short row whose elements come one by one, and how many of these each then takes."""


@dataclass(frozen=True)
class RowLayout:
    """
    Attributes:
        block_m: of one tile; 1 where a row is shared out.
        block_n: of one tile, a power of two.
        num_splits: tiles that one row takes.
        num_warps: of the program that has the tile.
        reload: whether a tile is read again from the first cache rather than kept in registers.
    """

    block_m: int
    block_n: int
    num_splits: int
    num_warps: int
    reload: bool = False

    def num_programs(self, M: int) -> int:
        return -(-M // self.block_m) * self.num_splits


@lru_cache(maxsize=4096)
def choose_row_layout(N: int, itemsize: int, *, operands: int = 1, max_warps: int = MAX_WARPS) -> RowLayout:
    """The layout for rows of N elements.

    Args:
        itemsize: bytes of an element as it is loaded.
        operands: tensors of that shape that a program holds at once.
    """
    columns = next_power_of_2(N)
    if columns * itemsize > MAX_ROW_BYTES:
        columns = SPLIT_BYTES // itemsize
        return RowLayout(1, columns, -(-N // columns), SPLIT_WARPS, reload=True)
    short_tile_bytes = SHORT_TILE_BYTES if is_vectorizable(N, itemsize) else SHORT_TILE_BYTES // 2
    rows = max(1, short_tile_bytes // (columns * itemsize * operands))
    if columns * itemsize <= NARROW_BYTES:
        return RowLayout(rows, columns, 1, NARROW_WARPS)
    warps = max(1, rows * N * itemsize * operands // (WARP_SIZE * BYTES_PER_THREAD))
    return RowLayout(rows, columns, 1, min(max_warps * operands, 1 << (warps.bit_length() - 1)))


def is_vectorizable(N: int, itemsize: int) -> bool:
    """Whether rows that follow each other all begin where a load of several elements can."""
    return N * itemsize % VECTOR_BYTES == 0


def choose_scalar_lanes(N: int) -> int:
    """Lanes of a row whose elements come one by one: few, so that what is of a row is computed for many at once."""
    return next_power_of_2(max(MIN_LANES, -(-N // MAX_TILES)))


def split_into_tiles(layout: RowLayout, N: int, itemsize: int, block_m: int, num_warps: int) -> tuple[RowLayout, int]:
    """The layout, and how many tiles a program has beside each other: several, of so many rows, where elements come one
    by one and few lanes do for a row."""
    lanes = choose_scalar_lanes(N)
    if is_vectorizable(N, itemsize) or N * itemsize <= NARROW_BYTES or lanes >= WARP_SIZE:
        return layout, 1
    return replace(layout, block_m=block_m, block_n=lanes, num_warps=num_warps), -(-N // lanes)


def next_power_of_2(least: int) -> int:
    """The smallest one that is not below."""
    return 1 << max(0, least - 1).bit_length()
