"""A page in the candidate's process that the judge reads and writes from outside: when to begin, and what came of it.

Used on both sides; knows nothing about what is right. Words of 8 bytes: the number of the call for which the worker is
ready, which it may begin, which the device may begin, which is done; whether it raised; nanoseconds that the worker
says it took; how many segments of the device's memory lie in the second half, each a base, a size and a handle; how
many extents follow, each an address and a size in bytes.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Sequence
from typing import NamedTuple

from kernelwright.verification.transport.device_memory import HANDLE_BYTES, Segment

SIZE_BYTES = 1 << 16
READY, GO, RELEASE, DONE, RAISED, CLAIMED_NS, SEGMENTS, COUNT, EXTENTS = range(9)
SEGMENTS_AT, SEGMENT = SIZE_BYTES // 2, struct.Struct(f"=QQ{HANDLE_BYTES}s")
MOST_EXTENTS = (SEGMENTS_AT // 8 - EXTENTS) // 2
MOST_SEGMENTS = (SIZE_BYTES - SEGMENTS_AT) // SEGMENT.size

Extent = tuple[int, int]
"""Where something lies: address and bytes."""


class Letter(NamedTuple):
    """What the worker has written so far."""

    ready: int
    done: int
    raised: bool
    claimed_ns: int
    segments: int
    told: int
    extents: list[Extent]


class Mailbox:
    """The worker's end."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, SIZE_BYTES)
        self._words = memoryview(self._memory).cast("Q")
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def wait(self, number: int) -> None:
        """Says that the worker is ready for this call, and returns when it may begin. Spins: a wake-up takes longer
        than a small program."""
        words = self._words
        words[READY] = number
        while words[GO] != number:
            pass

    def tell(self, extents: Sequence[Extent], segments: Sequence[Segment]) -> None:
        """Says where the outputs lie, before the call is over: there may be many."""
        words, kept, shared = self._words, extents[:MOST_EXTENTS], segments[:MOST_SEGMENTS]
        words[SEGMENTS], words[COUNT] = len(shared), len(kept)
        for at, (address, size) in enumerate(kept):
            words[EXTENTS + 2 * at], words[EXTENTS + 2 * at + 1] = address, size
        for at, segment in enumerate(shared):
            SEGMENT.pack_into(self._memory, SEGMENTS_AT + at * SEGMENT.size, *segment)

    def finish(self, number: int, claimed_ns: int, *, raised: bool = False) -> None:
        words = self._words
        words[RAISED], words[CLAIMED_NS] = raised, max(0, claimed_ns)
        words[DONE] = number


def letter_bytes(extents: int) -> int:
    """How much of the page holds a letter with so many extents."""
    return 8 * (EXTENTS + 2 * min(extents, MOST_EXTENTS))


def read_letter(data: bytes | bytearray) -> Letter:
    """The judge's end: what the first bytes of the page say; extents as far as they reach, of so many as are told."""
    words = struct.unpack(f"={len(data) // 8}Q", data)
    count = min(words[COUNT], MOST_EXTENTS)
    extents = [*zip(words[EXTENTS::2], words[EXTENTS + 1 :: 2], strict=False)][:count]
    segments = min(words[SEGMENTS], MOST_SEGMENTS)
    return Letter(words[READY], words[DONE], bool(words[RAISED]), words[CLAIMED_NS], segments, count, extents)


def read_segments(data: bytes | bytearray) -> list[Segment]:
    """What lies at `SEGMENTS_AT`."""
    return [Segment(*fields) for fields in SEGMENT.iter_unpack(data)]


def go_word(number: int) -> bytearray:
    """What the judge writes at `8 * GO` of the page to let the host begin the call, and at `8 * RELEASE` the device."""
    return bytearray(struct.pack("=Q", number))
