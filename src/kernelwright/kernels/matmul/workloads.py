"""Benchmark workloads of the matrix products: ours, cuBLAS through torch, cublasLt's best heuristic, and quack."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernelwright.kernels.matmul import reference
from kernelwright.kernels.matmul.epilogue import BF16_ACTIVATIONS, BLOCK
from kernelwright.kernels.matmul.op import gemm, linear
from kernelwright.kernels.matmul.planning import BF16, FP8, FP8_BLOCKS, FP8_TENSORS, FP32, Product, plan_launches
from kernelwright.kernels.matmul.spec import RECORDED_SHAPES, SHAPES, work
from kernelwright.kernels.workload import (
    EAGER,
    OURS,
    Direction,
    Implementation,
    Workload,
    import_peers,
    randn,
)

__all__ = ["USE_CASES", "UseCase", "full_workloads", "workloads"]

CUBLASLT = ("cublasLt",)
LAYOUT_SHAPES = ((4096, 4096, 4096), (8192, 8192, 8192), *((tokens, 28672, 4096) for tokens in (1, 16, 128, 4096)))
LARGE_SQUARES = ((4096, 4096, 4096), (8192, 8192, 8192))
FEW_ROWS = ((16, 4096, 4096), (64, 14336, 4096))
KERNELBENCH_LINEARS = (
    *((rows, 8192, 8192) for rows in (1024, 2048)),
    *((128, size, size) for size in (16384, 32768)),
    (16384, 4096, 4096), (16384, 4096, 2048), (32768, 4096, 1024),
)  # fmt: skip
KERNELBENCH_PRODUCTS = (
    (4096, 4096, 4096), (2048, 4096, 8192), (256, 256, 524288), (32768, 32768, 64), (8205, 5921, 2949),
    (32768, 32768, 32), (16384, 768, 2048), (1048576, 768, 256),
)  # fmt: skip
"""M, N, K of KernelBench's FP32 products: linear layers of level 2, and level 1, where b is contiguous along N."""
FP32_SHAPES = ((1024, 1024, 1024), *LARGE_SQUARES, (512, 6144, 4096), *FEW_ROWS, *KERNELBENCH_LINEARS)
LINEAR_SHAPES = ((512, 6144, 4096), (8192, 4096, 14336))
EPILOGUE_SHAPE = (8192, 14336, 4096)
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class UseCase:
    """A kind of product.

    Attributes:
        recorded, shapes: (M, N, K) that are recorded, and all.
        make_inputs: takes M, N, K and whether gradients are needed.
        products: what is launched for M, N, K in the timed direction.
        work_options: of `spec.work`.
        peers: baselines that `benchmark` provides.
    """

    kernel: str
    name: str
    recorded: tuple[Shape, ...]
    make_inputs: Callable[..., tuple[Tensor, ...]]
    implementations: dict[str, Implementation]
    reference: Implementation
    products: Callable[[int, int, int], tuple[Product, ...]]
    work_options: dict[str, Any]
    shapes: tuple[Shape, ...] = ()
    peers: tuple[str, ...] = ()
    direction: Direction = "forward"

    def workloads(self, shapes: Iterable[Shape]) -> Iterator[Workload]:
        """One workload for each shape."""
        for shape in shapes:
            yield Workload(
                kernel=self.kernel,
                use_case=self.name,
                size=shape,
                direction=self.direction,
                make_inputs=partial(self.make_inputs, *shape, self.direction != "forward"),
                implementations=self.implementations,
                reference=self.reference,
                work=work(*shape, **self.work_options),
                library_peers=self.peers,
                plan=partial(plan_launches, self.products(*shape)),
            )


def _product(M: int, N: int, K: int, **changes: Any) -> tuple[Product, ...]:
    return (Product(M, N, K, replace(BF16, **changes)),)


def _fp8_product(M: int, N: int, K: int, by_row: bool) -> tuple[Product, ...]:
    return (Product(M, N, K, FP8 if by_row else FP8_TENSORS),)


