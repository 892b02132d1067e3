"""Spec of rotary embedding: variants for offline compilation, shapes, and memory traffic."""

from __future__ import annotations

from kernelwright.core.work import Work
from kernelwright.kernels.kernel_spec import Kernel, OfflineSignature, ParamMap

SHAPES = ((4, 4096, 32, 8, 128), (1, 16384, 64, 8, 128), (8, 2048, 16, 16, 64), (1, 1, 32, 8, 128))
"""(B, S, H of queries, H of keys, D)."""

_STRIDES = [f"stride_{tensor}{dim}" for tensor in ("q", "k", "qo", "ko") for dim in ("b", "s", "h")]
_COMMON_PARAMS: ParamMap = {
    **dict.fromkeys(("q_ptr", "k_ptr", "q_out_ptr", "k_out_ptr"), "*bf16"),
    **dict.fromkeys(("cos_ptr", "sin_ptr"), "*fp32"),
    **dict.fromkeys(("S", *_STRIDES, "stride_cb", "stride_cs", "stride_pb", "stride_ps"), "i32"),
    "HEADS_Q": 32,
    "HEADS_K": 8,
    "D": 128,
    "R": 128,
    "INVERSE": False,
    "HEADS_PER_PROGRAM": 0,
}
_ROTARY = "kernelwright.kernels.rotary.kernel:rotary"

KERNELS = (
    Kernel(
        name="rotary_embedding",
        summary="queries and keys rotated in one launch",
        entry_point="kernelwright.kernels:rotary_embedding",
        variants={
            "halves": OfflineSignature(_ROTARY, _COMMON_PARAMS | {"INTERLEAVED": False}, 4),
            "interleaved": OfflineSignature(_ROTARY, _COMMON_PARAMS | {"INTERLEAVED": True}, 4),
            "few tokens": OfflineSignature(_ROTARY, _COMMON_PARAMS | {"INTERLEAVED": False, "HEADS_PER_PROGRAM": 8}, 4),
        },
        limits="heads with unit stride are read without a copy",
        source="Su et al. 2021, arXiv:2104.09864",
    ),
)


def work(B: int, S: int, heads_q: int, heads_k: int, D: int, itemsize: int) -> Work:
    """Memory traffic: queries and keys, read and written; the angles are negligible."""
    tensor_bytes = B * S * (heads_q + heads_k) * D * itemsize
    return Work(bytes_read=tensor_bytes, bytes_written=tensor_bytes)
