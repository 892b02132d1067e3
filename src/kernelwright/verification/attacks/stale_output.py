"""Detects outputs that are the expected values of an earlier call."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

HISTORY_SETS, HISTORY_BYTES = 8, 256 << 20
MIN_MATCHING_SHARE, MIN_DIFFERING_SHARE = 0.5, 0.1
ROUNDING = 2.0**-6


class OutputHistory:
    """Outputs of the candidate's last few calls."""

    def __init__(self) -> None:
        self._outputs: deque[dict[str, Tensor]] = deque(maxlen=HISTORY_SETS)

    def append(self, leaves: dict[str, Any]) -> None:
        tensors = {path: leaf.detach() for path, leaf in leaves.items() if isinstance(leaf, Tensor) and leaf.numel()}
        if tensors and sum(leaf.nbytes for leaf in tensors.values()) <= HISTORY_BYTES // HISTORY_SETS:
            self._outputs.append(tensors)

    def is_stale(self, leaves: dict[str, Any], expected: dict[str, Tensor]) -> bool:
        """Whether an output is mostly bitwise equal to an earlier one where the expected values differ from it."""
        return any(
            _matches_earlier(leaf, expected[path], earlier[path])
            for earlier in self._outputs
            for path, leaf in leaves.items()
            if path in earlier and path in expected
        )


def _matches_earlier(now: Any, expected: Tensor, earlier: Tensor) -> bool:
    if (
        not isinstance(now, Tensor)
        or not _same_shape_and_dtype(now, earlier)
        or not _same_shape_and_dtype(expected, earlier)
    ):
        return False
    differs = expected != earlier
    if expected.dtype.is_floating_point or expected.is_complex():  # more than by rounding
        differs &= (expected - earlier).abs() > ROUNDING * torch.maximum(expected.abs(), earlier.abs())
    return (
        float(differs.float().mean()) >= MIN_DIFFERING_SHARE
        and float((now == earlier)[differs].float().mean()) > MIN_MATCHING_SHARE
    )


def _same_shape_and_dtype(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype
