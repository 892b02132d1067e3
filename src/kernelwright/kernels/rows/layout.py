"""How the rows of a matrix lie on the chip: several to a program, one, or one shared out over several programs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

WARP = 32
THREAD_BYTES = 64
"""Of rows that a thread holds: four loads of 16 bytes under way, and registers for as many programs as hide them."""
SHORT_TILE_BYTES = 2**11
"""Rows that are shorter than what a warp holds share it; half of it where their elements come one by one."""
VECTOR_BYTES = 16
NARROW_BYTES, NARROW_WARPS = 32, 8
"""Rows of fewer bytes than a sector cost instructions, not memory: they take many threads."""
MOST_WARPS = 8
LONGEST_BYTES = 2**15
"""Longer rows are shared out in tiles of this size: more would not leave registers for a second program."""
PART_BYTES, PART_WARPS = 2**13, 4
FEWEST_LANES, MOST_TILES = 8, 8
"""Lanes that have a short row whose elements come one by one, and how many of these each then takes."""


@dataclass(frozen=True)
class RowLayout:
    """
    Attributes:
        rows: of one tile; 1 where a row is shared out.
        columns: of one tile, a power of two.
        parts: tiles that one row takes.
        warps: of the program that has the tile.
        again: whether a tile is read again from the first cache rather than kept in registers.
    """

    rows: int
    columns: int
    parts: int
    warps: int
    again: bool = False

    def programs(self, M: int) -> int:
        return -(-M // self.rows) * self.parts


@lru_cache(maxsize=4096)
def row_layout(N: int, itemsize: int, *, operands: int = 1, most_warps: int = MOST_WARPS) -> RowLayout:
    """The layout for rows of N elements.

    Args:
        itemsize: bytes of an element as it is loaded.
        operands: tensors of that shape that a program holds at once.
    """
    columns = power_of_two(N)
    if columns * itemsize > LONGEST_BYTES:
        columns = PART_BYTES // itemsize
        return RowLayout(1, columns, -(-N // columns), PART_WARPS, again=True)
    short_tile_bytes = SHORT_TILE_BYTES if in_vectors(N, itemsize) else SHORT_TILE_BYTES // 2
    rows = max(1, short_tile_bytes // (columns * itemsize * operands))
    if columns * itemsize <= NARROW_BYTES:
        return RowLayout(rows, columns, 1, NARROW_WARPS)
    warps = max(1, rows * N * itemsize * operands // (WARP * THREAD_BYTES))
    return RowLayout(rows, columns, 1, min(most_warps * operands, 1 << (warps.bit_length() - 1)))


def in_vectors(N: int, itemsize: int) -> bool:
    """Whether rows that follow each other all begin where a load of several elements can."""
    return N * itemsize % VECTOR_BYTES == 0


def lanes_one_by_one(N: int) -> int:
    """Lanes of a row whose elements come one by one: few, so that what is of a row is computed for many at once."""
    return power_of_two(max(FEWEST_LANES, -(-N // MOST_TILES)))


def in_tiles(layout: RowLayout, N: int, itemsize: int, rows: int, warps: int) -> tuple[RowLayout, int]:
    """The layout, and how many tiles a program has beside each other: several, of so many rows, where elements come one
    by one and few lanes do for a row."""
    lanes = lanes_one_by_one(N)
    if in_vectors(N, itemsize) or N * itemsize <= NARROW_BYTES or lanes >= WARP:
        return layout, 1
    return replace(layout, rows=rows, columns=lanes, warps=warps), -(-N // lanes)


def power_of_two(least: int) -> int:
    """The smallest one that is not below."""
    return 1 << max(0, least - 1).bit_length()
