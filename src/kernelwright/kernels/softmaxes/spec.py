"""What softmax must move, and where it is measured."""

from __future__ import annotations

from kernelwright.core.work import Work
from kernelwright.kernels.kernel_spec import Kernel, OfflineSignature
from kernelwright.kernels.rows.shapes import SHAPES, TILE_PARAMS, row_params

__all__ = ["KERNELS", "SHAPES", "work"]

_KERNEL_MODULE = "kernelwright.kernels.softmaxes.kernel"
_FORWARD = TILE_PARAMS | row_params("x") | {"y_ptr": "*bf16", "scale": "fp32", "TILES": 1}
_BACKWARD = (
    TILE_PARAMS | row_params("dy") | {"y_ptr": "*bf16", "dx_ptr": "*bf16", "scale": "fp32", "MASKED": False, "TILES": 1}
)


def _softmax(name: str, about: str, log: bool) -> Kernel:
    return Kernel(
        name=name,
        summary=about,
        entry_point=f"kernelwright.kernels:{name}",
        variants={
            "forward": OfflineSignature(f"{_KERNEL_MODULE}:softmax_forward", _FORWARD | {"LOG": log}, 4),
            "backward": OfflineSignature(f"{_KERNEL_MODULE}:softmax_backward", _BACKWARD | {"LOG": log}, 8),
        },
        limits="the last dimension; a mask gets no gradient",
        source="Milakov & Gimelshein 2018, arXiv:1805.02867",
    )


KERNELS = (
    _softmax("softmax", "softmax of rows, scaled and masked", False),
    _softmax("log_softmax", "its logarithm, scaled and masked", True),
)


def work(M: int, N: int, itemsize: int, *, backward: bool = False) -> Work:
    """Bytes that must pass for rows of N elements, and an exponential for each."""
    whole = M * N * itemsize
    return Work(flops={"special/float32": M * N}, bytes_read=(2 if backward else 1) * whole, bytes_written=whole)
