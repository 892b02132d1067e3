"""Reference in FP64."""

from __future__ import annotations

from torch import Tensor


def norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    eps: float,
    offset: float = 0.0,
    centred: bool = False,
) -> Tensor:
    """RMSNorm, or LayerNorm if `centred`, of x, (..., N), in FP64."""
    x64 = x.double() if residual is None else x.double() + residual.double()
    if centred:
        x64 = x64 - x64.mean(-1, keepdim=True)
    result = x64 * (x64.square().mean(-1, keepdim=True) + eps).rsqrt()
    result = result if weight is None else result * (weight.double() + offset)
    return result if bias is None else result + bias.double()
