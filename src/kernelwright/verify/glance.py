"""Pieces of memory at places drawn by chance: read at one moment, and held against what is read afterwards."""

from __future__ import annotations

import random

from kernelwright.verify.mailbox import Extent

OUTPUT_PIECES, INPUT_PIECES, PIECE_BYTES = 48, 16, 64


class Glance:
    """Of outputs of the expected sizes the pieces are drawn beforehand, of others once these are known."""

    def __init__(self, sizes: list[int], inputs: list[Extent]) -> None:
        self._sizes = sizes
        self._outputs = _pieces([(0, size) for size in sizes], OUTPUT_PIECES)
        self._inputs = [(inputs[at][0] + offset, size) for at, offset, size in _pieces(inputs, INPUT_PIECES)]
        self.pieces: list[Extent] = []
        self.read: bytearray | None = None

    def choose(self, extents: list[Extent]) -> None:
        """The pieces, now that it is known where outputs lie."""
        if [size for _, size in extents] != self._sizes:
            self._outputs = _pieces(extents, OUTPUT_PIECES)
        self.pieces = [(extents[at][0] + offset, size) for at, offset, size in self._outputs] + self._inputs

    def agree_with(self, read: dict[Extent, bytearray]) -> bool:
        """Whether every piece is as it is in what was read afterwards."""
        if self.read is None:
            return False
        at = 0
        for address, size in self.pieces:
            if not _holds(read, address, self.read[at : at + size]):
                return False
            at += size
        return True


def _pieces(extents: list[Extent], count: int) -> list[tuple[int, int, int]]:
    """So many pieces of the extents, laid end to end: which, how far into it, how long."""
    whole, chance = sum(size for _, size in extents), random.SystemRandom()
    found = []
    for _ in range(count if whole else 0):
        place = chance.randrange(whole)
        for at, (_, size) in enumerate(extents):
            if place < size:
                found.append((at, max(0, min(place, size - PIECE_BYTES)), min(PIECE_BYTES, size)))
                break
            place -= size
    return found


def _holds(read: dict[Extent, bytearray], address: int, data: bytearray) -> bool:
    """Whether a piece is as it is in what was read afterwards."""
    for (start, size), whole in read.items():
        if start <= address and address + len(data) <= start + size:
            return whole[address - start : address - start + len(data)] == data
    return False
