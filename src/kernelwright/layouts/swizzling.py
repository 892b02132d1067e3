"""Exhaustive search for the smallest swizzle that makes the accesses to a tile free of bank conflicts."""

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
    """The smallest swizzle that makes every access conflict-free, and the smaller ones that were tried."""

    swizzle: Swizzle
    layout: ComposedLayout
    """The tile composed with the swizzle."""
    conflicts_before: dict[str, BankConflicts]
    """Bank conflicts of each access without a swizzle."""
    conflicts_after: dict[str, BankConflicts]
    """Bank conflicts of each access with the swizzle."""
    smaller_swizzles: dict[Swizzle, int]
    """Every applicable swizzle with fewer bits, and the ways of the first conflict that remains with it."""
    num_inapplicable: int
    """Swizzles with fewer bits that split a vector access or leave the tile."""


def find_swizzle(
    tile: Layout, element_bytes: int, access: str | Layout | Mapping[str, Layout] = "ldmatrix"
) -> SwizzleSearchResult:
    """The smallest swizzle with which every access to a tile in shared memory is free of bank conflicts.

    Args:
        tile: (row, column) -> offset in elements.
        element_bytes: 1, 2, 4, 8 or 16.
        access: the reads of the tile: "ldmatrix" (8 lines of 16 bytes at a time), "column" (one thread per line) or a
            layout (thread, value) -> index in the tile. Writes go along the lines, in the widest of 16, 8, 4 ... bytes
            per thread for which a swizzle exists. A mapping replaces reads and writes by its named accesses.
    Raises:
        LayoutError: no swizzle within the tile works; the tile has more than 2^16 elements; or ldmatrix cannot read it:
            the number of lines must be a multiple of 8, the lines 16-byte aligned and a multiple of 16 bytes long.
    Cost: tries all swizzles within the tile, about 0.2 s for 64x64.
    """
    if element_bytes not in (1, 2, 4, 8, 16):
        raise LayoutError(f"element size of {element_bytes!r} bytes: must be 1, 2, 4, 8 or 16")
    if isinstance(access, Mapping):
        return _find_smallest(tile, element_bytes, access)
    if isinstance(access, str) and access not in READ_ACCESSES:
        raise LayoutError(
            f"unknown access {access!r}: {', '.join(READ_ACCESSES)}, or a layout (thread, value) -> index"
        )
    read_access = READ_ACCESSES[access](tile, element_bytes) if isinstance(access, str) else access
    width = MAX_ACCESS_BYTES
    while True:
        try:
            return _find_smallest(
                tile, element_bytes, {"write": row_access(tile, element_bytes, width), "read": read_access}
            )
        except LayoutError:
            if width <= element_bytes:
                raise
            width //= 2


def _find_smallest(tile: Layout, element_bytes: int, access: Mapping[str, Layout]) -> SwizzleSearchResult:
    if not access:
        raise LayoutError("no access to the tile: the mapping is empty")
    if size(tile) > MAX_TILE_ELEMENTS:
        raise LayoutError(f"a tile of {size(tile):,} elements: the search is limited to {MAX_TILE_ELEMENTS:,}")
    patterns = [AccessPattern(tile_offsets(tile, layout), element_bytes) for layout in access.values()]
    reach, tried = cosize(tile), {}
    for swizzle in enumerate_swizzles(reach):
        if _leaves_tile(tile, swizzle, reach) or any(pattern.splits_access(swizzle) for pattern in patterns):
            tried[swizzle] = None
        elif ways := next((ways for pattern in patterns if (ways := pattern.first_conflict_ways(swizzle)) > 1), 0):
            tried[swizzle] = ways
        else:
            smaller = {one: ways for one, ways in tried.items() if one.bits < swizzle.bits}
            before, after = (
                {name: pattern.count_conflicts(one) for name, pattern in zip(access, patterns, strict=True)}
                for one in (Swizzle(0, 0, 0), swizzle)
            )
            applicable = {one: ways for one, ways in smaller.items() if ways is not None}
            return SwizzleSearchResult(
                swizzle, ComposedLayout(swizzle, 0, tile), before, after, applicable, len(smaller) - len(applicable)
            )
    raise LayoutError(f"no swizzle within {tile} makes every access conflict-free: {len(tried)} were tried")


