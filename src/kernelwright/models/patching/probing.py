"""Random inputs for the forwards of modules, and the comparison with a formula."""

from __future__ import annotations

import torch
from torch import Tensor

ROWS, TOLERANCE = 4, 1e-5
"""Rows of an input, and the tolerance in FP32."""


def seeded_randn(*shape: int) -> Tensor:
    """Deterministic normal random numbers, independent of the default dtype, device and random state."""
    generator = torch.Generator("cpu").manual_seed(len(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")


def is_close(actual: Tensor, expected: Tensor) -> bool:
    """Whether two tensors have the same shape and agree within TOLERANCE."""
    return actual.shape == expected.shape and torch.allclose(actual.double(), expected.double(), TOLERANCE, TOLERANCE)
