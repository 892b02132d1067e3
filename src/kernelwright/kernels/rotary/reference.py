"""Reference in FP64."""

from __future__ import annotations

import torch
from torch import Tensor


def rotary_embedding(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False) -> Tensor:
    """Rotate x, (B, S, H, D), by cos and sin, (S, R / 2) or (B, S, R / 2), in FP64."""
    x64, cos, sin = x.double(), cos.double().unsqueeze(-2), sin.double().unsqueeze(-2)
    R = 2 * cos.shape[-1]
    rotated, unrotated = x64[..., :R], x64[..., R:]
    x1, x2 = (rotated[..., ::2], rotated[..., 1::2]) if interleaved else rotated.chunk(2, -1)
    pair = x1 * cos - x2 * sin, x2 * cos + x1 * sin
    rotated = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    return torch.cat((rotated, unrotated), -1)
