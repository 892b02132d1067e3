"""A page in the candidate's process that the judge reads and writes from outside: when to begin, and what came of it.

Used on both sides; knows nothing about what is right. Words of 8 bytes: the number of the call for which the worker is
ready, which it may begin, which is done; whether it raised; nanoseconds that the worker says it took; how many extents
follow, each an address and a size in bytes.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Sequence
from typing import NamedTuple

SIZE_BYTES = 1 << 16
READY, GO, DONE, RAISED, CLAIMED_NS, COUNT, EXTENTS = range(7)
MOST_EXTENTS = (SIZE_BYTES // 8 - EXTENTS) // 2

Extent = tuple[int, int]
"""Where something lies: address and bytes."""


class Letter(NamedTuple):
    """What the worker has written so far."""

    ready: int
    done: int
    raised: bool
    claimed_ns: int
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

    def finish(self, number: int, claimed_ns: int, extents: Sequence[Extent], *, raised: bool = False) -> None:
        words, kept = self._words, extents[:MOST_EXTENTS]
        words[RAISED], words[CLAIMED_NS], words[COUNT] = raised, max(0, claimed_ns), len(kept)
        for at, (address, size) in enumerate(kept):
            words[EXTENTS + 2 * at], words[EXTENTS + 2 * at + 1] = address, size
        words[DONE] = number


def letter_bytes(extents: int) -> int:
    """How much of the page holds a letter with so many extents."""
    return 8 * (EXTENTS + 2 * min(extents, MOST_EXTENTS))


def read_letter(data: bytes | bytearray) -> Letter:
    """The judge's end: what the first bytes of the page say; extents as far as they reach, of so many as are told."""
    words = struct.unpack(f"={len(data) // 8}Q", data)
    count = min(words[COUNT], MOST_EXTENTS)
    extents = [*zip(words[EXTENTS::2], words[EXTENTS + 1 :: 2], strict=False)][:count]
    return Letter(words[READY], words[DONE], bool(words[RAISED]), words[CLAIMED_NS], count, extents)


def go_word(number: int) -> bytearray:
    """What the judge writes at `8 * GO` of the page to let the call begin."""
    return bytearray(struct.pack("=Q", number))
