"""Which swizzle frees a tile of bank conflicts, and the proof that no smaller one does: all of them are tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernelwright.layouts.access import WIDEST_BYTES, Accesses, BankConflicts, conflicts_of, through, vector_length
from kernelwright.layouts.errors import LayoutError
from kernelwright.layouts.layout import Layout, cosize, size
from kernelwright.layouts.swizzle import ComposedLayout, Swizzle


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
    """Every swizzle of fewer bits that keeps vectors whole, and the conflict ways that remain; each more than 1."""
    broken: int
    """Further swizzles of fewer bits, left out because they tear an access of several elements apart."""


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
        LayoutError: no swizzle within the tile does it; the message names the best.
    Cost: all swizzles within the tile are tried, under a second for 64x64.
    """
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
    patterns = {name: through(tile, layout) for name, layout in access.items()}
    plain = {name: rows(lambda offset: offset) for name, rows in patterns.items()}
    lengths = {name: vector_length(rows, WIDEST_BYTES // element_bytes) for name, rows in plain.items()}

    def conflicts(swizzle: Swizzle) -> dict[str, BankConflicts] | None:
        """Of every access, None where the swizzle tears one apart."""
        found = {}
        for name, rows in patterns.items():
            turned = rows(swizzle)
            if vector_length(turned, lengths[name]) < lengths[name]:
                return None
            accesses = Accesses(turned, element_bytes, lengths[name])
            found[name] = conflicts_of(accesses.addresses(), accesses.bytes)
        return found

    before = conflicts(Swizzle(0, 0, 0)) or {}
    tried: dict[Swizzle, int | None] = {}
    for swizzle in candidates(cosize(tile)):
        found = conflicts(swizzle)
        if found and all(one.free for one in found.values()):
            less = {one: ways for one, ways in tried.items() if one.bits < swizzle.bits}
            whole = {one: ways for one, ways in less.items() if ways is not None}
            return SwizzleFound(swizzle, ComposedLayout(swizzle, 0, tile), before, found, whole, len(less) - len(whole))
        tried[swizzle] = max(one.ways for one in found.values()) if found else None
    ways, best = min((ways, str(one)) for one, ways in tried.items() if ways is not None)
    raise LayoutError(f"no swizzle within {tile} frees every access; the best, {best}, leaves {ways} ways")


def candidates(offsets: int) -> Iterator[Swizzle]:
    """Every swizzle that stays within so many offsets: fewer bits first, then shorter shifts, upwards first."""
    width = (offsets - 1).bit_length()
    yield Swizzle(0, 0, 0)
    for bits in range(1, width // 2 + 1):
        for distance in range(bits, width - bits + 1):
            for base in range(width - bits - distance + 1):
                yield Swizzle(bits, base, distance)
                yield Swizzle(bits, base, -distance)


def by_row(tile: Layout, element_bytes: int, width: int = WIDEST_BYTES) -> Layout:
    """Threads one after the other along the lines of a tile, `width` bytes each: (thread, value) -> index in it."""
    lines, length, line, step = _lines(tile)
    together = min(length, max(1, width // element_bytes))
    return Layout(((length // together, lines), together), ((step * together, line), step))


def by_matrix(tile: Layout, element_bytes: int) -> Layout:
    """As ldmatrix: thread t takes 16 bytes of line t, over all lines and then further along them."""
    lines, length, line, step = _lines(tile)
    together = min(length, WIDEST_BYTES // element_bytes)
    return Layout(((lines, length // together), together), ((line, step * together), step))


def by_column(tile: Layout, element_bytes: int) -> Layout:
    """Threads one after the other across the lines, an element each, as a transposing kernel reads."""
    lines, length, line, step = _lines(tile)
    return Layout(((lines, length), 1), ((line, step), 0))


def _lines(tile: Layout) -> tuple[int, int, int, int]:
    """How many lines of contiguous elements a tile has, their length, and the steps of both in its index.

    Raises:
        LayoutError: not two modes, or a length that 16 bytes do not divide.
    """
    if len(tile) != 2:
        raise LayoutError(f"{tile} is no tile of (rows, columns)")
    rows, columns = size(tile[0]), size(tile[1])
    down = next((shape for shape, stride in tile[0].modes() if stride == 1), 1) > 1
    return (columns, rows, rows, 1) if down else (rows, columns, 1, rows)


READERS = {"ldmatrix": by_matrix, "column": by_column}
