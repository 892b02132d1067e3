"""FP32 matrices as two FP16 terms, and the FP32 product of what these cannot hold; see `split.cu`."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from kernelwright.kernels.matmul.operands import padded_pitch
from kernelwright.toolchain.cuda.compiler import compile_cubin
from kernelwright.toolchain.cuda.launcher import CudaKernel, current_arch

SOURCE = Path(__file__).with_name("split.cu")
ROW_THREADS, COLUMN_THREADS, COLUMN_CHUNK, LOST_THREADS = 256, 128, 64, 256


@dataclass(frozen=True)
class SplitOperand:
    """A matrix of rows along K in two terms.

    Attributes:
        high, low: (batch, rows, K) FP16; x = (high + low / 2048) * inverse_scale.
        inverse_scale: (batch, rows) FP32; NaN where the terms cannot hold the row.
        transposed: the terms are contiguous along the rows.
    """

    high: Tensor
    low: Tensor
    inverse_scale: Tensor
    transposed: bool


@functools.cache
def _load_kernels(device: int) -> dict[str, CudaKernel]:
    cubin = compile_cubin(SOURCE.read_text("utf-8"), current_arch(), include_dirs=[SOURCE.parent], name=str(SOURCE))
    return {name: CudaKernel(cubin, name) for name in ("split_rows", "find_column_largest", "split_columns")}


def split_operand(rows: Tensor) -> SplitOperand:
    """Split (batch, rows, K) FP32 on a CUDA device; any strides, copied if neither rows nor K are contiguous."""
    batch, count, k = rows.shape
    kernels = _load_kernels(rows.device.index)
    if rows.stride(1) != 1 and rows.stride(2) != 1:
        rows = rows.contiguous()
    inverse = rows.new_empty((batch, count))
    if rows.stride(2) == 1:
        pitch = padded_pitch(k, 2)
        high, low = (rows.new_empty((batch, count, pitch), dtype=torch.float16) for _ in range(2))
        arguments = [rows, high, low, inverse, rows.stride(1), rows.stride(0), count, k, pitch]
        kernels["split_rows"](batch * count, ROW_THREADS, arguments)
        return SplitOperand(high[..., :k], low[..., :k], inverse, False)
    pitch = padded_pitch(count, 2)
    high, low = (rows.new_empty((batch, k, pitch), dtype=torch.float16) for _ in range(2))
    largest = rows.new_zeros((batch, count), dtype=torch.int32)
    grid = -(-count // COLUMN_THREADS), -(-k // COLUMN_CHUNK), batch
    strides = [rows.stride(2), rows.stride(0), count, k]
    kernels["find_column_largest"](grid, COLUMN_THREADS, [rows, largest, *strides])
    kernels["split_columns"](grid, COLUMN_THREADS, [rows, largest, high, low, inverse, *strides, pitch])
    return SplitOperand(high[..., :count].mT, low[..., :count].mT, inverse, True)