@dataclass(frozen=True)
class AccessPattern:
    """One access to a tile: the offsets of every thread's values, without a swizzle."""

    offsets: list[list[int]]
    element_bytes: int

    @cached_property
    def values_per_access(self) -> int:
        """Values of a thread in one instruction."""
        return vector_length(self.offsets, MAX_ACCESS_BYTES // self.element_bytes)

    def splits_access(self, swizzle: Swizzle) -> bool:
        """Whether the swizzle makes the values of a vector access non-contiguous."""
        return bool((swizzle.target_mask | swizzle.source_mask) & (self.values_per_access - 1))

    def addresses(self, swizzle: Swizzle) -> Iterator[tuple[int, list[int]]]:
        """Swizzled addresses, as in `VectorAccesses.addresses`; only the first element of an access is swizzled."""
        for first, unswizzled in VectorAccesses(self.offsets, self.element_bytes, self.values_per_access).addresses():
            yield first, [swizzle(address // self.element_bytes) * self.element_bytes for address in unswizzled]

    def count_conflicts(self, swizzle: Swizzle) -> BankConflicts:
        """Bank conflicts of the access with a swizzle."""
        return count_conflicts(self.addresses(swizzle), self.element_bytes * self.values_per_access)

    def first_conflict_ways(self, swizzle: Swizzle) -> int:
        """The ways of the first instruction with a conflict, or 1."""
        each = (
            count_conflicts([one], self.element_bytes * self.values_per_access).ways for one in self.addresses(swizzle)
        )
        return next((ways for ways in each if ways > 1), 1)


def _leaves_tile(tile: Layout, swizzle: Swizzle, reach: int) -> bool:
    """Whether the swizzle maps an offset outside the tile; impossible if the cosize is a power of 2."""
    return bool(reach & (reach - 1)) and max(map(swizzle, tile.offsets())) >= reach


def enumerate_swizzles(num_offsets: int) -> Iterator[Swizzle]:
    """Every swizzle within the bits of `num_offsets` offsets: by number of bits, then by shift, positive first."""
    width = (num_offsets - 1).bit_length()
    yield Swizzle(0, 0, 0)
    for bits in range(1, width // 2 + 1):
        for distance in range(bits, width - bits + 1):
            for base in range(width - bits - distance + 1):
                yield Swizzle(bits, base, distance)
                yield Swizzle(bits, base, -distance)


def row_access(tile: Layout, element_bytes: int, access_bytes: int = MAX_ACCESS_BYTES) -> Layout:
    """Consecutive threads along the lines of a tile; each accesses up to `access_bytes` bytes, a divisor of a line."""
    lines, length, line, step = _contiguous_lines(tile)
    vector = gcd(length, max(1, access_bytes // element_bytes))
    return Layout(((length // vector, lines), vector), ((step * vector, line), step))


def ldmatrix_access(tile: Layout, element_bytes: int) -> Layout:
    """The access of ldmatrix: thread t reads 16 bytes of line t, over all lines and then along them.

    Raises:
        LayoutError: the number of lines is not a multiple of 8, or a line is not a multiple of 16 aligned bytes.
    """
    lines, length, line, step = _contiguous_lines(tile)
    vector = MAX_ACCESS_BYTES // element_bytes
    access = Layout(((lines, max(1, length // vector)), vector), ((line, step * vector), step))
    if lines % 8 or length % vector or vector_length(tile_offsets(tile, access), vector) < vector:
        raise LayoutError(
            f"ldmatrix cannot read {tile} in {element_bytes}-byte elements: it needs 8 lines of 16 aligned bytes"
        )
    return access


def column_access(tile: Layout, element_bytes: int) -> Layout:
    """Consecutive threads across the lines, one element each: the reads of a transpose kernel."""
    lines, length, line, step = _contiguous_lines(tile)
    return Layout(((lines, length), 1), ((line, step), 0))


def _contiguous_lines(tile: Layout) -> tuple[int, int, int, int]:
    """Number of contiguous lines of a tile, their length, and the steps of both in the tile's index.

    Raises:
        LayoutError: not two modes.
    """
    if len(tile) != 2:
        raise LayoutError(f"{tile} is not a tile of (rows, columns)")
    rows, columns = size(tile[0]), size(tile[1])
    column_major = next((shape for shape, stride in tile[0].modes() if stride == 1), 1) > 1
    return (columns, rows, rows, 1) if column_major else (rows, columns, 1, rows)


READ_ACCESSES = {"ldmatrix": ldmatrix_access, "column": column_access}
