"""Reference in FP64."""

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
    """Cross-entropy of x, (M, N), and target, (M,), in FP64: (M,), or a scalar if reduced."""
    x64 = x.double()
    x64 = softcap * torch.tanh(x64 / softcap) if softcap else x64
    weights = torch.ones_like(x64[0]) if weight is None else weight.double()
    options = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    loss = F.cross_entropy(x64, target, weights, reduction="none", **options)
    not_ignored = target != ignore_index
    loss = loss + torch.where(not_ignored, z_loss * torch.logsumexp(x64, -1).square(), 0.0)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    return loss.sum() / weights[target[not_ignored]].sum()
