"""Control block: a page in the candidate's process that the verifier reads and writes, with start signals and call
status.

Used in both processes; has no access to the expected values. 8-byte words: the number of the call for which the worker
is ready, which the host may start, which the device may start, which is done; whether it raised; its self-reported
nanoseconds; the seed of the call, written with the start signal of the host; the number of device segments, which are
stored in the second half as base, size and IPC handle; the number of extents, which follow as address and bytes.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from kernelwright.sandbox import channel
from kernelwright.verification.transport.device_memory import HANDLE_BYTES, Segment

CONTROL_BLOCK_BYTES = 1 << 20
"""Mapped, and used only as far as a call has outputs."""
READY, START, DEVICE_START, DONE, RAISED, CLAIMED_NS, SEED, SEGMENT_COUNT, EXTENT_COUNT, EXTENTS = range(10)
SEGMENTS_OFFSET, SEGMENT_STRUCT = CONTROL_BLOCK_BYTES // 2, struct.Struct(f"=QQ{HANDLE_BYTES}s")
MAX_EXTENTS = (SEGMENTS_OFFSET // 8 - EXTENTS) // 2
MAX_SEGMENTS = (CONTROL_BLOCK_BYTES - SEGMENTS_OFFSET) // SEGMENT_STRUCT.size

Extent = tuple[int, int]
"""Address and bytes of a block of memory."""
DIGEST = 1
"""In place of an address: the bytes are the digest of a leaf that is not in memory, such as a number."""


class CallStatus(NamedTuple):
    """What the worker has written so far."""

    ready_call: int
    done_call: int
    raised: bool
    claimed_ns: int
    num_segments: int
    num_extents: int
    extents: list[Extent]
    digests: list[int]


class ControlBlock:
    """The worker's side of the control block."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, CONTROL_BLOCK_BYTES)
        self._words = memoryview(self._memory).cast("Q")
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def wait_for_start(self, number: int) -> int:
        """Mark the worker as ready for this call, and wait for the start signal; the seed of the call. Spins: a wake-up
        takes longer than a small program."""
        words = self._words
        words[READY] = number
        while words[START] != number:
            pass
        return words[SEED]

    def publish_outputs(self, extents: Sequence[Extent], segments: Sequence[Segment]) -> None:
        """Publish the addresses of the outputs before the call is marked as done, since there may be many."""
        words, published, shared = self._words, extents[:MAX_EXTENTS], segments[:MAX_SEGMENTS]
        words[SEGMENT_COUNT], words[EXTENT_COUNT] = len(shared), len(published)
        for at, (address, size) in enumerate(published):
            words[EXTENTS + 2 * at], words[EXTENTS + 2 * at + 1] = address, size
        for at, segment in enumerate(shared):
            SEGMENT_STRUCT.pack_into(self._memory, SEGMENTS_OFFSET + at * SEGMENT_STRUCT.size, *segment)

    def publish_done(self, number: int, claimed_ns: int, *, raised: bool = False) -> None:
        words = self._words
        words[RAISED], words[CLAIMED_NS] = raised, max(0, claimed_ns)
        words[DONE] = number


def status_bytes(extents: int) -> int:
    """Bytes of the control block up to the end of this many extents."""
    return 8 * (EXTENTS + 2 * min(extents, MAX_EXTENTS))


def parse_status(data: bytes | bytearray) -> CallStatus:
    """Parse the first bytes of the control block on the verifier's side; of the reported extents, those within the
    data."""
    words = struct.unpack(f"={len(data) // 8}Q", data)
    count = min(words[EXTENT_COUNT], MAX_EXTENTS)
    extents = [*zip(words[EXTENTS::2], words[EXTENTS + 1 :: 2], strict=False)][:count]
    segments = min(words[SEGMENT_COUNT], MAX_SEGMENTS)
    digests = [size for address, size in extents if address == DIGEST]
    extents = [extent for extent in extents if extent[0] != DIGEST]
    return CallStatus(
        words[READY], words[DONE], bool(words[RAISED]), words[CLAIMED_NS], segments, count, extents, digests
    )


def digest_leaf(described: Any) -> int:
    """Digest of the description of a leaf that is not in memory: a result that is not complete when the call is over
    has another one."""
    return int.from_bytes(hashlib.blake2b(channel.pack(described), digest_size=8).digest())


def parse_segments(data: bytes | bytearray) -> list[Segment]:
    """Parse the bytes at `SEGMENTS_OFFSET`."""
    return [Segment(*fields) for fields in SEGMENT_STRUCT.iter_unpack(data)]


def word(value: int) -> bytearray:
    """The bytes of a word, such as a number of a call that is written at `8 * START` or `8 * DEVICE_START`."""
    return bytearray(struct.pack("=Q", value))
