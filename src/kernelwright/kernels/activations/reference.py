"""Reference in FP64."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu_squared": lambda x: torch.relu(x).square(),
    "identity": lambda x: x,
}


def activation(
    x: Tensor, up: Tensor | None = None, bias: Tensor | None = None, residual: Tensor | None = None, *, kind: str
) -> Tensor:
    """act(x + bias) * up + residual, (..., N), in FP64, without dropout."""
    y = FORMULAS[kind](x.double() if bias is None else x.double() + bias.double())
    y = y if up is None else y * up.double()
    return y if residual is None else y + residual.double()
