"""Questions about whole tensors, asked without a temporary as large as they are: a fresh page costs more than a sum."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

CHUNK_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 22}
"""So many elements at once: FP64 temporaries of the host stay in its caches, a device has work enough for a launch."""


def iter_chunks(value: Tensor) -> Iterator[slice]:
    """Consecutive slices of a flat tensor."""
    step = CHUNK_ELEMENTS["cpu" if value.device.type == "cpu" else "cuda"]
    return (slice(at, min(at + step, value.numel())) for at in range(0, value.numel(), step))


def max_abs(value: Tensor) -> float:
    """Of the elements of a real tensor: 0 where there are none, NaN where one is NaN."""
    if not value.numel():
        return 0.0
    low, high = (bound.item() for bound in as_real(value).aminmax())
    return math.nan if math.isnan(low) else max(abs(low), abs(high))


def all_finite(value: Tensor) -> bool:
    """Whether a tensor of any dtype holds neither NaN nor infinities."""
    value = as_real(value)
    return not value.dtype.is_floating_point or math.isfinite(max_abs(value))


def all_same_sign(value: Tensor) -> bool:
    """Whether no two elements of a floating tensor have different signs, and none is NaN."""
    low, high = as_real(value).aminmax()
    return bool(low >= 0) or bool(high <= 0)


def as_real(value: Tensor) -> Tensor:
    """Complex numbers as pairs, one-byte floats (which torch cannot compare) as FP32, anything else as it is: a large
    tensor is not copied."""
    if value.is_complex():
        return torch.view_as_real(value.resolve_conj())
    return value.float() if value.dtype.is_floating_point and value.dtype.itemsize == 1 else value
