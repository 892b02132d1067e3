"""FP32 matrices as two FP16 terms in a workspace; see `split.cu`."""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernelwright.kernels.matmul.launch import make_launch, make_parameter
from kernelwright.kernels.matmul.operands import padded_pitch
from kernelwright.kernels.matmul.split_layout import (
    FIND_LARGEST,
    MIN_CHUNK,
    SPLIT,
    THREADS,
    TILE_COLUMNS,
    TILES_PER_SM,
    Layout,
    choose_layout,
)
from kernelwright.toolchain.cuda.compiler import compile_cubin
from kernelwright.toolchain.cuda.launcher import CudaKernel, current_arch

if TYPE_CHECKING:
    from kernelwright.toolchain.emulator import EmulatedKernel

SOURCE = Path(__file__).with_name("split.cu")
ALIGNMENT = 128
FIELDS = struct.Struct("<5q2q6i5q2q6i2i")
"""`SplitParams` of split.cu."""


@dataclass(frozen=True)
class OperandTerms:
    """Where the terms of (batch, rows, K) FP32 matrices of one layout are: x = (high + low / 2048) * inverse_scale.

    Attributes:
        shape, strides: of the matrices, which are contiguous along K or their rows.
        offset: of the high terms in the workspace, in bytes, a multiple of `ALIGNMENT`.
        layout: how blocks share the rows; `NONE` has no terms but scales of 1.
        for_registers: for a product that splits the other operand itself: x = (high + low) * inverse_scale, with K in
            the order of registers.
        chunks: of K, that blocks share; 1 without tiles.
    """

    shape: tuple[int, int, int]
    strides: tuple[int, int, int]
    offset: int
    layout: Layout
    for_registers: bool = False
    chunks: int = 1

    @classmethod
    def of(cls, rows: Tensor, offset: int, num_sms: int, *, for_registers: bool = False) -> OperandTerms:
        """Those of matrices like this one, on a device with so many multiprocessors."""
        batch, count, k = rows.shape
        layout = choose_layout(batch, count, k, is_transposed=rows.stride(2) != 1)
        tiles = -(-count // TILE_COLUMNS) * batch
        chunks = min(-(-TILES_PER_SM * num_sms // tiles), -(-k // MIN_CHUNK)) if layout == Layout.COLUMN_TILES else 1
        strides = rows.stride(0), rows.stride(1), rows.stride(2)
        return cls((batch, count, k), strides, offset, layout, for_registers, chunks)

    @classmethod
    def none(cls, rows: Tensor, offset: int) -> OperandTerms:
        """No terms, for matrices like this one that the product splits itself, but memory for scales."""
        batch, count, k = rows.shape
        return cls((batch, count, k), (rows.stride(0), rows.stride(1), rows.stride(2)), offset, Layout.NONE)

    @property
    def is_transposed(self) -> bool:
        """Whether the terms are contiguous along the rows."""
        return self.layout in (Layout.COLUMNS, Layout.COLUMN_TILES)

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
    def largest(self) -> int:
        """Offset of the largest magnitudes of the chunks of K, (batch, chunks, rows)."""
        return self.inverse_scale + _align(4 * self.shape[0] * self.shape[1])

    @functools.cached_property
    def end(self) -> int:
        """Offset after the terms."""
        is_tiled = self.layout == Layout.COLUMN_TILES
        return self.largest + is_tiled * _align(4 * self.shape[0] * self.shape[1] * self.chunks)

    @functools.cached_property
    def blocks(self) -> int:
        """Blocks that split the operand; a block of columns is within a batch."""
        batch, count, _ = self.shape
        return (
            -(-count // self.layout.rows) * batch * self.chunks
            if self.is_transposed
            else -(-batch * count // self.layout.rows)
        )

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
        at = (workspace + offset for offset in (self.offset, self.low, self.inverse_scale, self.largest))
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
            self.chunks,
        )


class SplitLaunch:
    """Splits both operands of a product, in two launches if there are tiles of columns."""

    def __init__(self, a: OperandTerms, b: OperandTerms, device: torch.device) -> None:
        self._a, self._b = a, b
        self._parameter = make_parameter(FIELDS.size, device)
        is_tiled = Layout.COLUMN_TILES in (a.layout, b.layout)
        self._launches = [
            make_launch(_load_kernel(device, entry), self._parameter, grid=a.blocks + b.blocks, threads=THREADS)
            for entry in (*([FIND_LARGEST] if is_tiled else []), SPLIT)
        ]

    def __call__(self, stream: int, a: int, b: int, workspace: int) -> None:
        """Launch on a stream, with the addresses of the matrices and of the workspace."""
        fields = pack_split(self._a, self._b, a, b, workspace)
        self._parameter.content[: len(fields)] = fields
        for launch in self._launches:
            launch(stream)


def pack_split(a: OperandTerms, b: OperandTerms, address_a: int, address_b: int, workspace: int) -> bytes:
    """`SplitParams` of split.cu."""
    return FIELDS.pack(*a.fields(address_a, workspace), *b.fields(address_b, workspace), a.shape[0], a.blocks)


@functools.cache
def _load_kernel(device: torch.device, entry: str) -> CudaKernel | EmulatedKernel:
    if device.type == "cpu":
        from kernelwright.toolchain.emulator import EmulatedKernel

        return EmulatedKernel(SOURCE.read_text("utf-8"), entry, path=str(SOURCE))
    cubin = compile_cubin(SOURCE.read_text("utf-8"), current_arch(), include_dirs=[SOURCE.parent], name=str(SOURCE))
    return CudaKernel(cubin, entry)


def _align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
