"""Memory that was never written reads as NaN: what a candidate leaves out is then seen.

A byte of 255 everywhere is NaN in every floating format, -1 in every signed and the largest in every unsigned one.
"""

from __future__ import annotations

import ctypes
import math
import sys

import torch
from torch import Tensor

POISON_BYTE = 0xFF
REDZONE_BYTE = 0xA5
"""Around outputs: what reads NaN past the end of an input and writes it past that of an output changes it."""
REDZONE_BYTES = 4096
_M_PERTURB = -6


class RedzoneBuffer:
    """Memory of exactly this size, poisoned, between two margins that show what is written there.

    Its alignment is that of torch's own memory. Whoever holds `memory`, or a view of it, holds the margins too.
    """

    def __init__(self, size_bytes: int, device: str = "cpu", fill_byte: int = POISON_BYTE) -> None:
        self._fill_byte = fill_byte
        self._storage = torch.empty(size_bytes + 2 * REDZONE_BYTES, dtype=torch.uint8, device=device).fill_(fill_byte)
        self.memory = self._storage[REDZONE_BYTES : REDZONE_BYTES + size_bytes].fill_(POISON_BYTE)
        if size_bytes and device == "cpu":
            # Not a slice, whose storage would be the whole: a program may look at the storage of what it is given.
            held = self._storage.numpy().data
            self.memory = torch.frombuffer(held, dtype=torch.uint8, count=size_bytes, offset=REDZONE_BYTES)

    def is_intact(self) -> bool:
        """Whether nothing was written outside."""
        margins = (self._storage[:REDZONE_BYTES], self._storage[-REDZONE_BYTES:])
        return all(bool((margin == self._fill_byte).all()) for margin in margins)


class RedzoneAllocator:
    """Makes fenced memory, and says where a fence was broken."""

    def __init__(self, device: str = "cpu", fill_byte: int = POISON_BYTE) -> None:
        self._device, self._fill_byte = device, fill_byte
        self._buffers: list[RedzoneBuffer] = []

    def allocate(self, size_bytes: int) -> Tensor:
        self._buffers.append(RedzoneBuffer(size_bytes, self._device, self._fill_byte))
        return self._buffers[-1].memory

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """As `torch.empty`."""
        return self.allocate(math.prod(shape) * dtype.itemsize).view(dtype).view(shape)

    def corrupted_blocks(self) -> list[int]:
        """Which of the pieces that were made, in order, something was written outside of."""
        return [at for at, fence in enumerate(self._buffers) if not fence.is_intact()]


def poison_allocator(enabled: bool) -> bool:
    """Makes the C allocator of this process hand out poisoned memory from now on, or memory as it comes; False where it
    cannot (glibc only).

    For calls whose time is no matter: every allocation is written once more than it need be.
    """
    if sys.platform != "linux":
        return False
    # glibc fills new memory with the complement of the low byte; the bit above only says that it is switched on.
    return bool(ctypes.CDLL(None).mallopt(_M_PERTURB, enabled * (0x100 | (POISON_BYTE ^ 0xFF))))


def poison_buffers(sizes_bytes: list[int], device: str) -> None:
    """Fills and frees buffers of these sizes, so that the allocator's next ones of that size are poisoned.

    Covers what `poison_allocator` cannot: CUDA's caching allocator, and the C allocator's cache of small pieces.
    """
    held = [
        torch.empty(size, dtype=torch.uint8, device=device).fill_(POISON_BYTE)
        for size in sizes_bytes
        for _ in range(2 if size > 1 << 16 else 8)
        if size
    ]
    held.clear()
