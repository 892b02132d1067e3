"""The kernels of a product whose operands are read where they are, without a GPU: for offline compilation and for
evidence. `tests/kernels/test_kernels_matmul_op.py` compares them with what a call launches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from kernelwright.kernels.matmul.configs import ELEMENT_BYTES, TMA_ALIGNMENT, GemmConfig, Variant, make_defines
from kernelwright.kernels.matmul.selection import MIN_EMULATED_K, can_split_in_loop, choose_config, choose_emulated
from kernelwright.kernels.matmul.split_layout import FIND_LARGEST, SPLIT, Layout, choose_layout
from kernelwright.kernels.rows.planning import CudaLaunch, Target

FOLDER = Path(__file__).parent
SOURCE, ENTRY, SPLIT_SOURCE = "gemm_sm90.cu", "gemm_sm90", "split.cu"
RECOMPUTE_ENTRY = "recompute_lost"
BF16 = Variant("bf16", "bf16", "bf16", "bf16")
FP8 = Variant("e4m3", "e4m3", "bf16", "bf16", scales=True)
FP8_TENSORS = Variant("e4m3", "e4m3", "bf16", "bf16", scales=True, scalar_scales=True)
FP8_BLOCKS = Variant("e4m3", "e4m3", "bf16", "bf16", block_scales=True)
FP32 = Variant("f16", "f16", "f32", "f32", scales=True)
"""Of FP32 operands in two terms."""


@dataclass(frozen=True)
class Product:
    """A product of (m, k) and (k, n).

    Attributes:
        variant: for operands in this order.
        terms: 2 for FP32 operands in two terms.
    """

    m: int
    n: int
    k: int
    variant: Variant
    terms: int = 1

    @property
    def has_column_tiles(self) -> bool:
        """Whether an FP32 operand is split in tiles of columns; see `split_operands.py`."""
        sides = (self.m, self.variant.transpose_a), (self.n, self.variant.transpose_b)
        layouts = (choose_layout(1, rows, self.k, is_transposed=transposed) for rows, transposed in sides)
        return Layout.COLUMN_TILES in layouts

    def plan(self, num_sms: int) -> tuple[GemmConfig, Variant]:
        """The configuration, and the variant that is compiled with it."""
        shape = self.m, self.n, self.k, 1
        is_aligned = self.n * ELEMENT_BYTES[self.variant.out] % TMA_ALIGNMENT == 0
        variant = replace(self.variant, tma_store=self.variant.tma_store and is_aligned)
        if self.terms == 2:
            is_k_major = not (variant.transpose_a or variant.transpose_b)
            in_loop = is_k_major and can_split_in_loop(self.m, self.k, 1)
            config = choose_emulated(*shape, variant, num_sms, in_loop=in_loop)
        else:
            config = choose_config(*shape, variant, num_sms)
        return config, variant.oriented(config)


def plan_launches(products: tuple[Product, ...], target: Target) -> tuple[CudaLaunch, ...]:
    """The launches of products on a target, in order; none where torch computes the product."""
    launches = []
    for product in products:
        if product.terms == 2 and product.k < MIN_EMULATED_K:
            continue
        defines = make_defines(*product.plan(target.multiprocessors))
        if product.terms == 2:
            entries = [FIND_LARGEST, SPLIT] if product.has_column_tiles else [SPLIT]
            launches += [CudaLaunch(FOLDER / SPLIT_SOURCE, entry, {}, FOLDER) for entry in entries]
        launches.append(CudaLaunch(FOLDER / SOURCE, ENTRY, defines, FOLDER))
        if product.terms == 2:
            launches.append(CudaLaunch(FOLDER / SOURCE, RECOMPUTE_ENTRY, defines, FOLDER))
    return tuple(launches)
