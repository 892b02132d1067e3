"""What a norm is given, what it must move, and where it is measured."""

from __future__ import annotations

from kernelwright.core.work import Work
from kernelwright.kernels.kernel_spec import Kernel, OfflineSignature, ParamMap
from kernelwright.kernels.rows.shapes import SHAPES, TILE_PARAMS, row_params

__all__ = ["KERNELS", "SHAPES", "work"]

_KERNEL_PACKAGE = "kernelwright.kernels.norms"
_COMMON_PARAMS = TILE_PARAMS | row_params("x") | {"weight_ptr": "*bf16", "offset": 0.0, "CAST_FIRST": False}
_RESIDUAL_PARAMS: ParamMap = {"r_inner": 1, "r_outer_stride": 4096, "r_inner_stride": 0}
_FORWARD = _COMMON_PARAMS | _RESIDUAL_PARAMS | {"y_ptr": "*bf16", "eps": 1e-6, "AHEAD": True}
_GRADIENT_PARAMS: ParamMap = {"dx_ptr": "*bf16", "dweight_ptr": "*fp32", "STAGES": 2, "TILES": 1}
_BACKWARD = _COMMON_PARAMS | row_params("dy") | _GRADIENT_PARAMS | {"rstd_ptr": "*fp32"}
_LAYER_NORM_PARAMS: ParamMap = {"CENTRED": True, "AHEAD": False, "bias_ptr": "*bf16", "mean_ptr": "*fp32"}


def _norm(name: str, about: str, centred: bool, source: str) -> Kernel:
    more = _LAYER_NORM_PARAMS if centred else {"CENTRED": False}
    return Kernel(
        name=name,
        summary=about,
        entry_point=f"kernelwright.kernels:{name}",
        variants={
            "forward": OfflineSignature(f"{_KERNEL_PACKAGE}.kernel:norm_forward", _FORWARD | more, 4),
            "backward": OfflineSignature(f"{_KERNEL_PACKAGE}.backward_kernel:norm_backward", _BACKWARD | more, 8),
        },
        limits="the last dimension; statistics in FP32",
        source=source,
    )


KERNELS = (
    _norm("rms_norm", "RMSNorm, with a residual added before", False, "Zhang & Sennrich 2019, arXiv:1910.07467"),
    _norm("layer_norm", "LayerNorm, with a residual added before", True, "Ba et al. 2016, arXiv:1607.06450"),
)


def work(M: int, N: int, itemsize: int, *, backward: bool = False, residual: bool = False) -> Work:
    """Bytes that must pass for rows of N elements; weights and statistics are not worth counting."""
    whole = M * N * itemsize
    if backward:
        return Work(bytes_read=(3 if residual else 2) * whole, bytes_written=whole)
    tensors = 2 if residual else 1
    return Work(bytes_read=tensors * whole, bytes_written=tensors * whole)
