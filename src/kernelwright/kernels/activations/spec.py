"""Spec of the activations: variants for offline compilation, shapes, and memory traffic."""

from __future__ import annotations

from kernelwright.core.work import Work
from kernelwright.kernels.kernel_spec import Kernel, OfflineSignature, ParamMap
from kernelwright.kernels.rows.shapes import SHAPES as ROWS

KINDS = ("silu", "gelu", "gelu_tanh", "relu_squared", "identity")
SHAPES = ((8192, 14336), *ROWS)

_KERNEL_MODULE = "kernelwright.kernels.activations.kernel"
_COMMON_PARAMS: ParamMap = {
    "x_ptr": "*bf16",
    "y_ptr": "*bf16",
    "dy_ptr": "*bf16",
    "dx_ptr": "*bf16",
    "numel": "i32",
    "seed": "i32",
    "N": 14336,
    "CAST_FIRST": False,
    "p": 0.0,
    "BLOCK": 1024,
}
_GATED: ParamMap = {"up_ptr": "*bf16", "dup_ptr": "*bf16"}


def _activation(name: str, summary: str, kind: str, source: str, extra_params: ParamMap) -> Kernel:
    params = _COMMON_PARAMS | extra_params | {"KIND": kind}
    return Kernel(
        name=name,
        summary=summary,
        entry_point=f"kernelwright.kernels:{name}",
        variants={
            "forward": OfflineSignature(f"{_KERNEL_MODULE}:activation_forward", params, 4),
            "backward": OfflineSignature(f"{_KERNEL_MODULE}:activation_backward", params, 4),
        },
        limits="rows with uniform stride are read without a copy",
        source=source,
    )


_SHAZEER, _GELU = "Shazeer 2020, arXiv:2002.05202", "Hendrycks & Gimpel 2016, arXiv:1606.08415"
KERNELS = (
    _activation("swiglu", "silu(gate) * up", "silu", _SHAZEER, _GATED),
    _activation("geglu", "gelu(gate) * up", "gelu_tanh", _SHAZEER, _GATED),
    _activation("gelu", "gelu(x + bias), exact or tanh", "gelu", _GELU, {}),
    _activation("relu_squared", "max(x + bias, 0)^2", "relu_squared", "So et al. 2021, arXiv:2109.08668", {}),
    _activation(
        "dropout_add",
        "residual + dropout(x + bias), reproducible by seed",
        "identity",
        "Philox: Salmon et al. 2011",
        {"residual_ptr": "*bf16", "p": 0.1},
    ),
)


def work(M: int, N: int, itemsize: int, *, gated: bool = False, residual: bool = False, backward: bool = False) -> Work:
    """Memory traffic for M rows of N elements."""
    tensor_bytes, operands = M * N * itemsize, 1 + gated
    if backward:
        return Work(bytes_read=(1 + operands) * tensor_bytes, bytes_written=operands * tensor_bytes)
    return Work(bytes_read=(operands + residual) * tensor_bytes, bytes_written=tensor_bytes)
