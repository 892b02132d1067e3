"""Spec of cross-entropy: variants for offline compilation, shapes, and memory traffic."""

from __future__ import annotations

from kernelwright.core.work import Work
from kernelwright.kernels.kernel_spec import Kernel, OfflineSignature, ParamMap
from kernelwright.kernels.rows.shapes import SHAPES, TILE_PARAMS, row_params

__all__ = ["KERNELS", "SHAPES", "work"]

_KERNEL_MODULE = "kernelwright.kernels.losses.kernel"
_OPTIONS: ParamMap = {"ignore_index": -100, "label_smoothing": 0.0, "z_loss": 0.0, "softcap": 0.0}
_COMMON_PARAMS = TILE_PARAMS | row_params("x") | _OPTIONS | {"target_ptr": "*i64", "lse_ptr": "*fp32"}
_TILED_PARAMS: ParamMap = {"loss_ptr": "*fp32", "BLOCK_N": 1024, "ELEMS_PER_LOAD": 8, "NUM_TILES": 4, "NUM_STAGES": 3}
_CHUNKED_PARAMS: ParamMap = _TILED_PARAMS | {"N": 128256, "BLOCK_N": 256}
_SPLIT_PARAMS: ParamMap = _CHUNKED_PARAMS | {"NUM_SPLITS": 8, "workspace_ptr": "*i64", "label_smoothing": 0.1}
_GRADIENT_PARAMS = row_params("dx") | {"loss_ptr": "*fp32", "scale_ptr": "*fp32"}
_FORWARD = "kernelwright.kernels.losses.forward_kernel:cross_entropy_forward"
_GRADIENT, _BACKWARD = f"{_KERNEL_MODULE}:cross_entropy_gradient", f"{_KERNEL_MODULE}:cross_entropy_backward"

KERNELS = (
    Kernel(
        name="cross_entropy",
        summary="cross-entropy of logits: label smoothing, z-loss, soft cap, class weights",
        entry_point="kernelwright.kernels:cross_entropy",
        variants={
            "forward": OfflineSignature(_FORWARD, _COMMON_PARAMS | _TILED_PARAMS, 4),
            "chunks": OfflineSignature(_FORWARD, _COMMON_PARAMS | _CHUNKED_PARAMS, 1),
            "parts": OfflineSignature(_FORWARD, _COMMON_PARAMS | _SPLIT_PARAMS, 1),
            "inplace": OfflineSignature(_GRADIENT, _COMMON_PARAMS | _GRADIENT_PARAMS, 4),
            "backward": OfflineSignature(
                _BACKWARD, _COMMON_PARAMS | {"dloss_ptr": "*fp32", "dloss_stride": 1, "dx_ptr": "*bf16"}, 4
            ),
        },
        limits="classes are the last dimension; int64 targets",
        source="Milakov & Gimelshein 2018, arXiv:1805.02867",
    ),
    Kernel(
        name="linear_cross_entropy",
        summary="cross-entropy of a linear layer without storing all logits",
        entry_point="kernelwright.kernels:linear_cross_entropy",
        variants={"loss": OfflineSignature(_GRADIENT, _COMMON_PARAMS | _GRADIENT_PARAMS, 4)},
        limits="the GEMMs are torch's",
        source="Wijmans et al. 2024, arXiv:2411.09009",
    ),
)


def work(M: int, N: int, itemsize: int, *, backward: bool = False, with_gradient: bool = False) -> Work:
    """Memory traffic for M rows of N logits.

    The forward pass reads the logits; the backward pass reads them again and writes the gradient; `with_gradient` is
    one kernel that reads once and writes the gradient.
    """
    tensor_bytes = M * N * itemsize
    return Work(
        flops={"special/float32": M * N},
        bytes_read=tensor_bytes,
        bytes_written=tensor_bytes if backward or with_gradient else 0,
    )
