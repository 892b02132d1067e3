"""The cost of an access: bank conflicts in shared memory, sectors in global memory.

A layout is read as (thread, value) -> offset in elements; in a layout of rank 1 each thread has one value. Consecutive
values of a thread that are contiguous and aligned form one vector access of up to 16 bytes.
Source: CUDA C++ Programming Guide, shared memory and device memory accesses; `evidence/*/fragments` holds the counters
of an H200 for the same accesses.
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
"""If in an 8- or 16-byte access all lane pairs (n, n ^ 1), or all pairs (n, n ^ 2), share an address, each pair is
served as one lane."""
MAX_ELEMENTS = 2**22
"""Larger layouts are not enumerated."""


@dataclass(frozen=True)
class BankConflicts:
    """Shared-memory access of the threads of a block."""

    ways: int
    """Largest number of different words read from one bank at once; 1 means conflict-free."""
    wavefronts: int
    """Wavefronts of all accesses."""
    ideal_wavefronts: int
    """Wavefronts for the same number of words without conflicts."""
    access_bytes: int
    """Bytes per thread in one instruction."""
    conflicting_threads: tuple[int, ...] = ()
    """Threads that access different words of the bank with the most conflicts."""

    @property
    def is_conflict_free(self) -> bool:
        """Whether no bank conflicts occur."""
        return self.ways == 1


@dataclass(frozen=True)
class Coalescing:
    """Global-memory access of the threads of a block."""

    requests: int
    """Warp-wide instructions."""
    sectors: int
    """32-byte sectors of all requests."""
    requested_bytes: int
    """Bytes requested by the threads; each byte counts once per request."""
    cache_lines: int
    """128-byte cache lines of all requests."""
    access_bytes: int

    @property
    def sectors_per_request(self) -> float:
        """Average number of sectors per warp-wide instruction."""
        return self.sectors / self.requests

    @property
    def efficiency(self) -> float:
        """Requested bytes over transferred bytes."""
        return self.requested_bytes / (self.sectors * SECTOR_BYTES)


def bank_conflicts(layout: Any, element_bytes: int = 4, threads: int | None = None) -> BankConflicts:
    """Count the bank conflicts of threads that access shared memory through a layout.

    A warp's access of 4 bytes per thread takes one wavefront, of 8 bytes two (half a warp each), of 16 bytes four; half
    as many if adjacent lanes share their addresses (`distinct_lanes`). In a wavefront each of the 32 banks reads one
    4-byte word and broadcasts it to every thread that needs it.

    Args:
        layout: (thread, value) -> offset in elements; may be swizzled.
        element_bytes: 1, 2, 4, 8 or 16.
        threads: number of threads; all of the layout by default.
    Raises:
        LayoutError: another element size, or more threads than the layout has.
    """
    accesses = VectorAccesses.from_layout(layout, element_bytes, threads)
    return count_conflicts(accesses.addresses(), accesses.access_bytes)


def count_conflicts(accesses: Iterable[tuple[int, Sequence[int]]], access_bytes: int) -> BankConflicts:
    """Count the bank conflicts of byte addresses.

    Args:
        accesses: for each instruction of a warp, the number of its first thread and the address of each lane.
    """
    lanes_per_wavefront = min(WARP_SIZE, WARP_SIZE * WORD_BYTES // access_bytes)
    ways, wavefronts, ideal_wavefronts, conflicting_threads = 1, 0, 0, ()
    for first, addresses in accesses:
        lanes = distinct_lanes(addresses) if access_bytes > WORD_BYTES else range(len(addresses))
        for begin in range(0, len(lanes), lanes_per_wavefront):
            bank_words: dict[int, dict[int, int]] = {}
            for lane in lanes[begin : begin + lanes_per_wavefront]:
                address = addresses[lane]
                for word in range(address // WORD_BYTES, ceil_div(address + access_bytes, WORD_BYTES)):
                    bank_words.setdefault(word % NUM_BANKS, {}).setdefault(word, first + lane)
            worst_bank = max(bank_words.values(), key=len)
            wavefronts += len(worst_bank)
            ideal_wavefronts += ceil_div(sum(map(len, bank_words.values())), NUM_BANKS)
            if len(worst_bank) > ways:
                ways, conflicting_threads = len(worst_bank), tuple(worst_bank.values())
    return BankConflicts(ways, wavefronts, ideal_wavefronts, access_bytes, conflicting_threads)


def distinct_lanes(addresses: Sequence[int]) -> Sequence[int]:
    """The lanes that a wide access serves separately: half of them if each shares its address with an adjacent lane."""
    for distance in SHARED_ADDRESS_LANE_DISTANCES:
        pairs = ((lane, lane ^ distance) for lane in range(len(addresses)))
        if all(addresses[one] == addresses[other] for one, other in pairs if other < len(addresses)):
            return [lane for lane in range(len(addresses)) if not lane & distance]
    return range(len(addresses))


def coalescing(layout: Any, element_bytes: int = 4, threads: int | None = None) -> Coalescing:
    """Count the 32-byte sectors of global memory that each request of a warp touches.

    The layout starts at a 128-byte aligned address. Arguments and errors are those of `bank_conflicts`.
    """
    accesses = VectorAccesses.from_layout(layout, element_bytes, threads)
    requests = sectors = requested_bytes = lines = 0
    for _, addresses in accesses.addresses():
        spans = [(address, address + accesses.access_bytes - 1) for address in addresses]
        touched = {sector for low, high in spans for sector in range(low // SECTOR_BYTES, high // SECTOR_BYTES + 1)}
        requests, sectors = requests + 1, sectors + len(touched)
        requested_bytes += len(set(addresses)) * accesses.access_bytes
        lines += len({sector * SECTOR_BYTES // CACHE_LINE_BYTES for sector in touched})
    return Coalescing(requests, sectors, requested_bytes, lines, accesses.access_bytes)


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
        """Group the values of each thread into the widest aligned accesses.

        Raises:
            LayoutError: an unsupported element size, too many elements, or more threads than the layout has.
        """
        if element_bytes not in (1, 2, 4, 8, 16):
            raise LayoutError(f"element size of {element_bytes!r} bytes: must be 1, 2, 4, 8 or 16")
        if size(layout) > MAX_ELEMENTS:
            raise LayoutError(f"{size(layout):,} elements are too many to enumerate: use a tile of the layout")
        rows = offsets_by_thread(layout, threads)
        return cls(rows, element_bytes, vector_length(rows, MAX_ACCESS_BYTES // element_bytes))

    @property
    def access_bytes(self) -> int:
        """Bytes per thread in one instruction."""
        return self.element_bytes * self.values_per_access

    def addresses(self) -> Iterator[tuple[int, list[int]]]:
        """Yield the first thread and the byte addresses of each instruction of each warp."""
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
    num_threads = size(layout[0])
    if threads is not None and (not is_int(threads) or not 1 <= threads <= num_threads):
        raise LayoutError(f"{threads!r} threads: {layout} has {num_threads} (its first mode)")
    offsets = layout.offsets()
    return [offsets[thread::num_threads] for thread in range(threads or num_threads)]


def vector_length(rows: Sequence[Sequence[int]], max_length: int) -> int:
    """Number of contiguous, aligned values of each thread: a power of 2 up to `max_length`."""
    length = gcd(len(rows[0]), max_length)
    while length > 1 and not all(_is_vectorizable(row, length) for row in rows):
        length //= 2
    return length


def _is_vectorizable(row: Sequence[int], length: int) -> bool:
    starts = range(0, len(row), length)
    return all(row[start] % length == 0 and row[start + i] == row[start] + i for start in starts for i in range(length))


def tile_offsets(tile: Any, tv_layout: Layout) -> list[list[int]]:
    """The offsets of every thread's values in a tile.

    Args:
        tv_layout: (thread, value) -> index in the tile.
    Raises:
        LayoutError: an index outside the tile.
    """
    indices, offsets = offsets_by_thread(tv_layout), tile.offsets()
    if (last := max(map(max, indices))) >= len(offsets):
        raise LayoutError(f"the access {tv_layout} reaches element {last} of a tile of {len(offsets)} elements")
    return [[offsets[index] for index in row] for row in indices]
