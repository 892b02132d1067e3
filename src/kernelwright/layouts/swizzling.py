"""Which swizzle frees a tile of bank conflicts, and the proof that no smaller one does: all of them are tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd

from kernelwright.layouts.access import (
    MAX_ACCESS_BYTES,
    BankConflicts,
    VectorAccesses,
    count_conflicts,
    tile_offsets,
    vector_length,
)
from kernelwright.layouts.errors import LayoutError
from kernelwright.layouts.layout import Layout, cosize, size
from kernelwright.layouts.swizzle import ComposedLayout, Swizzle

MAX_TILE_ELEMENTS = 2**16


@dataclass(frozen=True)
class SwizzleSearchResult:
    """The smallest swizzle that frees every access, with what was tried on the way."""

    swizzle: Swizzle
    layout: ComposedLayout
    """The tile with the swizzle over it."""
    conflicts_before: dict[str, BankConflicts]
    """Of each access without a swizzle."""
    conflicts_after: dict[str, BankConflicts]
    smaller_swizzles: dict[Swizzle, int]
    """Every swizzle of fewer bits that could be used, and the ways of the first conflict that remains under it."""
    num_inapplicable: int
    """Further swizzles of fewer bits: they tear an access of several elements apart or lead out of the tile."""


def find_swizzle(
    tile: Layout, element_bytes: int, access: str | Layout | Mapping[str, Layout] = "ldmatrix"
) -> SwizzleSearchResult:
    """The smallest swizzle under which every access to a tile in shared memory is free of bank conflicts.

    Args:
        tile: (row, column) -> offset in elements.
        element_bytes: of one element.
        access: how the tile is read: "ldmatrix" (8 lines of 16 bytes at a time), "column" (a thread for each line) or
            a layout (thread, value) -> index in the tile. It is written along its lines, in the widest of 16, 8, 4 ...
            bytes a thread for which there is an answer. A mapping names all accesses, and nothing is added to it.
    Raises:
        LayoutError: no swizzle within the tile does it; the tile has more than 2^16 elements; or ldmatrix cannot read
            it: lines in eights, each at a multiple of 16 bytes and as long as one.
    Cost: all swizzles within the tile are tried, some 0.2 s for 64x64.
    """
    if element_bytes not in (1, 2, 4, 8, 16):
        raise LayoutError(f"an element of {element_bytes!r} bytes: 1, 2, 4, 8 or 16")
    if isinstance(access, Mapping):
        return _find_smallest(tile, element_bytes, access)
    if isinstance(access, str) and access not in READ_ACCESSES:
        raise LayoutError(f"no access {access!r}: {', '.join(READ_ACCESSES)}, or a layout (thread, value) -> index")
    reader = READ_ACCESSES[access](tile, element_bytes) if isinstance(access, str) else access
    width = MAX_ACCESS_BYTES
    while True:
        try:
            return _find_smallest(
                tile, element_bytes, {"write": row_access(tile, element_bytes, width), "read": reader}
            )
        except LayoutError:
            if width <= element_bytes:
                raise
            width //= 2


def _find_smallest(tile: Layout, element_bytes: int, access: Mapping[str, Layout]) -> SwizzleSearchResult:
    if not access:
        raise LayoutError("no access to the tile: nothing to look for")
    if size(tile) > MAX_TILE_ELEMENTS:
        raise LayoutError(f"a tile of {size(tile):,} elements: up to {MAX_TILE_ELEMENTS:,} are searched")
    patterns = [AccessPattern(tile_offsets(tile, layout), element_bytes) for layout in access.values()]
    reach, tried = cosize(tile), {}
    for swizzle in enumerate_swizzles(reach):
        if _leaves_tile(tile, swizzle, reach) or any(pattern.splits_access(swizzle) for pattern in patterns):
            tried[swizzle] = None
        elif ways := next((ways for pattern in patterns if (ways := pattern.first_conflict_ways(swizzle)) > 1), 0):
            tried[swizzle] = ways
        else:
            less = {one: ways for one, ways in tried.items() if one.bits < swizzle.bits}
            before, after = (
                {name: pattern.count_conflicts(one) for name, pattern in zip(access, patterns, strict=True)}
                for one in (Swizzle(0, 0, 0), swizzle)
            )
            whole = {one: ways for one, ways in less.items() if ways is not None}
            return SwizzleSearchResult(
                swizzle, ComposedLayout(swizzle, 0, tile), before, after, whole, len(less) - len(whole)
            )
    raise LayoutError(f"no swizzle within {tile} frees every access: {len(tried)} were tried")


@dataclass(frozen=True)
class AccessPattern:
    """One access to a tile: the offset of every value of every thread, without a swizzle."""

    offsets: list[list[int]]
    element_bytes: int

    @cached_property
    def values_per_access(self) -> int:
        """Values of a thread in one instruction."""
        return vector_length(self.offsets, MAX_ACCESS_BYTES // self.element_bytes)

    def splits_access(self, swizzle: Swizzle) -> bool:
        """Whether the values of an instruction would no longer lie side by side."""
        return bool((swizzle.target_mask | swizzle.source_mask) & (self.values_per_access - 1))

    def addresses(self, swizzle: Swizzle) -> Iterator[tuple[int, list[int]]]:
        """As `Accesses.addresses`, turned; the first element of each instruction stands for all."""
        for first, plain in VectorAccesses(self.offsets, self.element_bytes, self.values_per_access).addresses():
            yield first, [swizzle(address // self.element_bytes) * self.element_bytes for address in plain]

    def count_conflicts(self, swizzle: Swizzle) -> BankConflicts:
        return count_conflicts(self.addresses(swizzle), self.element_bytes * self.values_per_access)

    def first_conflict_ways(self, swizzle: Swizzle) -> int:
        """The ways of the first instruction that collides, 1 where none does."""
        each = (
            count_conflicts([one], self.element_bytes * self.values_per_access).ways for one in self.addresses(swizzle)
        )
        return next((ways for ways in each if ways > 1), 1)


def _leaves_tile(tile: Layout, swizzle: Swizzle, reach: int) -> bool:
    """Whether the swizzle leads out of the tile; never where its offsets end at a power of 2."""
    return bool(reach & (reach - 1)) and max(map(swizzle, tile.offsets())) >= reach


def enumerate_swizzles(num_offsets: int) -> Iterator[Swizzle]:
    """Every swizzle whose bits so many offsets have: fewer bits first, then shorter shifts, upwards first."""
    width = (num_offsets - 1).bit_length()
    yield Swizzle(0, 0, 0)
    for bits in range(1, width // 2 + 1):
        for distance in range(bits, width - bits + 1):
            for base in range(width - bits - distance + 1):
                yield Swizzle(bits, base, distance)
                yield Swizzle(bits, base, -distance)


def row_access(tile: Layout, element_bytes: int, access_bytes: int = MAX_ACCESS_BYTES) -> Layout:
    """Threads one after the other along the lines of a tile, `access_bytes` bytes each or as many as divide a line."""
    lines, length, line, step = _contiguous_lines(tile)
    together = gcd(length, max(1, access_bytes // element_bytes))
    return Layout(((length // together, lines), together), ((step * together, line), step))


def ldmatrix_access(tile: Layout, element_bytes: int) -> Layout:
    """As ldmatrix: thread t takes 16 bytes of line t, over all lines and then further along them.

    Raises:
        LayoutError: lines that are no multiple of 8, or not whole and aligned in 16 bytes.
    """
    lines, length, line, step = _contiguous_lines(tile)
    together = MAX_ACCESS_BYTES // element_bytes
    whole = Layout(((lines, max(1, length // together)), together), ((line, step * together), step))
    if lines % 8 or length % together or vector_length(tile_offsets(tile, whole), together) < together:
        raise LayoutError(f"ldmatrix cannot read {tile} in {element_bytes}-byte elements: 8 lines of 16 aligned bytes")
    return whole


def column_access(tile: Layout, element_bytes: int) -> Layout:
    """Threads one after the other across the lines, an element each, as a transposing kernel reads."""
    lines, length, line, step = _contiguous_lines(tile)
    return Layout(((lines, length), 1), ((line, step), 0))


def _contiguous_lines(tile: Layout) -> tuple[int, int, int, int]:
    """How many lines of contiguous elements a tile has, their length, and the steps of both in its index.

    Raises:
        LayoutError: not two modes.
    """
    if len(tile) != 2:
        raise LayoutError(f"{tile} is no tile of (rows, columns)")
    rows, columns = size(tile[0]), size(tile[1])
    down = next((shape for shape, stride in tile[0].modes() if stride == 1), 1) > 1
    return (columns, rows, rows, 1) if down else (rows, columns, 1, rows)


READ_ACCESSES = {"ldmatrix": ldmatrix_access, "column": column_access}
