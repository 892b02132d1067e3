"""Snapshot of outputs at the end of a call, compared with the outputs read later."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from kernelwright.core.errors import TamperingError
from kernelwright.sandbox import process_memory
from kernelwright.verification.transport.control_block import Extent

OUTPUT_PIECES, INPUT_PIECES, PIECE_BYTES = 48, 16, 64
MAX_EXTENT_RATIO, EXTENT_SLACK_BYTES = 16, 64 << 20


class Snapshot(Protocol):
    """Outputs at the end of a call."""

    def take(self, extents: list[Extent], pid: int) -> None:
        """Read the outputs at these extents."""
        ...

    def matches(self, read: dict[Extent, Tensor]) -> bool:
        """Whether the snapshot equals what was read later."""
        ...


class SampledSnapshot:
    """Randomly chosen pieces of outputs of the expected sizes, and of inputs, which may be outputs too; outputs of
    other sizes are read as a whole."""

    def __init__(self, sizes: list[int], inputs: list[Extent]) -> None:
        self._sizes = sizes
        self._outputs = _sample_pieces([(0, size) for size in sizes], OUTPUT_PIECES)
        self._inputs = [(inputs[at][0] + offset, size) for at, offset, size in _sample_pieces(inputs, INPUT_PIECES)]
        self._extents: list[Extent] = []
        self._taken: bytearray | None = None

    def take(self, extents: list[Extent], pid: int) -> None:
        as_expected = [size for _, size in extents] == self._sizes
        outputs = [(extents[at][0] + offset, size) for at, offset, size in self._outputs] if as_expected else extents
        self._extents = [*outputs, *self._inputs] if as_expected or have_plausible_sizes(extents, self._sizes) else []
        with contextlib.suppress(OSError, OverflowError, struct.error):
            self._taken = process_memory.read_extents(pid, self._extents)

    def matches(self, read: dict[Extent, Tensor]) -> bool:
        if self._taken is None:
            return False
        at = 0
        for address, size in self._extents:
            if not _matches_piece(read, address, self._taken[at : at + size]):
                return False
            at += size
        return True


class FullSnapshot:
    """All outputs, read by `read`: a copy on the device is fast."""

    def __init__(self, sizes: list[int], read: Callable[[Extent], Tensor]) -> None:
        self._sizes, self._read = sizes, read
        self._taken: dict[Extent, Tensor] | None = None

    def take(self, extents: list[Extent], pid: int) -> None:
        if have_plausible_sizes(extents, self._sizes):
            with contextlib.suppress(TamperingError):
                self._taken = {extent: self._read(extent) for extent in extents}
        torch.cuda.synchronize()

    def matches(self, read: dict[Extent, Tensor]) -> bool:
        return self._taken is not None and all(
            extent in read and torch.equal(value, read[extent]) for extent, value in self._taken.items()
        )


def have_plausible_sizes(extents: list[Extent], sizes: list[int]) -> bool:
    """Whether the total size is plausible for correct outputs of these sizes."""
    return sum(size for _, size in extents) <= MAX_EXTENT_RATIO * sum(sizes) + EXTENT_SLACK_BYTES


def _sample_pieces(extents: list[Extent], count: int) -> list[tuple[int, int, int]]:
    """Random pieces of the concatenated extents: index of the extent, offset, size."""
    total_bytes, rng = sum(size for _, size in extents), random.SystemRandom()
    pieces = []
    for _ in range(count if total_bytes else 0):
        offset = rng.randrange(total_bytes)
        for at, (_, size) in enumerate(extents):
            if offset < size:
                pieces.append((at, max(0, min(offset, size - PIECE_BYTES)), min(PIECE_BYTES, size)))
                break
            offset -= size
    return pieces


def _matches_piece(read: dict[Extent, Tensor], address: int, data: bytearray) -> bool:
    """Whether a piece equals what was read later."""
    for (start, size), whole in read.items():
        if start <= address and address + len(data) <= start + size:
            return whole.numpy()[address - start : address - start + len(data)].data == data
    return False
