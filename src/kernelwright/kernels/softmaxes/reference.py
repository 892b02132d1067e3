"""Reference in FP64."""

from __future__ import annotations

import torch
from torch import Tensor


def softmax(x: Tensor, mask: Tensor | None = None, *, scale: float = 1.0, log: bool = False) -> Tensor:
    """(Log-)softmax of x, (..., N), in FP64."""
    x64 = x.double() * scale
    if mask is not None:
        x64 = x64.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else x64 + mask.double()
    return torch.log_softmax(x64, -1) if log else torch.softmax(x64, -1)
