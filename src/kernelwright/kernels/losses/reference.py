"""The formula, in FP64."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
) -> Tensor:
    """x: (M, N), target: (M,) -> (M,) or one number, in FP64."""
    wide = x.double()
    wide = softcap * torch.tanh(wide / softcap) if softcap else wide
    weights = torch.ones_like(wide[0]) if weight is None else weight.double()
    about = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    loss = F.cross_entropy(wide, target, weights, reduction="none", **about)
    counted = target != ignore_index
    loss = loss + torch.where(counted, z_loss * torch.logsumexp(wide, -1).square(), 0.0)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    return loss.sum() / weights[target[counted]].sum()
