"""Kernel library for torch programs, usable without the rest of this package. `kw kernels` lists the kernels.

Importing this module does not import torch; each name is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernelwright.core.errors import MissingDependency

if TYPE_CHECKING:
    from kernelwright.kernels.activations.op import activation, dropout_add, geglu, gelu, relu_squared, swiglu
    from kernelwright.kernels.losses.linear import linear_cross_entropy
    from kernelwright.kernels.losses.op import cross_entropy
    from kernelwright.kernels.matmul.op import gemm, linear
    from kernelwright.kernels.matmul.product import gemm_is_available
    from kernelwright.kernels.matmul.row_statistics import gemm_with_row_statistics
    from kernelwright.kernels.norms.op import LayerNorm, RMSNorm, layer_norm, rms_norm
    from kernelwright.kernels.operators import ShapeError
    from kernelwright.kernels.rotary.op import rotary_embedding
    from kernelwright.kernels.softmaxes.op import log_softmax, softmax

_LAZY_IMPORTS = {
    "LayerNorm": "norms.op",
    "RMSNorm": "norms.op",
    "ShapeError": "operators",
    "activation": "activations.op",
    "cross_entropy": "losses.op",
    "dropout_add": "activations.op",
    "geglu": "activations.op",
    "gelu": "activations.op",
    "gemm": "matmul.op",
    "gemm_is_available": "matmul.product",
    "gemm_with_row_statistics": "matmul.row_statistics",
    "layer_norm": "norms.op",
    "linear": "matmul.op",
    "linear_cross_entropy": "losses.linear",
    "log_softmax": "softmaxes.op",
    "relu_squared": "activations.op",
    "rms_norm": "norms.op",
    "rotary_embedding": "rotary.op",
    "softmax": "softmaxes.op",
    "swiglu": "activations.op",
}
__all__ = [
    "LayerNorm",
    "RMSNorm",
    "ShapeError",
    "activation",
    "cross_entropy",
    "dropout_add",
    "geglu",
    "gelu",
    "gemm",
    "gemm_is_available",
    "gemm_with_row_statistics",
    "layer_norm",
    "linear",
    "linear_cross_entropy",
    "log_softmax",
    "relu_squared",
    "rms_norm",
    "rotary_embedding",
    "softmax",
    "swiglu",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'kernelwright.kernels' has no attribute {name!r}")
    try:
        return getattr(import_module(f"kernelwright.kernels.{_LAZY_IMPORTS[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise MissingDependency("the kernels need Triton", next="pip install 'kernelwright[cuda]'") from None


def __dir__() -> list[str]:
    return sorted(__all__)
