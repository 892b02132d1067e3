"""What TMA can address, checked before the driver is called: it refuses a map without a reason."""

from __future__ import annotations

from collections.abc import Sequence

import torch

MAP_DTYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32)
MAX_MAP_RANK, MAX_BOX, MAP_PITCH_BYTES = 5, 256, 16
"""Dimensions of a map, elements of its box along each, and what addresses and pitches must be multiples of."""


def find_map_fault(tensor: torch.Tensor, box: Sequence[int], swizzle: int) -> str:
    """Why TMA cannot move boxes of a tensor, or an empty string.

    Args:
        tensor: only its shape, strides and dtype count.
        box: elements along each of its dimensions.
        swizzle: bytes of the pattern in shared memory, 0 for none.
    """
    if tensor.dtype not in MAP_DTYPES:
        known = ", ".join(str(one).removeprefix("torch.") for one in MAP_DTYPES)
        return f"its dtype is not one of {known}"
    if not 1 <= tensor.ndim <= MAX_MAP_RANK or len(box) != tensor.ndim:
        return f"a box of {len(box)} dimensions does not fit a tensor of {tensor.ndim}; TMA has 1 to {MAX_MAP_RANK}"
    for size in box:
        if not 1 <= size <= MAX_BOX:
            return f"a box is 1 to {MAX_BOX} elements along a dimension, not {size}"
    size = tensor.element_size()
    row_bytes = box[-1] * size
    if row_bytes % MAP_PITCH_BYTES:
        return f"a row of the box is {row_bytes} bytes, not a multiple of {MAP_PITCH_BYTES}"
    if swizzle and row_bytes > swizzle:
        return f"a row of the box is {row_bytes} bytes, more than the swizzle of {swizzle}"
    if tensor.numel() == 0:
        return ""
    if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        return f"its last dimension has stride {tensor.stride(-1)}, not 1"
    for dim in range(tensor.ndim - 1):
        pitch = tensor.stride(dim) * size
        if tensor.shape[dim] > 1 and (pitch % MAP_PITCH_BYTES or pitch == 0):
            return f"dimension {dim} has a pitch of {pitch} bytes, not a multiple of {MAP_PITCH_BYTES}"
    return ""
