"""Spec of the matrix products: variants for offline compilation, shapes, FLOPs and memory traffic."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kernelwright.core.work import Work
from kernelwright.kernels.kernel_spec import DTYPES, CudaBuild, CudaSignature, Kernel
from kernelwright.kernels.matmul.configs import make_defines
from kernelwright.kernels.matmul.epilogue import BF16_ACTIVATIONS
from kernelwright.kernels.matmul.planning import BF16, ENTRY, FP8, FP8_BLOCKS, FP32, SOURCE, Product

__all__ = ["KERNELS", "RECORDED_SHAPES", "SHAPES", "SQUARES", "TOKENS", "WEIGHTS", "work"]

SQUARES = tuple((size, size, size) for size in (1024, 2048, 4096, 8192, 16384))
WEIGHTS = (
    (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336),
    (10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672),
    (24576, 1536), (7168, 16384), (4096, 7168), (7168, 2048), (2112, 7168),
    (128256, 4096),
)  # fmt: skip
"""(N, K) of Llama-3 8B, Llama-3 70B, DeepSeek-V3, and of a vocabulary."""
TOKENS = (1, 16, 64, 128, 512, 4096, 8192)
SHAPES = tuple(dict.fromkeys((*SQUARES, *((tokens, *weight) for weight in WEIGHTS for tokens in TOKENS))))
"""(M, N, K)."""
RECORDED_WEIGHTS = ((6144, 4096), (28672, 4096), (4096, 14336), (57344, 8192), (7168, 16384), (2112, 7168))
RECORDED_SHAPES = (*SQUARES, *((tokens, *weight) for weight in RECORDED_WEIGHTS for tokens in TOKENS))
"""A part that is measured in two minutes."""
H100_SMS = 132


def _signature(product: Product) -> CudaSignature:
    return CudaSignature(__name__.rpartition(".")[0], SOURCE, ENTRY, partial(_choose_build, product))


def _choose_build(product: Product) -> CudaBuild:
    config, variant = product.plan(H100_SMS)
    return CudaBuild(make_defines(config, variant), config.threads, variant.shared_bytes(config))


_LIMITS = (
    "tensor cores on Hopper, torch's operators elsewhere; strides that TMA cannot address are copied; no gradients "
    "through FP8 scales"
)
_SOURCE = "PTX ISA (wgmma, TMA); FP32: Ootomo & Yokota 2022, arXiv:2203.03341"
_SQUARE = 8192, 8192, 8192
KERNELS = (
    Kernel(
        name="gemm",
        summary="activation(alpha * a @ b + bias + beta * residual), FP32 operands at FP32 accuracy",
        entry_point="kernelwright.kernels:gemm",
        variants={
            "bf16": _signature(Product(*_SQUARE, BF16)),
            "rows of b": _signature(Product(*_SQUARE, replace(BF16, transpose_b=True))),
            "few rows": _signature(Product(16, 28672, 4096, BF16)),
            "fp8": _signature(Product(*_SQUARE, FP8)),
            "fp8 blocks": _signature(Product(*_SQUARE, FP8_BLOCKS)),
            "fp32": _signature(Product(*_SQUARE, FP32, terms=2)),
        },
        limits=_LIMITS,
        source=_SOURCE,
        dtypes=(*DTYPES, "float8_e4m3fn", "float8_e5m2"),
    ),
    Kernel(
        name="linear",
        summary="activation(x @ weight.T + bias + residual)",
        entry_point="kernelwright.kernels:linear",
        variants={
            "bias gelu": _signature(
                Product(8192, 14336, 4096, replace(BF16, bias=True, activation=BF16_ACTIVATIONS["gelu"]))
            ),
            "swiglu": _signature(Product(8192, 14336, 4096, replace(BF16, gated=True))),
        },
        limits=_LIMITS,
        source=_SOURCE,
        dtypes=DTYPES,
    ),
)


def work(
    M: int,
    N: int,
    K: int,
    *,
    dtype: str = "bfloat16",
    itemsize: int = 2,
    out_itemsize: int = 2,
    gated: bool = False,
    backward: bool = False,
) -> Work:
    """FLOPs and memory traffic of (M, K) by (K, N); bias and scales are negligible.

    Args:
        gated: the weight holds N columns of a gate, too.
        backward: the gradients of both operands.
    """
    columns = 2 * N if gated else N
    flops, operands, result = 2 * M * columns * K, (M * K + columns * K) * itemsize, M * N * out_itemsize
    if backward:
        return Work(flops={f"matrix/{dtype}": 2 * flops}, bytes_read=operands + result, bytes_written=operands)
    return Work(flops={f"matrix/{dtype}": flops}, bytes_read=operands, bytes_written=result)
