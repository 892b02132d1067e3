"""What softmax must move, and where it is measured."""

from __future__ import annotations

from kernelwright.core.records import Work
from kernelwright.kernels.member import Given, Kernel, Sample
from kernelwright.kernels.rows.shapes import SHAPES

__all__ = ["KERNELS", "SHAPES", "work"]

_HOME = "kernelwright.kernels.softmaxes.kernel"
_GIVEN: Given = {
    "N": 4096,
    "ROWS": 1,
    "BLOCK_N": 4096,
    "PARTS": 1,
    "STEP": 0,
    "M": "i32",
    "scale": "fp32",
    "MASKED": False,
    "y_ptr": "*bf16",
    "x_ptr": "*bf16",
    "x_inner": 1,
    "x_outer_stride": "i32",
    "x_inner_stride": 0,
    "dy_ptr": "*bf16",
    "dx_ptr": "*bf16",
    "dy_inner": 1,
    "dy_outer_stride": "i32",
    "dy_inner_stride": 0,
}


def _softmax(name: str, about: str, log: bool) -> Kernel:
    return Kernel(
        name=name,
        about=about,
        call=f"kernelwright.kernels:{name}",
        variants={
            "forward": Sample(f"{_HOME}:softmax_forward", _GIVEN | {"LOG": log}, 4),
            "backward": Sample(f"{_HOME}:softmax_backward", _GIVEN | {"LOG": log}, 8),
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
