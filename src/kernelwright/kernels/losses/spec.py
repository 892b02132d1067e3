"""What cross-entropy must move, and where it is measured."""

from __future__ import annotations

from kernelwright.core.records import Work
from kernelwright.kernels.kernel_spec import Given, Kernel, Sample
from kernelwright.kernels.rows.shapes import SHAPES, TILE, rows_of

__all__ = ["KERNELS", "SHAPES", "work"]

_HOME = "kernelwright.kernels.losses.kernel"
_OPTIONS: Given = {"ignore_index": -100, "smoothing": 0.0, "z": 0.0, "cap": 0.0}
_GIVEN = TILE | rows_of("x") | _OPTIONS | {"target_ptr": "*i64", "lse_ptr": "*fp32"}
_LOSS: Given = {"loss_ptr": "*fp32", "BLOCK_N": 1024, "ELEMENTS": 8, "TILES": 4, "STAGES": 3}
_LONG: Given = _LOSS | {"N": 128256, "BLOCK_N": 256}
_SHARED: Given = _LONG | {"PARTS": 8, "notes_ptr": "*i64", "smoothing": 0.1}
_WRITTEN = rows_of("dx") | {"loss_ptr": "*fp32", "scale_ptr": "*fp32"}
_FORWARD = "kernelwright.kernels.losses.forward_kernel:cross_entropy_forward"
_GRADIENT, _BACKWARD = f"{_HOME}:cross_entropy_gradient", f"{_HOME}:cross_entropy_backward"

KERNELS = (
    Kernel(
        name="cross_entropy",
        about="cross-entropy of logits: smoothing, z-loss, soft cap, weights",
        call="kernelwright.kernels:cross_entropy",
        variants={
            "forward": Sample(_FORWARD, _GIVEN | _LOSS, 4),
            "chunks": Sample(_FORWARD, _GIVEN | _LONG, 1),
            "parts": Sample(_FORWARD, _GIVEN | _SHARED, 1),
            "inplace": Sample(_GRADIENT, _GIVEN | _WRITTEN, 4),
            "backward": Sample(_BACKWARD, _GIVEN | {"dloss_ptr": "*fp32", "dloss_stride": 1, "dx_ptr": "*bf16"}, 4),
        },
        limits="classes are the last dimension; targets of int64",
        source="Milakov & Gimelshein 2018, arXiv:1805.02867",
    ),
    Kernel(
        name="linear_cross_entropy",
        about="cross-entropy of a linear layer, its logits never all stored",
        call="kernelwright.kernels:linear_cross_entropy",
        variants={"loss": Sample(_GRADIENT, _GIVEN | _WRITTEN, 4)},
        limits="reduction mean or sum; the products are torch's",
        source="Wijmans et al. 2024, arXiv:2411.09009",
    ),
)


def work(M: int, N: int, itemsize: int, *, backward: bool = False, both: bool = False) -> Work:
    """Bytes that must pass for M rows of N logits: the loss reads them, the gradient is written beside another read, or
    beside the loss's own where `both` come of one program."""
    whole = M * N * itemsize
    return Work(flops={"special/float32": M * N}, bytes_read=whole, bytes_written=whole if backward or both else 0)
