"""On-chip layouts of rows: several rows per program, one, or one row split over several programs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

WARP_SIZE = 32
BYTES_PER_THREAD = 64
"""Row data held by a thread: four 16-byte loads in flight, with registers left for enough resident programs to hide
them."""
SHORT_TILE_BYTES = 2**11
"""Rows shorter than the data of one warp share it; half of this where loads are scalar."""
VECTOR_BYTES = 16
NARROW_BYTES, NARROW_WARPS = 32, 8
"""Rows of fewer bytes than a sector are bound by instructions, not memory: they use many threads."""
MAX_WARPS = 8
MAX_ROW_BYTES = 2**15
"""Longer rows are split into tiles of SPLIT_BYTES: a larger tile would leave no registers for a second program."""
SPLIT_BYTES, SPLIT_WARPS = 2**13, 4
MIN_LANES, MAX_TILES = 8, 8
"""Lanes per short row with scalar loads, and the maximum number of its elements per lane."""


@dataclass(frozen=True)
class RowLayout:
    """The tile of a program.

    Attributes:
        block_m: rows of a tile; 1 if a row is split.
        block_n: columns of a tile, a power of two.
        num_splits: tiles per row.
        num_warps: of the program that processes the tile.
        reload: whether a tile is reloaded from L1 instead of kept in registers.
    """

    block_m: int
    block_n: int
    num_splits: int
    num_warps: int
    reload: bool = False

    def num_programs(self, M: int) -> int:
        """Programs for M rows."""
        return -(-M // self.block_m) * self.num_splits


@lru_cache(maxsize=4096)
def choose_row_layout(N: int, itemsize: int, *, operands: int = 1, max_warps: int = MAX_WARPS) -> RowLayout:
    """The layout for rows of N elements.

    Args:
        itemsize: bytes of an element in memory.
        operands: tensors of that shape that a program holds together.
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
    """Whether all contiguous rows of N elements start at a 16-byte boundary."""
    return N * itemsize % VECTOR_BYTES == 0


def choose_scalar_lanes(N: int) -> int:
    """Lanes per row with scalar loads: few, so that per-row values are computed for many rows at once."""
    return next_power_of_2(max(MIN_LANES, -(-N // MAX_TILES)))


def split_into_tiles(layout: RowLayout, N: int, itemsize: int, block_m: int, num_warps: int) -> tuple[RowLayout, int]:
    """The layout and the number of tiles per program: several, of `block_m` rows each, where loads are scalar and
    few lanes suffice for a row."""
    lanes = choose_scalar_lanes(N)
    if is_vectorizable(N, itemsize) or N * itemsize <= NARROW_BYTES or lanes >= WARP_SIZE:
        return layout, 1
    return replace(layout, block_m=block_m, block_n=lanes, num_warps=num_warps), -(-N // lanes)


def next_power_of_2(least: int) -> int:
    """The smallest power of two that is not below `least`."""
    return 1 << max(0, least - 1).bit_length()
