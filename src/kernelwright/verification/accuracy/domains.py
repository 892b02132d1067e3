"""The domain of a tensor's values, which values drawn in their place keep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MAX_PART_ELEMENTS = 1 << 28
"""Elements that are drawn at once: several temporaries of 1 GiB each."""


def parts_of(tensor: Tensor) -> Sequence[Tensor]:
    """Views of consecutive parts along the first dimension, each as small as possible or of at most
    `MAX_PART_ELEMENTS`; a tensor that is smaller is one part."""
    if tensor.numel() <= MAX_PART_ELEMENTS:
        return [tensor]
    return tensor.split(max(1, MAX_PART_ELEMENTS * tensor.shape[0] // tensor.numel()))


@dataclass(frozen=True)
class Domain:
    """What the values of a floating tensor have in common.

    Attributes:
        low, high: the bounds.
        rms: the root of the mean square.
        rows_sum_to_one: along the last dimension.
        ascending: along the last dimension, as offsets, positions and boundaries are.
    """

    low: float
    high: float
    rms: float
    rows_sum_to_one: bool
    ascending: bool

    @classmethod
    def of(cls, example: Tensor) -> Domain:
        """The domain of a finite tensor of at least one element."""
        parts = [part for part in parts_of(example) if part.numel()]
        bounds = [part.float().aminmax() for part in parts]
        low, high = min(low.item() for low, _ in bounds), max(high.item() for _, high in bounds)
        norms = [torch.linalg.vector_norm(part.float()).item() for part in parts]
        return cls(
            low,
            high,
            rms=math.hypot(*norms) / math.sqrt(example.numel()),
            rows_sum_to_one=low >= 0 and example.dim() > 0 and example.shape[-1] > 1 and all(map(_sums_to_one, parts)),
            ascending=all(map(is_ascending, parts)),
        )

    def fit(self, values: Tensor, example: Tensor) -> Tensor:
        """Fit values of normal scale to the domain: scale, sign, bounds, zeros, order, rows that sum to one.

        They are scaled by powers of two only, which keeps their low bits.

        Args:
            example: the values in whose place they are, as FP32 or narrower.
        """
        largest = max(abs(self.low), abs(self.high))
        fitted = values * (2.0 ** round(math.log2(self.rms)) if self.rms else 0.0)
        if self.low >= 0 or self.high <= 0:
            fitted = torch.copysign(fitted, torch.full((), self.high + self.low).to(fitted))
        if 0.9 < largest <= 1:
            fitted = fitted / torch.exp2(torch.log2(fitted.abs().max()).ceil()).clamp_min(1.0)
        fitted = torch.where(fitted == 0, self.rms, fitted) if self.low > 0 else fitted
        fitted = torch.where(example == 0, 0.0, fitted)
        if self.rows_sum_to_one:
            fitted = fitted / fitted.sum(-1, keepdim=True)
        return fitted.sort(-1).values if self.ascending else fitted


def is_ascending(example: Tensor) -> bool:
    """Never decreasing along the last dimension, of more than two elements."""
    if not example.dim() or example.shape[-1] <= 2:
        return False
    return bool((example[..., 1:] >= example[..., :-1]).all())


def _sums_to_one(part: Tensor) -> bool:
    return torch.allclose(part.float().sum(-1), torch.ones(()).to(part.device), atol=1e-2, rtol=0)
