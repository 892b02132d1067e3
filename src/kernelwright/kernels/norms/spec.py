"""Spec of the norms: variants for offline compilation, shapes, and memory traffic."""

from __future__ import annotations

from kernelwright.core.work import Work
from kernelwright.kernels.kernel_spec import Kernel, OfflineSignature, ParamMap
from kernelwright.kernels.rows.shapes import SHAPES, TILE_PARAMS, row_params

__all__ = ["KERNELS", "SHAPES", "work"]

_KERNEL_PACKAGE = "kernelwright.kernels.norms"
_COMMON_PARAMS = TILE_PARAMS | row_params("x") | {"weight_ptr": "*bf16", "weight_offset": 0.0, "CAST_FIRST": False}
_RESIDUAL_PARAMS: ParamMap = {"r_inner_size": 1, "stride_r_outer": 4096, "stride_r_inner": 0}
_FORWARD = _COMMON_PARAMS | _RESIDUAL_PARAMS | {"y_ptr": "*bf16", "eps": 1e-6, "PRELOAD_WEIGHT": True}
_GRADIENT_PARAMS: ParamMap = {"dx_ptr": "*bf16", "dweight_ptr": "*fp32", "NUM_STAGES": 2, "NUM_TILES": 1}
_BACKWARD = _COMMON_PARAMS | row_params("dy") | _GRADIENT_PARAMS | {"rstd_ptr": "*fp32"}
_LAYER_NORM_PARAMS: ParamMap = {
    "SUBTRACT_MEAN": True,
    "PRELOAD_WEIGHT": False,
    "bias_ptr": "*bf16",
    "mean_ptr": "*fp32",
}


def _norm(name: str, summary: str, centred: bool, source: str) -> Kernel:
    extra_params = _LAYER_NORM_PARAMS if centred else {"SUBTRACT_MEAN": False}
    return Kernel(
        name=name,
        summary=summary,
        entry_point=f"kernelwright.kernels:{name}",
        variants={
            "forward": OfflineSignature(f"{_KERNEL_PACKAGE}.kernel:norm_forward", _FORWARD | extra_params, 4),
            "backward": OfflineSignature(
                f"{_KERNEL_PACKAGE}.backward_kernel:norm_backward", _BACKWARD | extra_params, 8
            ),
        },
        limits="the last dimension; statistics in FP32",
        source=source,
    )


KERNELS = (
    _norm("rms_norm", "RMSNorm of x or x + residual", False, "Zhang & Sennrich 2019, arXiv:1910.07467"),
    _norm("layer_norm", "LayerNorm of x or x + residual", True, "Ba et al. 2016, arXiv:1607.06450"),
)


def work(M: int, N: int, itemsize: int, *, backward: bool = False, residual: bool = False) -> Work:
    """Memory traffic for M rows of N elements; weights and statistics are negligible."""
    tensor_bytes = M * N * itemsize
    if backward:
        return Work(bytes_read=(3 if residual else 2) * tensor_bytes, bytes_written=tensor_bytes)
    tensors = 2 if residual else 1
    return Work(bytes_read=tensors * tensor_bytes, bytes_written=tensors * tensor_bytes)