def _fp8_block_product(M: int, N: int, K: int) -> tuple[Product, ...]:
    return (Product(M, N, K, FP8_BLOCKS),)


def _fp32_product(M: int, N: int, K: int, **changes: Any) -> tuple[Product, ...]:
    return (Product(M, N, K, replace(FP32, **changes), terms=2),)


def _linear_gradients(M: int, N: int, K: int) -> tuple[Product, ...]:
    """Of the input, from gradient and weight; of the weight, from input and gradient."""
    of_input = replace(BF16, transpose_b=True)
    return Product(M, K, N, of_input), Product(K, N, M, replace(of_input, transpose_a=True))


def _operands(M: int, N: int, K: int, grad: bool) -> tuple[Tensor, ...]:
    return randn(M, K), randn(N, K).T


def _operands_by_rows(M: int, N: int, K: int, grad: bool) -> tuple[Tensor, ...]:
    return randn(M, K), randn(K, N)


def _fp32_operands(M: int, N: int, K: int, grad: bool) -> tuple[Tensor, ...]:
    return randn(M, K, dtype=torch.float32), randn(N, K, dtype=torch.float32).T


def _fp32_operands_by_rows(M: int, N: int, K: int, grad: bool) -> tuple[Tensor, ...]:
    return randn(M, K, dtype=torch.float32), randn(K, N, dtype=torch.float32)


def _fp8_operands(M: int, N: int, K: int, grad: bool, by_row: bool) -> tuple[Tensor, ...]:
    a, b = (randn(rows, K, dtype=torch.float8_e4m3fn) for rows in (M, N))
    sizes = ((M, 1), (1, N)) if by_row else ((), ())
    scales = (torch.rand(size, device="cuda") + 0.5 for size in sizes)
    return a, b.T, *scales


