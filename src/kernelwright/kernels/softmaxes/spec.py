"""Spec of softmax: variants for offline compilation, shapes, and memory traffic."""

from __future__ import annotations

from kernelwright.core.work import Work
from kernelwright.kernels.kernel_spec import Kernel, OfflineSignature
from kernelwright.kernels.rows.shapes import SHAPES, TILE_PARAMS, row_params

__all__ = ["KERNELS", "SHAPES", "work"]

_KERNEL_MODULE = "kernelwright.kernels.softmaxes.kernel"
_FORWARD = TILE_PARAMS | row_params("x") | {"y_ptr": "*bf16", "scale": "fp32", "NUM_TILES": 1}
_BACKWARD = (
    TILE_PARAMS
    | row_params("dy")
    | {"y_ptr": "*bf16", "dx_ptr": "*bf16", "scale": "fp32", "HAS_BOOL_MASK": False, "NUM_TILES": 1}
)


def _softmax(name: str, summary: str, log: bool) -> Kernel:
    return Kernel(
        name=name,
        summary=summary,
        entry_point=f"kernelwright.kernels:{name}",
        variants={
            "forward": OfflineSignature(f"{_KERNEL_MODULE}:softmax_forward", _FORWARD | {"LOG_SOFTMAX": log}, 4),
            "backward": OfflineSignature(f"{_KERNEL_MODULE}:softmax_backward", _BACKWARD | {"LOG_SOFTMAX": log}, 8),
        },
        limits="the last dimension; a mask gets no gradient",
        source="Milakov & Gimelshein 2018, arXiv:1805.02867",
    )


KERNELS = (
    _softmax("softmax", "softmax of rows with scale and mask", False),
    _softmax("log_softmax", "log-softmax of rows with scale and mask", True),
)


def work(M: int, N: int, itemsize: int, *, backward: bool = False) -> Work:
    """Memory traffic for M rows of N elements, and one exponential per element."""
    whole = M * N * itemsize
    return Work(flops={"special/float32": M * N}, bytes_read=(2 if backward else 1) * whole, bytes_written=whole)
