"""The formulas, in FP64."""

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
    """x: (..., N) -> (..., N) in FP64."""
    wide = x.double() if residual is None else x.double() + residual.double()
    if centred:
        wide = wide - wide.mean(-1, keepdim=True)
    result = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    result = result if weight is None else result * (weight.double() + offset)
    return result if bias is None else result + bias.double()