def _fp8_block_operands(M: int, N: int, K: int, grad: bool) -> tuple[Tensor, ...]:
    """Scales in the layout that torch needs: contiguous along M and along K."""
    a, b = (randn(rows, K, dtype=torch.float8_e4m3fn) for rows in (M, N))
    scales = (torch.rand(size, device="cuda") + 0.5 for size in ((K // BLOCK, M), (N // BLOCK, K // BLOCK)))
    return a, b.T, *(one.T for one in scales)


def _linear_inputs(M: int, N: int, K: int, grad: bool) -> tuple[Tensor, ...]:
    return randn(M, K, grad=grad), randn(N, K, grad=grad)


def _bias_inputs(M: int, N: int, K: int, grad: bool) -> tuple[Tensor, ...]:
    return randn(M, K), _weight(N, K), randn(N)


def _gated_inputs(M: int, N: int, K: int, grad: bool) -> tuple[Tensor, ...]:
    return randn(M, K), _weight(2 * N, K)


def _weight(N: int, K: int) -> Tensor:
    """A weight that keeps the variance."""
    return (randn(N, K, dtype=torch.float32) * K**-0.5).bfloat16()


def _scaled_mm(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, fast: bool = False) -> Tensor:
    return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=fast)


def _dequantized_mm(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    """A product in BF16 of operands that were multiplied by their scales."""
    b_scales = scale_b.bfloat16().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return (a.bfloat16() * scale_a.bfloat16().repeat_interleave(BLOCK, 1)) @ (b.bfloat16() * b_scales)


def _eager_swiglu(x: Tensor, weight: Tensor) -> Tensor:
    gate, up = F.linear(x, weight).chunk(2, -1)
    return F.silu(gate) * up


_PLAIN: dict[str, Implementation] = {
    OURS: gemm,
    EAGER: torch.matmul,
    **import_peers(quack=("quack.gemm_interface:gemm", lambda run: lambda a, b: run(a, b))),
}
_SCALED: dict[str, Implementation] = {
    OURS: lambda a, b, scale_a, scale_b: gemm(a, b, scale_a=scale_a, scale_b=scale_b),
    EAGER: _scaled_mm,
    "fast accumulation": partial(_scaled_mm, fast=True),
}
_BLOCK_SCALED: dict[str, Implementation] = {
    OURS: _SCALED[OURS],
    EAGER: _dequantized_mm,
    "scaled_mm": _scaled_mm,
}
_LINEAR: dict[str, Implementation] = {OURS: linear, EAGER: F.linear}
_BF16: dict[str, Any] = {"dtype": "bfloat16"}
_FP8: dict[str, Any] = {"dtype": "float8_e4m3fn", "itemsize": 1}
_FP32: dict[str, Any] = {"dtype": "float32", "itemsize": 4, "out_itemsize": 4}


def _scaled_reference(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    return reference.gemm(a, b, scale_a=scale_a, scale_b=scale_b)


def _linear_reference(activation: str) -> Implementation:
    def apply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return reference.gemm(x, weight.T, bias=bias, activation=activation)

    return apply


USE_CASES = (
    UseCase(
        "gemm", "bf16", RECORDED_SHAPES, _operands, _PLAIN, reference.gemm, _product, _BF16, SHAPES, CUBLASLT
    ),
    UseCase(
        "gemm", "bf16, rows of b", LAYOUT_SHAPES, _operands_by_rows, _PLAIN, reference.gemm,
        partial(_product, transpose_b=True), _BF16, SHAPES, CUBLASLT,
    ),
    *(
        UseCase(
            "gemm", f"fp8, {name} scales", LARGE_SQUARES, partial(_fp8_operands, by_row=by_row), _SCALED,
            _scaled_reference, partial(_fp8_product, by_row=by_row), _FP8, peers=CUBLASLT,
        )
        for name, by_row in (("tensor", False), ("row", True))
    ),
    UseCase(
        "gemm", "fp8, block scales", LARGE_SQUARES, _fp8_block_operands, _BLOCK_SCALED, _scaled_reference,
        _fp8_block_product, _FP8,
    ),
    UseCase(
        "gemm", "fp32", FP32_SHAPES, _fp32_operands, {OURS: gemm, EAGER: torch.matmul}, reference.gemm,
        _fp32_product, _FP32, peers=CUBLASLT,
    ),
    UseCase(
        "gemm", "fp32, rows of b", KERNELBENCH_PRODUCTS, _fp32_operands_by_rows, {OURS: gemm, EAGER: torch.matmul},
        reference.gemm, partial(_fp32_product, transpose_b=True), _FP32, peers=CUBLASLT,
    ),
    UseCase(
        "linear", "forward", (*LINEAR_SHAPES, EPILOGUE_SHAPE), _linear_inputs, _LINEAR, _linear_reference("none"),
        _product, _BF16,
    ),
    UseCase(
        "linear", "backward", LINEAR_SHAPES, _linear_inputs, _LINEAR, _linear_reference("none"), _linear_gradients,
        _BF16 | {"backward": True}, direction="backward",
    ),
    UseCase(
        "linear", "bias gelu", (EPILOGUE_SHAPE,), _bias_inputs,
        {
            OURS: lambda x, weight, bias: linear(x, weight, bias, activation="gelu"),
            EAGER: lambda x, weight, bias: F.gelu(F.linear(x, weight, bias)),
        },
        _linear_reference("gelu"), partial(_product, bias=True, activation=BF16_ACTIVATIONS["gelu"]), _BF16,
    ),
    UseCase(
        "linear", "swiglu", (EPILOGUE_SHAPE,), _gated_inputs,
        {OURS: lambda x, weight: linear(x, weight, activation="swiglu"), EAGER: _eager_swiglu},
        _linear_reference("swiglu"), partial(_product, gated=True), _BF16 | {"gated": True},
    ),
)  # fmt: skip


def workloads(name: str) -> Iterator[Workload]:
    """The workloads that are recorded, of `gemm` or `linear`."""
    for one in USE_CASES:
        if one.kernel == name:
            yield from one.workloads(one.recorded)


def full_workloads(name: str) -> Iterator[Workload]:
    """The same on all shapes: squares, and the weights of models at 1 to 8192 tokens."""
    for one in USE_CASES:
        if one.kernel == name:
            yield from one.workloads(one.shapes or one.recorded)
