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

CONTROL_BLOCK_BYTES = 1 << 16
READY, START, DEVICE_START, DONE, RAISED, CLAIMED_NS, SEGMENT_COUNT, EXTENT_COUNT, EXTENTS = range(9)
SEGMENTS_OFFSET, SEGMENT_STRUCT = CONTROL_BLOCK_BYTES // 2, struct.Struct(f"=QQ{HANDLE_BYTES}s")
MAX_EXTENTS = (SEGMENTS_OFFSET // 8 - EXTENTS) // 2
MAX_SEGMENTS = (CONTROL_BLOCK_BYTES - SEGMENTS_OFFSET) // SEGMENT_STRUCT.size

Extent = tuple[int, int]
"""Where something lies: address and bytes."""


class CallStatus(NamedTuple):
    """What the worker has written so far."""

    ready_call: int
    done_call: int
    raised: bool
    claimed_ns: int
    num_segments: int
    num_extents: int
    extents: list[Extent]


class ControlBlock:
    """The worker's end."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, CONTROL_BLOCK_BYTES)
        self._words = memoryview(self._memory).cast("Q")
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def wait_for_start(self, number: int) -> None:
        """Says that the worker is ready for this call, and returns when it may begin. Spins: a wake-up takes longer
        than a small program."""
        words = self._words
        words[READY] = number
        while words[START] != number:
            pass

    def publish_outputs(self, extents: Sequence[Extent], segments: Sequence[Segment]) -> None:
        """Says where the outputs lie, before the call is over: there may be many."""
        words, kept, shared = self._words, extents[:MAX_EXTENTS], segments[:MAX_SEGMENTS]
        words[SEGMENT_COUNT], words[EXTENT_COUNT] = len(shared), len(kept)
        for at, (address, size) in enumerate(kept):
            words[EXTENTS + 2 * at], words[EXTENTS + 2 * at + 1] = address, size
        for at, segment in enumerate(shared):
            SEGMENT_STRUCT.pack_into(self._memory, SEGMENTS_OFFSET + at * SEGMENT_STRUCT.size, *segment)

    def publish_done(self, number: int, claimed_ns: int, *, raised: bool = False) -> None:
        words = self._words
        words[RAISED], words[CLAIMED_NS] = raised, max(0, claimed_ns)
        words[DONE] = number


def status_bytes(extents: int) -> int:
    """How much of the page holds a letter with so many extents."""
    return 8 * (EXTENTS + 2 * min(extents, MAX_EXTENTS))


def parse_status(data: bytes | bytearray) -> CallStatus:
    """The judge's end: what the first bytes of the page say; extents as far as they reach, of so many as are told."""
    words = struct.unpack(f"={len(data) // 8}Q", data)
    count = min(words[EXTENT_COUNT], MAX_EXTENTS)
    extents = [*zip(words[EXTENTS::2], words[EXTENTS + 1 :: 2], strict=False)][:count]
    segments = min(words[SEGMENT_COUNT], MAX_SEGMENTS)
    return CallStatus(words[READY], words[DONE], bool(words[RAISED]), words[CLAIMED_NS], segments, count, extents)


def parse_segments(data: bytes | bytearray) -> list[Segment]:
    """What lies at `SEGMENTS_OFFSET`."""
    return [Segment(*fields) for fields in SEGMENT_STRUCT.iter_unpack(data)]


def signal_word(number: int) -> bytearray:
    """What the judge writes at `8 * GO` of the page to let the host begin the call, and at `8 * RELEASE` the device."""
    return bytearray(struct.pack("=Q", number))
