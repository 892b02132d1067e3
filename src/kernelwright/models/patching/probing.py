"""Numbers that a module's forward is tried on, and when its results are those of a formula."""

from __future__ import annotations

import torch
from torch import Tensor

ROWS, TOLERANCE = 4, 1e-5
"""What a formula is tried on, and how near it must come in FP32."""


def seeded_randn(*shape: int) -> Tensor:
    """The same numbers each time, whatever dtype, device and random state the program has."""
    generator = torch.Generator("cpu").manual_seed(len(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")


def is_close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one.double(), other.double(), TOLERANCE, TOLERANCE)
