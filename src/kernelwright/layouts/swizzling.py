"""Which swizzle frees a tile of bank conflicts, and the proof that no smaller one does: all of them are tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd

from kernelwright.layouts.access import WIDEST_BYTES, Accesses, BankConflicts, conflicts_of, through, vector_length
from kernelwright.layouts.errors import LayoutError
from kernelwright.layouts.layout import Layout, cosize, size
from kernelwright.layouts.swizzle import ComposedLayout, Swizzle

MOST_ELEMENTS = 2**16


@dataclass(frozen=True)
class SwizzleFound:
    """The smallest swizzle that frees every access, with what was tried on the way."""

    swizzle: Swizzle
    layout: ComposedLayout
    """The tile with the swizzle over it."""
    before: dict[str, BankConflicts]
    """Of each access without a swizzle."""
    after: dict[str, BankConflicts]
    smaller: dict[Swizzle, int]
    """Every swizzle of fewer bits that could be used, and the ways of the first conflict that remains under it."""
    broken: int
    """Further swizzles of fewer bits: they tear an access of several elements apart or lead out of the tile."""


def find_swizzle(
    tile: Layout, element_bytes: int, access: str | Layout | Mapping[str, Layout] = "ldmatrix"
) -> SwizzleFound:
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
        return _smallest(tile, element_bytes, access)
    if isinstance(access, str) and access not in READERS:
        raise LayoutError(f"no access {access!r}: {', '.join(READERS)}, or a layout (thread, value) -> index")
    reader = READERS[access](tile, element_bytes) if isinstance(access, str) else access
    width = WIDEST_BYTES
    while True:
        try:
            return _smallest(tile, element_bytes, {"write": by_row(tile, element_bytes, width), "read": reader})
        except LayoutError:
            if width <= element_bytes:
                raise
            width //= 2


def _smallest(tile: Layout, element_bytes: int, access: Mapping[str, Layout]) -> SwizzleFound:
    if not access:
        raise LayoutError("no access to the tile: nothing to look for")
    if size(tile) > MOST_ELEMENTS:
        raise LayoutError(f"a tile of {size(tile):,} elements: up to {MOST_ELEMENTS:,} are searched")
    patterns = [Pattern(through(tile, layout), element_bytes) for layout in access.values()]
    reach, tried = cosize(tile), {}
    for swizzle in candidates(reach):
        if _leaves(tile, swizzle, reach) or any(pattern.tears(swizzle) for pattern in patterns):
            tried[swizzle] = None
        elif ways := next((ways for pattern in patterns if (ways := pattern.first_conflict(swizzle)) > 1), 0):
            tried[swizzle] = ways
        else:
            less = {one: ways for one, ways in tried.items() if one.bits < swizzle.bits}
            before, after = (
                {name: pattern.conflicts(one) for name, pattern in zip(access, patterns, strict=True)}
                for one in (Swizzle(0, 0, 0), swizzle)
            )
            whole = {one: ways for one, ways in less.items() if ways is not None}
            return SwizzleFound(swizzle, ComposedLayout(swizzle, 0, tile), before, after, whole, len(less) - len(whole))
    raise LayoutError(f"no swizzle within {tile} frees every access: {len(tried)} were tried")


@dataclass(frozen=True)
class Pattern:
    """One access to a tile: the offset of every value of every thread, without a swizzle."""

    rows: list[list[int]]
    element_bytes: int

    @cached_property
    def together(self) -> int:
        """Values of a thread in one instruction."""
        return vector_length(self.rows, WIDEST_BYTES // self.element_bytes)

    def tears(self, swizzle: Swizzle) -> bool:
        """Whether the values of an instruction would no longer lie side by side."""
        return bool((swizzle.turned | swizzle.turning) & (self.together - 1))

    def addresses(self, swizzle: Swizzle) -> Iterator[tuple[int, list[int]]]:
        """As `Accesses.addresses`, turned; the first element of each instruction stands for all."""
        for first, plain in Accesses(self.rows, self.element_bytes, self.together).addresses():
            yield first, [swizzle(address // self.element_bytes) * self.element_bytes for address in plain]

    def conflicts(self, swizzle: Swizzle) -> BankConflicts:
        return conflicts_of(self.addresses(swizzle), self.element_bytes * self.together)

    def first_conflict(self, swizzle: Swizzle) -> int:
        """The ways of the first instruction that collides, 1 where none does."""
        each = (conflicts_of([one], self.element_bytes * self.together).ways for one in self.addresses(swizzle))
        return next((ways for ways in each if ways > 1), 1)


def _leaves(tile: Layout, swizzle: Swizzle, reach: int) -> bool:
    """Whether the swizzle leads out of the tile; never where its offsets end at a power of 2."""
    return bool(reach & (reach - 1)) and max(map(swizzle, tile.offsets())) >= reach


def candidates(offsets: int) -> Iterator[Swizzle]:
    """Every swizzle whose bits so many offsets have: fewer bits first, then shorter shifts, upwards first."""
    width = (offsets - 1).bit_length()
    yield Swizzle(0, 0, 0)
    for bits in range(1, width // 2 + 1):
        for distance in range(bits, width - bits + 1):
            for base in range(width - bits - distance + 1):
                yield Swizzle(bits, base, distance)
                yield Swizzle(bits, base, -distance)


def by_row(tile: Layout, element_bytes: int, width: int = WIDEST_BYTES) -> Layout:
    """Threads one after the other along the lines of a tile, `width` bytes each or as many as divide a line."""
    lines, length, line, step = _lines(tile)
    together = gcd(length, max(1, width // element_bytes))
    return Layout(((length // together, lines), together), ((step * together, line), step))


def by_matrix(tile: Layout, element_bytes: int) -> Layout:
    """As ldmatrix: thread t takes 16 bytes of line t, over all lines and then further along them.

    Raises:
        LayoutError: lines that are no multiple of 8, or not whole and aligned in 16 bytes.
    """
    lines, length, line, step = _lines(tile)
    together = WIDEST_BYTES // element_bytes
    whole = Layout(((lines, max(1, length // together)), together), ((line, step * together), step))
    if lines % 8 or length % together or vector_length(through(tile, whole), together) < together:
        raise LayoutError(f"ldmatrix cannot read {tile} in {element_bytes}-byte elements: 8 lines of 16 aligned bytes")
    return whole


def by_column(tile: Layout, element_bytes: int) -> Layout:
    """Threads one after the other across the lines, an element each, as a transposing kernel reads."""
    lines, length, line, step = _lines(tile)
    return Layout(((lines, length), 1), ((line, step), 0))


def _lines(tile: Layout) -> tuple[int, int, int, int]:
    """How many lines of contiguous elements a tile has, their length, and the steps of both in its index.

    Raises:
        LayoutError: not two modes.
    """
    if len(tile) != 2:
        raise LayoutError(f"{tile} is no tile of (rows, columns)")
    rows, columns = size(tile[0]), size(tile[1])
    down = next((shape for shape, stride in tile[0].modes() if stride == 1), 1) > 1
    return (columns, rows, rows, 1) if down else (rows, columns, 1, rows)


READERS = {"ldmatrix": by_matrix, "column": by_column}
