"""Memory that was never written reads as NaN: what a candidate leaves out is then seen.

A byte of 255 everywhere is NaN in every floating format, -1 in every signed and the largest in every unsigned one.
"""

from __future__ import annotations

import ctypes
import sys

import torch

POISON_BYTE = 0xFF
_M_PERTURB = -6


def poison_allocator() -> bool:
    """Makes the C allocator of this process hand out poisoned memory from now on; False where it cannot (glibc only).

    For a process that ends soon: every allocation is written once more than it need be.
    """
    if sys.platform != "linux":
        return False
    # glibc fills new memory with the complement of the low byte; the bit above only says that it is switched on.
    return bool(ctypes.CDLL(None).mallopt(_M_PERTURB, 0x100 | (POISON_BYTE ^ 0xFF)))


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
