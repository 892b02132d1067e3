"""Views of operands as the kernel reads them: contiguous along K or along the rows, at addresses that TMA can read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernelwright.kernels.matmul.configs import TMA_ALIGNMENT

ELEMENT_TYPES = {
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float32: "f32",
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
}


@dataclass(frozen=True)
class Operand:
    """A matrix of rows along K.

    Attributes:
        rows: (batch, rows, K) view.
        transposed: contiguous along the rows.
    """

    rows: Tensor
    transposed: bool


def prepare_operand(rows: Tensor, *, k_major_only: bool) -> Operand:
    """The operand itself if TMA can read it, else a copy with an aligned pitch.

    Args:
        rows: (batch, rows, K), any strides.
        k_major_only: the tensor cores read this type only contiguous along K.
    """
    if is_readable(rows):
        return Operand(rows, False)
    if not k_major_only and is_readable(rows.mT):
        return Operand(rows, True)
    transposed = not k_major_only and rows.stride(1) == 1 and rows.shape[1] > 1
    return Operand(_copy_aligned(rows.mT).mT if transposed else _copy_aligned(rows), transposed)


def is_readable(matrix: Tensor) -> bool:
    """Whether TMA can read a (batch, rows, columns) tensor whose last dimension is contiguous."""
    size, unit = matrix.element_size(), TMA_ALIGNMENT
    batch, rows, columns = matrix.shape
    return (
        (columns == 1 or matrix.stride(2) == 1)
        and matrix.data_ptr() % unit == 0
        and (rows == 1 or is_pitch(matrix.stride(1), columns, size))
        and (batch == 1 or is_pitch(matrix.stride(0), columns, size))
    )


def align_block_scales(scale: Tensor, *, of_rows: bool) -> Tensor:
    """The (batch, rows or their blocks, blocks of K) scales themselves if the kernel can copy them, else a copy:
    contiguous along the rows, or for blocks of rows along K, with a number of these that is a multiple of 16 bytes."""
    lines = scale.mT if of_rows else scale
    if not (is_readable(lines) and lines.shape[2] * lines.element_size() % TMA_ALIGNMENT == 0):
        lines = _copy_aligned(lines)
    return lines.mT if of_rows else lines


def is_pitch(stride: int, columns: int, size: int) -> bool:
    """Whether rows of this stride, in elements, do not overlap and are a multiple of what TMA addresses."""
    return stride >= columns and stride * size % TMA_ALIGNMENT == 0


def padded_pitch(columns: int, size: int) -> int:
    """The least pitch, in elements, that TMA can address."""
    unit = TMA_ALIGNMENT // size
    return -(-columns // unit) * unit


def _copy_aligned(matrix: Tensor) -> Tensor:
    batch, rows, columns = matrix.shape
    pitch = padded_pitch(columns, matrix.element_size())
    copy = matrix.new_empty((batch, rows, pitch))[..., :columns]
    return copy.copy_(matrix)
