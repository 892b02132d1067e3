"""The formula, in FP64."""

from __future__ import annotations

import torch
from torch import Tensor


def softmax(x: Tensor, mask: Tensor | None = None, *, scale: float = 1.0, log: bool = False) -> Tensor:
    """x: (..., N) -> (..., N) in FP64."""
    wide = x.double() * scale
    if mask is not None:
        wide = wide.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else wide + mask.double()
    return torch.log_softmax(wide, -1) if log else torch.softmax(wide, -1)
