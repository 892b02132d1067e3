"""FP32 matrices as two FP16 terms in a workspace; see `split.cu`."""

from __future__ import annotations

import functools
from pathlib import Path

import torch
from torch import Tensor

from kernelwright.kernels.matmul.operands import padded_pitch
from kernelwright.toolchain.cuda.compiler import compile_cubin
from kernelwright.toolchain.cuda.launcher import CudaKernel, current_arch

SOURCE = Path(__file__).with_name("split.cu")
ROW_THREADS, COLUMN_THREADS = 256, 512
WIDE, NARROW = 32, 8
"""Columns of a block; narrow ones where wide ones would leave multiprocessors idle."""
ALIGNMENT = 128


@functools.cache
def _load_kernel(device: int, name: str) -> CudaKernel:
    cubin = compile_cubin(SOURCE.read_text("utf-8"), current_arch(), include_dirs=[SOURCE.parent], name=str(SOURCE))
    return CudaKernel(cubin, name)


class OperandSplit:
    """Splits (batch, rows, K) FP32 matrices of one layout: x = (high + low / 2048) * inverse_scale of the row.

    Args:
        rows: an example on a CUDA device, contiguous along the rows or K.
        offset: of the terms in the workspace, in bytes, a multiple of `ALIGNMENT`.
        num_sms: multiprocessors of the device.
    Attributes:
        transposed: the terms are contiguous along the rows.
        high, low, inverse_scale: offsets in the workspace: FP16, FP16, and (batch, rows) FP32, which is NaN where the
            terms cannot hold the row.
        end: offset after the terms.
    """

    def __init__(self, rows: Tensor, offset: int, num_sms: int) -> None:
        batch, count, k = rows.shape
        self.transposed = rows.stride(2) != 1
        self._shape = (batch, k, count) if self.transposed else (batch, count, k)
        self._pitch = padded_pitch(self._shape[2], 2)
        term_bytes = _align(2 * batch * self._shape[1] * self._pitch)
        self.high, self.low, self.inverse_scale = offset, offset + term_bytes, offset + 2 * term_bytes
        self.end = self.inverse_scale + _align(4 * batch * count)
        if self.transposed:
            width = WIDE if -(-count // WIDE) * batch >= num_sms else NARROW
            name, threads, grid = f"split_columns_{width}", COLUMN_THREADS, (-(-count // width) * batch,)
            sizes = [rows.stride(2), rows.stride(0), count, k, self._pitch]
        else:
            name, threads, grid = "split_rows", ROW_THREADS, (batch * count,)
            sizes = [rows.stride(1), rows.stride(0), count, k, self._pitch]
        kernel = _load_kernel(rows.device.index, name)
        self._launch = kernel.make_launcher(grid, threads, 0, 1)
        self._sizes = kernel.convert_scalars([0, 0, 0, 0, *sizes])[4:]

    def __call__(self, stream: int, source: int, workspace: int) -> None:
        """Launch on a stream, with the addresses of the matrix and of the workspace."""
        self._launch(
            stream, source, workspace + self.high, workspace + self.low, workspace + self.inverse_scale, *self._sizes
        )

    def terms(self, workspace: Tensor) -> tuple[Tensor, Tensor]:
        """High and low terms in a workspace, as (batch, rows, K)."""
        strides = self._shape[1] * self._pitch, self._pitch, 1
        halves = workspace.view(torch.float16)
        views = (halves.as_strided(self._shape, strides, offset // 2) for offset in (self.high, self.low))
        high, low = (one.mT if self.transposed else one for one in views)
        return high, low


def _align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
