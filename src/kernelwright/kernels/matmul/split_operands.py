"""FP32 matrices as two FP16 terms in a workspace; see `split.cu`."""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernelwright.kernels.matmul.launch import make_launch, make_parameter
from kernelwright.kernels.matmul.operands import padded_pitch
from kernelwright.toolchain.cuda.compiler import compile_cubin
from kernelwright.toolchain.cuda.launcher import CudaKernel, current_arch

if TYPE_CHECKING:
    from kernelwright.toolchain.emulator import EmulatedKernel

SOURCE = Path(__file__).with_name("split.cu")
THREADS, WARPS, ALIGNMENT = 256, 8, 128
MAX_WARP_K = 2048
"""Rows along K up to which a warp splits one: 16 vectors for each thread."""
FIELDS = struct.Struct("<4q2q6i4q2q6i2i")
"""`SplitParams` of split.cu."""


class Layout(IntEnum):
    """`Layout` of split.cu."""

    BLOCK_ROWS, WARP_ROWS, COLUMNS_32, COLUMNS_8, NONE = range(5)

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return (1, WARPS, 32, 8, THREADS)[self]


@dataclass(frozen=True)
class OperandTerms:
    """Where the terms of (batch, rows, K) FP32 matrices of one layout are: x = (high + low / 2048) * inverse_scale.

    Attributes:
        shape, strides: of the matrices, which are contiguous along K or their rows.
        offset: of the high terms in the workspace, in bytes, a multiple of `ALIGNMENT`.
        layout: how blocks share the rows; `NONE` has no terms but scales of 1.
        for_registers: for a product that splits the other operand itself: x = (high + low) * inverse_scale, with K in
            the order of registers.
    """

    shape: tuple[int, int, int]
    strides: tuple[int, int, int]
    offset: int
    layout: Layout
    for_registers: bool = False

    @classmethod
    def of(cls, rows: Tensor, offset: int, num_sms: int, *, for_registers: bool = False) -> OperandTerms:
        """Those of matrices like this one, on a device with so many multiprocessors."""
        batch, count, k = rows.shape
        if rows.stride(2) == 1:
            layout = Layout.WARP_ROWS if k <= MAX_WARP_K else Layout.BLOCK_ROWS
        else:
            layout = Layout.COLUMNS_32 if -(-count // 32) * batch >= num_sms else Layout.COLUMNS_8
        strides = rows.stride(0), rows.stride(1), rows.stride(2)
        return cls((batch, count, k), strides, offset, layout, for_registers)

    @classmethod
    def none(cls, rows: Tensor, offset: int) -> OperandTerms:
        """No terms, for matrices like this one that the product splits itself, but memory for scales."""
        batch, count, k = rows.shape
        return cls((batch, count, k), (rows.stride(0), rows.stride(1), rows.stride(2)), offset, Layout.NONE)

    @property
    def is_transposed(self) -> bool:
        """Whether the terms are contiguous along the rows."""
        return self.layout in (Layout.COLUMNS_32, Layout.COLUMNS_8)

    @functools.cached_property
    def pitch(self) -> int:
        """Of the terms, in elements."""
        return padded_pitch(self.shape[1] if self.is_transposed else self.shape[2], 2)

    @functools.cached_property
    def low(self) -> int:
        """Offset of the low terms."""
        batch, count, k = self.shape
        if self.layout == Layout.NONE:
            return self.offset
        return self.offset + _align(2 * batch * (k if self.is_transposed else count) * self.pitch)

    @functools.cached_property
    def inverse_scale(self) -> int:
        """Offset of the inverse scales, (batch, rows) FP32: NaN where terms cannot hold the row."""
        return 2 * self.low - self.offset

    @functools.cached_property
    def end(self) -> int:
        """Offset after the terms."""
        return self.inverse_scale + _align(4 * self.shape[0] * self.shape[1])

    @functools.cached_property
    def blocks(self) -> int:
        """Blocks that split the operand; a block of columns is within a batch."""
        batch, count, _ = self.shape
        return -(-count // self.layout.rows) * batch if self.is_transposed else -(-batch * count // self.layout.rows)

    def views(self, workspace: Tensor) -> tuple[Tensor, Tensor]:
        """High and low terms in a workspace, as (batch, rows, K)."""
        batch, count, k = self.shape
        lines, width = (k, count) if self.is_transposed else (count, k)
        halves, strides = workspace.view(torch.float16), (lines * self.pitch, self.pitch, 1)
        views = (halves.as_strided((batch, lines, width), strides, at // 2) for at in (self.offset, self.low))
        high, low = (one.mT if self.is_transposed else one for one in views)
        return high, low

    def fields(self, source: int, workspace: int) -> tuple[int, ...]:
        """`Operand` of split.cu, for the addresses of a matrix and the workspace."""
        at = (workspace + offset for offset in (self.offset, self.low, self.inverse_scale))
        line_stride = self.strides[2 if self.is_transposed else 1]
        return (
            source,
            *at,
            line_stride,
            self.strides[0],
            *self.shape[1:],
            self.pitch,
            self.layout,
            self.for_registers,
            0,
        )


class SplitLaunch:
    """Splits both operands of a product in one launch."""

    def __init__(self, a: OperandTerms, b: OperandTerms, device: torch.device) -> None:
        self._a, self._b = a, b
        self._parameter = make_parameter(FIELDS.size, device)
        self._launch = make_launch(_load_kernel(device), self._parameter, grid=a.blocks + b.blocks, threads=THREADS)

    def __call__(self, stream: int, a: int, b: int, workspace: int) -> None:
        """Launch on a stream, with the addresses of the matrices and of the workspace."""
        fields = pack_split(self._a, self._b, a, b, workspace)
        self._parameter.content[: len(fields)] = fields
        self._launch(stream)


def pack_split(a: OperandTerms, b: OperandTerms, address_a: int, address_b: int, workspace: int) -> bytes:
    """`SplitParams` of split.cu."""
    return FIELDS.pack(*a.fields(address_a, workspace), *b.fields(address_b, workspace), a.shape[0], a.blocks)


@functools.cache
def _load_kernel(device: torch.device) -> CudaKernel | EmulatedKernel:
    if device.type == "cpu":
        from kernelwright.toolchain.emulator import EmulatedKernel

        return EmulatedKernel(SOURCE.read_text("utf-8"), "split_operands", path=str(SOURCE))
    cubin = compile_cubin(SOURCE.read_text("utf-8"), current_arch(), include_dirs=[SOURCE.parent], name=str(SOURCE))
    return CudaKernel(cubin, "split_operands")


def _align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
