"""What follows a product."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 128
"""Elements that share a scale, along K and along the columns of b."""
ACTIVATIONS = {
    "none": "Identity",
    "relu": "Relu",
    "gelu": "GeluErf",
    "gelu_tanh": "GeluTanh",
    "silu": "Silu",
    "swiglu": "Identity",
}
"""Type of `kw/epilogue/activation.cuh` by name; `swiglu` is a layout of the tile."""
BF16_ACTIVATIONS = ACTIVATIONS | {"gelu": "GeluErfBf16"}
"""Those of results in BF16, unless the operands are in FP32."""
STATISTICS = {"none": "kNone", "square_sum": "kSquareSum", "log_sum_exp": "kMaxExpSum"}
"""Statistics of a result's rows, by their names in `gemm_params.cuh`."""


class Epilogue(NamedTuple):
    """What follows a product: activation(alpha * (a * scale_a) @ (b * scale_b) + bias + beta * residual)."""

    bias: Tensor | None
    residual: Tensor | None
    scale_a: Tensor | None
    scale_b: Tensor | None
    activation: str
    alpha: float
    beta: float
    statistics: str = "none"

    @property
    def has_block_scales(self) -> bool:
        """Whether the scales are those of blocks of 128 elements along K."""
        return self.scale_b is not None and self.scale_b.dim() > 1 and self.scale_b.shape[-2] > 1


PLAIN = Epilogue(None, None, None, None, "none", 1.0, 1.0)
