"""The formula, in FP64."""

from __future__ import annotations

import torch
from torch import Tensor


def rotary_embedding(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False) -> Tensor:
    """x: (B, S, H, D), cos and sin: (S, R / 2) or (B, S, R / 2) -> (B, S, H, D) in FP64."""
    wide, cos, sin = x.double(), cos.double().unsqueeze(-2), sin.double().unsqueeze(-2)
    R = 2 * cos.shape[-1]
    turned, beyond = wide[..., :R], wide[..., R:]
    one, other = (turned[..., ::2], turned[..., 1::2]) if interleaved else turned.chunk(2, -1)
    pair = one * cos - other * sin, other * cos + one * sin
    turned = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    return torch.cat((turned, beyond), -1)
