"""Poisoned memory and redzones: memory that was never written reads as NaN, which shows missing writes.

The byte 0xFF everywhere is NaN in every floating format, -1 in signed and the maximum in unsigned integers.
"""

from __future__ import annotations

import ctypes
import math
import sys

import torch
from torch import Tensor

POISON_BYTE = 0xFF
REDZONE_BYTE = 0xA5
"""Fills the redzones of outputs: NaN that is read past the end of an input and written past an output changes it."""
REDZONE_BYTES = 4096
_M_PERTURB = -6


class RedzoneBuffer:
    """Poisoned memory of exactly this size between two redzones that show out-of-bounds writes.

    Aligned like torch's own allocations. `memory`, and every view of it, keeps the redzones alive.
    """

    def __init__(self, size_bytes: int, device: str = "cpu", fill_byte: int = POISON_BYTE) -> None:
        self._fill_byte = fill_byte
        self._storage = torch.empty(size_bytes + 2 * REDZONE_BYTES, dtype=torch.uint8, device=device).fill_(fill_byte)
        self.memory = self._storage[REDZONE_BYTES : REDZONE_BYTES + size_bytes].fill_(POISON_BYTE)
        if size_bytes and device == "cpu":
            # Not a slice, whose storage would include the redzones: a program may access the storage of its inputs.
            data = self._storage.numpy().data
            self.memory = torch.frombuffer(data, dtype=torch.uint8, count=size_bytes, offset=REDZONE_BYTES)

    def is_intact(self) -> bool:
        """Whether nothing was written outside of the memory."""
        redzones = (self._storage[:REDZONE_BYTES], self._storage[-REDZONE_BYTES:])
        return all(bool((redzone == self._fill_byte).all()) for redzone in redzones)


class RedzoneAllocator:
    """Allocates buffers between redzones and reports which redzones are corrupted."""

    def __init__(self, device: str = "cpu", fill_byte: int = POISON_BYTE) -> None:
        self._device, self._fill_byte = device, fill_byte
        self._buffers: list[RedzoneBuffer] = []

    def allocate(self, size_bytes: int) -> Tensor:
        self._buffers.append(RedzoneBuffer(size_bytes, self._device, self._fill_byte))
        return self._buffers[-1].memory

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Like `torch.empty`."""
        return self.allocate(math.prod(shape) * dtype.itemsize).view(dtype).view(shape)

    def corrupted_blocks(self) -> list[int]:
        """Indices of the buffers, in the order of allocation, with writes out of bounds."""
        return [at for at, buffer in enumerate(self._buffers) if not buffer.is_intact()]


def poison_allocator(enabled: bool) -> bool:
    """Switch poisoned memory of this process's C allocator on or off; False where that is not possible (glibc only).

    For untimed calls: every allocation is written once more.
    """
    if sys.platform != "linux":
        return False
    # glibc fills new memory with the complement of the low byte; the bit above it switches the fill on.
    return bool(ctypes.CDLL(None).mallopt(_M_PERTURB, enabled * (0x100 | (POISON_BYTE ^ 0xFF))))


def poison_buffers(sizes_bytes: list[int], device: str) -> None:
    """Fill and free buffers of these sizes, so that the next allocations of these sizes are poisoned.

    Covers what `poison_allocator` cannot: CUDA's caching allocator, and the C allocator's cache of small chunks.
    """
    buffers = [
        torch.empty(size, dtype=torch.uint8, device=device).fill_(POISON_BYTE)
        for size in sizes_bytes
        for _ in range(2 if size > 1 << 16 else 8)
        if size
    ]
    buffers.clear()
