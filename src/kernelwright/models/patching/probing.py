"""Random inputs for the forwards of modules, calls with them, and the comparison with a formula."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

ROWS, TOLERANCE = 4, 1e-5
"""Rows of an input, and the tolerance in FP32."""


def seeded_randn(*shape: int) -> Tensor:
    """Deterministic normal random numbers, independent of the default dtype, device and random state."""
    generator = torch.Generator("cpu").manual_seed(len(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")


def is_close(actual: Tensor, expected: Tensor) -> bool:
    """Whether two tensors have the same shape and agree within TOLERANCE."""
    return actual.shape == expected.shape and torch.allclose(actual.double(), expected.double(), TOLERANCE, TOLERANCE)


def call_forward(module: nn.Module, x: Any) -> Any:
    """A module's own forward of `x` as first argument, and None for all others that have no default."""
    _, _, *others = inspect.signature(type(module).forward).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    missing = [one.name for one in others if one.default is one.empty and one.kind in kinds]
    return type(module).forward(module, x, **dict.fromkeys(missing))
