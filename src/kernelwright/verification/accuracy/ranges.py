"""Range checks of whole tensors without temporaries of their size: page faults for a new tensor cost more than the
sum."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

CHUNK_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 22}
"""Elements per chunk: small enough that FP64 temporaries on the host stay in cache, large enough for a launch on a
device."""


def iter_chunks(value: Tensor, multiple_of: int = 1) -> Iterator[slice]:
    """Consecutive slices of a flat tensor, each but the last one a multiple of `multiple_of` elements long."""
    step = CHUNK_ELEMENTS["cpu" if value.device.type == "cpu" else "cuda"]
    step = max(step // multiple_of, 1) * multiple_of
    return (slice(at, min(at + step, value.numel())) for at in range(0, value.numel(), step))


def max_abs(value: Tensor) -> float:
    """Largest magnitude in a real tensor: 0 if it is empty, NaN if it contains NaN."""
    if not value.numel():
        return 0.0
    low, high = (bound.item() for bound in as_real(value).aminmax())
    return math.nan if math.isnan(low) else max(abs(low), abs(high))


def all_finite(value: Tensor) -> bool:
    """Whether a tensor of any dtype contains neither NaN nor infinities."""
    value = as_real(value)
    return not value.dtype.is_floating_point or math.isfinite(max_abs(value))


def all_same_sign(value: Tensor) -> bool:
    """Whether all elements of a floating tensor have the same sign and none is NaN."""
    low, high = as_real(value).aminmax()
    return bool(low >= 0) or bool(high <= 0)


def as_real(value: Tensor) -> Tensor:
    """Complex numbers as pairs, one-byte floats (which torch cannot compare) as FP32, any other tensor unchanged and
    not copied."""
    if value.is_complex():
        return torch.view_as_real(value.resolve_conj())
    return value.float() if value.dtype.is_floating_point and value.dtype.itemsize == 1 else value
