"""How the rows of a matrix lie on the chip: several to a program, one, or one shared out over several programs."""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
TILE_BYTES = 2**15
"""A tile of this size leaves registers enough that a multiprocessor holds several, some computing, some loading."""
SHORT_TILE_BYTES = 2**13
BYTES_PER_THREAD = 64
MOST_WARPS = 16


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
    again: bool

    def programs(self, M: int) -> int:
        return -(-M // self.rows) * self.parts


def row_layout(N: int, itemsize: int, *, operands: int = 1) -> RowLayout:
    """The layout for rows of N elements.

    Args:
        itemsize: bytes of an element as it is loaded.
        operands: tensors of that shape that a program holds at once.
    """
    most = TILE_BYTES // itemsize // operands
    columns = min(power_of_two(N), power_of_two(most))
    parts = -(-N // columns)
    rows = max(1, SHORT_TILE_BYTES // (columns * itemsize)) if parts == 1 else 1
    tile_bytes = rows * columns * itemsize * operands
    warps = min(MOST_WARPS, max(1, tile_bytes // (WARP * BYTES_PER_THREAD)))
    return RowLayout(rows, columns, parts, power_of_two(warps), again=parts > 1)


def power_of_two(least: int) -> int:
    """The smallest one that is not below."""
    return 1 << max(0, least - 1).bit_length()
