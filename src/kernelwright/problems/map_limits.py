"""What TMA can address, checked before the driver is called: it refuses a map without a reason."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelwright.toolchain.cuda.driver import (
    MAP_PITCH_BYTES,
    MAP_PITCH_END_BYTES,
    MAX_BOX,
    MAX_MAP_RANK,
    MAX_MAP_SIZE,
    TENSOR_MAP_TYPES,
)


def find_map_fault(tensor: torch.Tensor, box: Sequence[int], swizzle: int) -> str:
    """Why TMA cannot move boxes of a tensor, or an empty string.

    Args:
        tensor: only its shape, strides and dtype count.
        box: elements along each of its dimensions.
        swizzle: bytes of the pattern in shared memory, 0 for none.
    """
    if str(tensor.dtype).removeprefix("torch.") not in TENSOR_MAP_TYPES:
        return f"its dtype is not one of {', '.join(TENSOR_MAP_TYPES)}"
    if not 1 <= tensor.ndim <= MAX_MAP_RANK or len(box) != tensor.ndim:
        return f"a box of {len(box)} dimensions does not fit a tensor of {tensor.ndim}; TMA has 1 to {MAX_MAP_RANK}"
    for size in box:
        if not 1 <= size <= MAX_BOX:
            return f"a box is 1 to {MAX_BOX} elements along a dimension, not {size}"
    element_bytes = tensor.element_size()
    row_bytes = box[-1] * element_bytes
    if row_bytes % MAP_PITCH_BYTES:
        return f"a row of the box is {row_bytes} bytes, not a multiple of {MAP_PITCH_BYTES}"
    if swizzle and row_bytes > swizzle:
        return f"a row of the box is {row_bytes} bytes, more than the swizzle of {swizzle}"
    if tensor.numel() == 0:
        return ""
    if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        return f"its last dimension has stride {tensor.stride(-1)}, not 1"
    for dim, size in enumerate(tensor.shape):
        if size > MAX_MAP_SIZE:
            return f"dimension {dim} has {size} elements, more than {MAX_MAP_SIZE}"
    for dim in range(tensor.ndim - 1):
        pitch = tensor.stride(dim) * element_bytes
        if tensor.shape[dim] > 1 and (pitch % MAP_PITCH_BYTES or pitch == 0):
            return f"dimension {dim} has a pitch of {pitch} bytes, not a multiple of {MAP_PITCH_BYTES}"
        if tensor.shape[dim] > 1 and pitch >= MAP_PITCH_END_BYTES:
            return f"dimension {dim} has a pitch of {pitch} bytes, not below {MAP_PITCH_END_BYTES}"
    return ""
