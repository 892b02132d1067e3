"""What an access costs: collisions of banks in shared memory, sectors of global memory.

A layout is read as (thread, value) -> offset in elements; a layout of rank 1 gives each thread one value. Neighbouring
values of a thread that lie side by side, aligned, are one access of up to 16 bytes.
Source: CUDA C++ Programming Guide, shared memory and device memory accesses; `evidence/*/fragments` holds what the
counters of an H200 say of the same accesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from kernelwright.layouts.errors import LayoutError
from kernelwright.layouts.layout import Layout, as_layout, size
from kernelwright.layouts.tuples import ceil_div, is_int

WARP_SIZE, NUM_BANKS, WORD_BYTES = 32, 32, 4
MAX_ACCESS_BYTES = 16
SECTOR_BYTES, CACHE_LINE_BYTES = 32, 128
SHARED_ADDRESS_LANE_DISTANCES = (1, 2)
"""Lanes n and n ^ 1, or else n and n ^ 2, of an access of 8 or 16 bytes are one where all pairs share an address."""
MAX_ELEMENTS = 2**22
"""More are not looked at one by one."""


@dataclass(frozen=True)
class BankConflicts:
    """How the threads of a block reach shared memory."""

    ways: int
    """The most words that one bank must give in one pass: 1 is without conflict."""
    wavefronts: int
    """Passes over all accesses."""
    ideal_wavefronts: int
    """Passes that the same words would take with no two in one bank."""
    access_bytes: int
    """Of one thread in one instruction."""
    conflicting_threads: tuple[int, ...] = ()
    """Threads that meet in the bank that is worst, each with a word of its own."""

    @property
    def is_conflict_free(self) -> bool:
        return self.ways == 1


@dataclass(frozen=True)
class Coalescing:
    """How the threads of a block reach global memory."""

    requests: int
    """Warp-wide instructions."""
    sectors: int
    """32-byte sectors, all requests together."""
    requested_bytes: int
    """What the threads asked for, each byte once in a request."""
    cache_lines: int
    """128-byte lines, all requests together."""
    access_bytes: int

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / self.requests

    @property
    def efficiency(self) -> float:
        """The share of the moved bytes that somebody asked for."""
        return self.requested_bytes / (self.sectors * SECTOR_BYTES)


def bank_conflicts(layout: Any, element_bytes: int = 4, threads: int | None = None) -> BankConflicts:
    """Which banks collide when threads reach shared memory through this layout.

    A warp's access of 4 bytes a thread is one pass, of 8 bytes two (half a warp each), of 16 bytes four; half as many
    where neighbours share their addresses (`distinct_lanes`). In a pass each of 32 banks gives one 4-byte word, to
    every thread that wants it.

    Args:
        layout: (thread, value) -> offset in elements; swizzled ones too.
        element_bytes: 1, 2, 4, 8 or 16.
        threads: how many take part; all of the layout's when left out.
    Raises:
        LayoutError: an element of another size, or more threads than the layout has.
    """
    accesses = VectorAccesses.from_layout(layout, element_bytes, threads)
    return count_conflicts(accesses.addresses(), accesses.access_bytes)


def count_conflicts(accesses: Iterable[tuple[int, Sequence[int]]], access_bytes: int) -> BankConflicts:
    """The same of byte addresses, one sequence for each instruction of a warp, with the number of its first thread."""
    together = min(WARP_SIZE, WARP_SIZE * WORD_BYTES // access_bytes)
    ways, wavefronts, least, worst = 1, 0, 0, ()
    for first, addresses in accesses:
        lanes = distinct_lanes(addresses) if access_bytes > WORD_BYTES else range(len(addresses))
        for begin in range(0, len(lanes), together):
            words: dict[int, dict[int, int]] = {}
            for lane in lanes[begin : begin + together]:
                address = addresses[lane]
                for word in range(address // WORD_BYTES, ceil_div(address + access_bytes, WORD_BYTES)):
                    words.setdefault(word % NUM_BANKS, {}).setdefault(word, first + lane)
            most = max(words.values(), key=len)
            wavefronts += len(most)
            least += ceil_div(sum(map(len, words.values())), NUM_BANKS)
            if len(most) > ways:
                ways, worst = len(most), tuple(most.values())
    return BankConflicts(ways, wavefronts, least, access_bytes, worst)


def distinct_lanes(addresses: Sequence[int]) -> Sequence[int]:
    """The lanes that a wide access serves: half of them where each shares its address with a neighbour."""
    for apart in SHARED_ADDRESS_LANE_DISTANCES:
        pairs = ((lane, lane ^ apart) for lane in range(len(addresses)))
        if all(addresses[one] == addresses[other] for one, other in pairs if other < len(addresses)):
            return [lane for lane in range(len(addresses)) if not lane & apart]
    return range(len(addresses))


def coalescing(layout: Any, element_bytes: int = 4, threads: int | None = None) -> Coalescing:
    """How many 32-byte sectors of global memory each request of a warp touches.

    Args and errors: as for `bank_conflicts`. The layout begins at an address that is aligned to 128 bytes.
    """
    accesses = VectorAccesses.from_layout(layout, element_bytes, threads)
    requests = sectors = wanted = lines = 0
    for _, addresses in accesses.addresses():
        spans = [(address, address + accesses.access_bytes - 1) for address in addresses]
        touched = {at for low, high in spans for at in range(low // SECTOR_BYTES, high // SECTOR_BYTES + 1)}
        requests, sectors = requests + 1, sectors + len(touched)
        wanted += len(set(addresses)) * accesses.access_bytes
        lines += len({at * SECTOR_BYTES // CACHE_LINE_BYTES for at in touched})
    return Coalescing(requests, sectors, wanted, lines, accesses.access_bytes)


@dataclass(frozen=True)
class VectorAccesses:
    """The offsets of a (thread, value) layout, grouped into instructions."""

    offsets: list[list[int]]
    """By thread, then value; in elements."""
    element_bytes: int
    values_per_access: int
    """Values of a thread in one instruction."""

    @classmethod
    def from_layout(cls, layout: Any, element_bytes: int, threads: int | None) -> VectorAccesses:
        if element_bytes not in (1, 2, 4, 8, 16):
            raise LayoutError(f"an element of {element_bytes!r} bytes: 1, 2, 4, 8 or 16")
        if size(layout) > MAX_ELEMENTS:
            raise LayoutError(f"{size(layout):,} elements are too many to look at one by one: ask of a tile of them")
        rows = offsets_by_thread(layout, threads)
        return cls(rows, element_bytes, vector_length(rows, MAX_ACCESS_BYTES // element_bytes))

    @property
    def access_bytes(self) -> int:
        return self.element_bytes * self.values_per_access

    def addresses(self) -> Iterator[tuple[int, list[int]]]:
        """The first thread and the byte addresses of each instruction of each warp."""
        for begin in range(0, len(self.offsets), WARP_SIZE):
            warp = self.offsets[begin : begin + WARP_SIZE]
            for value in range(0, len(warp[0]), self.values_per_access):
                yield begin, [row[value] * self.element_bytes for row in warp]


def offsets_by_thread(layout: Any, threads: int | None = None) -> list[list[int]]:
    """The offsets of every thread's values.

    Raises:
        LayoutError: more threads than the layout has, or none.
    """
    layout = layout if hasattr(layout, "swizzle") else as_layout(layout)
    there = size(layout[0])
    if threads is not None and (not is_int(threads) or not 1 <= threads <= there):
        raise LayoutError(f"{threads!r} threads: {layout} has {there} (its first mode)")
    offsets = layout.offsets()
    return [offsets[thread::there] for thread in range(threads or there)]


def vector_length(rows: Sequence[Sequence[int]], max_length: int) -> int:
    """How many values of each thread lie side by side and aligned, a power of 2 up to `max_length`."""
    length = gcd(len(rows[0]), max_length)
    while length > 1 and not all(_is_vectorizable(row, length) for row in rows):
        length //= 2
    return length


def _is_vectorizable(row: Sequence[int], length: int) -> bool:
    begins = range(0, len(row), length)
    return all(row[at] % length == 0 and row[at + i] == row[at] + i for at in begins for i in range(length))


def tile_offsets(tile: Any, tv_layout: Layout) -> list[list[int]]:
    """The offsets in a tile of every thread's values, where the access maps (thread, value) to an index in it."""
    places, offsets = offsets_by_thread(tv_layout), tile.offsets()
    if (beyond := max(map(max, places))) >= len(offsets):
        raise LayoutError(f"the access {tv_layout} reaches element {beyond} of a tile of {len(offsets)}")
    return [[offsets[place] for place in row] for row in places]
