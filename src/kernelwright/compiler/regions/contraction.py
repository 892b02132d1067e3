"""Contractions: products of matrices and convolutions, with the elementwise computation on their result as epilogue.

The result is seen as batches of matrices, `[batch, m, n]`, contiguous. A convolution of images is such a product too:
for each image the weight, `[channels, k]`, times the windows of the image, `[k, pixels]`.
"""

from __future__ import annotations

from functools import cached_property
from math import prod

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.call import CallRegion
from kernelwright.compiler.regions.region import Load, Reduction, Region, Scan, Step, Store
from kernelwright.core.record import Record
from kernelwright.core.units import DTYPE_BYTES


class Matrix(Record, frozen=True, kw_only=True, tag=True):
    """An operand: element `[row, k]` of a batch is at `batch * batch_stride + row * row_stride + k * k_stride`.

    Attributes:
        batch_axes: size and stride of the inner dimensions of the batch, the outermost first; `batch_stride` is that of
            what is left of the batch then.
    """

    buffer: str
    dtype: str
    batch_stride: int
    row_stride: int
    k_stride: int
    offset: int = 0
    batch_axes: tuple[tuple[int, int], ...] = ()

    @property
    def has_batch(self) -> bool:
        """Whether the matrices of a batch differ."""
        return bool(self.batch_stride or any(stride for _, stride in self.batch_axes))

    def extent(self, batch: int, rows: int, k: int) -> int:
        """The elements of a tensor that holds matrices of this size."""
        outer = batch // prod(size for size, _ in self.batch_axes)
        sizes = ((outer, self.batch_stride), *self.batch_axes, (rows, self.row_stride), (k, self.k_stride))
        return 1 + self.offset + sum((size - 1) * stride for size, stride in sizes)

    def count(self, batch: int) -> int:
        """The different matrices of a batch of that size."""
        outer = batch // prod(size for size, _ in self.batch_axes)
        return (outer if self.batch_stride else 1) * prod(size for size, stride in self.batch_axes if stride)


class Filters(Record, frozen=True, kw_only=True, tag=True):
    """The weight of a convolution as operand: one row per output channel, columns `(channel, tap)`.

    In dimension d, tap t of phase p is the weight's element `first[d][p] + t * tap_step[d]`.

    Attributes:
        kernel_size: of the weight, whose taps are contiguous.
        group_stride: between the filters of successive groups.
    """

    buffer: str
    dtype: str
    row_stride: int
    channel_stride: int
    kernel_size: tuple[int, ...]
    first: tuple[tuple[int, ...], ...]
    tap_step: tuple[int, ...]
    offset: int = 0
    group_stride: int = 0


class Windows(Record, frozen=True, kw_only=True, tag=True):
    """The windows of images as operand: one row per output pixel, columns `(channel, tap)`.

    A transposed convolution with stride s has s phases in that dimension: output pixels s apart share their taps. In
    dimension d, output pixel `q * phases + p` reads with tap t, one of `phase_taps[d][p]`, the position `q * step[d] +
    start[d][p] + t * dilation[d]` of the image, and 0 outside of it.

    Attributes:
        channels: of one group.
        phase_taps: in each dimension, by phase; a phase without taps is 0.
    """

    buffer: str
    dtype: str
    channels: int
    image_size: tuple[int, ...]
    image_strides: tuple[int, ...]
    batch_stride: int
    channel_stride: int
    phase_taps: tuple[tuple[int, ...], ...]
    output_size: tuple[int, ...]
    step: tuple[int, ...]
    start: tuple[tuple[int, ...], ...]
    dilation: tuple[int, ...]
    offset: int = 0
    groups: int = 1

    @property
    def taps(self) -> tuple[int, ...]:
        """The most taps of a phase in each dimension."""
        return tuple(map(max, self.phase_taps))

    @property
    def phases(self) -> tuple[int, ...]:
        """The number of phases in each dimension."""
        return tuple(map(len, self.start))

    @property
    def grid(self) -> tuple[int, ...]:
        """The output pixels of the first phase, which has the most."""
        return tuple(-(-size // count) for size, count in zip(self.output_size, self.phases, strict=True))

    @property
    def uneven_dims(self) -> list[int]:
        """The dimensions in which phases have different numbers of taps."""
        return [dim for dim, taps in enumerate(self.phase_taps) if len(set(taps)) > 1]

    @property
    def num_reads(self) -> int:
        """The elements of all windows on one channel."""
        return prod(
            sum(taps * (-(-(size - phase) // len(counts))) for phase, taps in enumerate(counts))
            for counts, size in zip(self.phase_taps, self.output_size, strict=True)
        )

    @property
    def margins(self) -> tuple[tuple[int, int], ...]:
        """What windows read before and after the image in each dimension."""
        margins = []
        for dim, size in enumerate(self.image_size):
            reached = [(at, taps) for at, taps in zip(self.start[dim], self.phase_taps[dim], strict=True) if taps]
            last = max(at + (taps - 1) * self.dilation[dim] for at, taps in reached)
            after = last + (self.grid[dim] - 1) * self.step[dim] - (size - 1)
            margins.append((max(-min(at for at, _ in reached), 0), max(after, 0)))
        return tuple(margins)


class Contraction(Record, frozen=True, kw_only=True):
    """`value[b, i, j]`, a tensor of `dtype`, is the sum over k of `left[b, i, k] * right[b, j, k]`, plus the bias.

    A convolution in groups has a batch for each image and group, and rows of one group.

    Attributes:
        bias: buffer and dtype of a vector along `bias_along`, `m` or `n`; empty if there is none.
        tf32: torch may round FP32 operands to TF32.
    """

    value: str
    dtype: str
    batch: int
    m: int
    n: int
    k: int
    left: Matrix | Filters
    right: Matrix | Windows
    bias: tuple[str, str] | tuple[()] = ()
    bias_along: str = "n"
    tf32: bool = False

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        if isinstance(self.right, Windows):
            return 2 * self.batch * self.m * self.right.channels * self.right.num_reads
        return 2 * self.batch * self.m * self.n * self.k


class AxisIndex(Record, frozen=True, kw_only=True):
    """The index along an axis of the epilogue: `(row * row_factor + column // divisor) % modulus`.

    Attributes:
        row_factor: 0 if it does not depend on the row; -1 for `row // row_divisor` alone.
        modulus: 0 for none.
    """

    row_divisor: int = 1
    row_factor: int = 0
    column_divisor: int = 0
    modulus: int = 0


class ContractionRegion(Record, frozen=True, kw_only=True, dict=True):
    """A contraction and the region, without rows, that computes on its result; seen as a region by what plans it."""

    name: str
    contraction: Contraction
    epilogue: Region

    row = ()
    """It has no rows of its own."""

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """The operands, and what the epilogue loads otherwise; the strides are the epilogue's."""
        one = self.contraction
        operands = [(one.left.buffer, one.left.dtype), (one.right.buffer, one.right.dtype)]
        operands += [one.bias] if one.bias else []
        loads = [Load(value=f"{buffer}_in", buffer=buffer, dtype=dtype, strides={}) for buffer, dtype in operands]
        return (*loads, *(load for load in self.epilogue.loads if load.buffer != one.value))

    @property
    def outer(self):
        """The axes of the epilogue."""
        return self.epilogue.outer

    @property
    def steps(self) -> tuple[Step | Reduction | Scan, ...]:
        """The contraction as a step, and those of the epilogue."""
        one = self.contraction
        op = "convolution" if isinstance(one.right, Windows) else "matmul"
        return (Step(value=one.value, op=op, args=(), dtype=one.dtype), *self.epilogue.steps)

    @property
    def stores(self) -> tuple[Store, ...]:
        """Those of the epilogue."""
        return self.epilogue.stores

    @property
    def reads(self) -> list[str]:
        """The tensors that it reads, in order."""
        return list(dict.fromkeys(load.buffer for load in self.loads))

    @property
    def argument_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of tensors in one dimension that hold what it reads, in order; those of images and filters are not
        known."""
        one, sizes = self.contraction, {axis.name: axis.size for axis in self.outer}
        extents = {one.bias[0]: one.n} if one.bias else {}
        for load in self.epilogue.loads:
            last = load.offset + sum((sizes[axis] - 1) * stride for axis, stride in load.strides.items())
            extents[load.buffer] = max(extents.get(load.buffer, 1), 1 + last)
        for matrix, rows in ((one.left, one.m), (one.right, one.n)):
            extent = matrix.extent(one.batch, rows, one.k) if isinstance(matrix, Matrix) else 1
            extents[matrix.buffer] = max(extents.get(matrix.buffer, 1), extent)
        return tuple((extents[name],) for name in self.reads)

    @property
    def writes(self) -> list[str]:
        """The tensors that it writes, in order."""
        return self.epilogue.writes

    @property
    def num_rows(self) -> int:
        """The elements of the result: without rows, each counts as one."""
        return self.epilogue.num_rows

    @property
    def row_size(self) -> int:
        """One element."""
        return 1

    @property
    def bytes_moved(self) -> tuple[int, int]:
        """(read, written) bytes, with every element that is accessed counted once."""
        one = self.contraction
        sizes = {axis.name: axis.size for axis in self.epilogue.outer}
        other = sum(
            prod(sizes[axis] for axis, stride in load.strides.items() if stride) * DTYPE_BYTES[load.dtype]
            for load in self.epilogue.loads
            if load.buffer != one.value
        )
        if isinstance(one.left, Filters) and isinstance(one.right, Windows):
            left = one.m * one.right.groups * one.right.channels * prod(one.left.kernel_size)
            right = one.batch * one.right.channels * prod(one.right.image_size)
        else:
            left, right = (
                rows * one.k * (matrix.count(one.batch) if isinstance(matrix, Matrix) else 1)
                for rows, matrix in ((one.m, one.left), (one.n, one.right))
            )
        operands = left * DTYPE_BYTES[one.left.dtype] + right * DTYPE_BYTES[one.right.dtype]
        return operands + other, self.epilogue.bytes_moved[1]

    @cached_property
    def indices(self) -> dict[str, AxisIndex]:
        """By axis of the epilogue, its index in terms of the row `batch * m + i` and the column `j`.

        Raises:
            Unsupported: the epilogue reads something else than each element of the contraction once.
        """
        one = self.contraction
        loads = [load for load in self.epilogue.loads if load.buffer == one.value]
        if (
            self.epilogue.row
            or any(load.windows for load in self.epilogue.loads)
            or not loads
            or any((x.strides, x.offset) != (loads[0].strides, 0) for x in loads)
        ):
            raise Unsupported("an epilogue that is not elementwise")
        sizes = {axis.name: axis.size for axis in self.epilogue.outer}
        strides = {name: loads[0].strides.get(name, 0) for name in sizes}
        expected = 1
        for name in sorted(sizes, key=lambda axis: (strides[axis], sizes[axis])):
            if strides[name] != expected:
                raise Unsupported("an epilogue that repeats, or does not read all of, the contraction")
            expected *= sizes[name]
        if expected != one.batch * one.m * one.n:
            raise Unsupported("an epilogue over a part of the contraction")
        return {name: _axis_index(strides[name], sizes[name], one.n, expected) for name in sizes}

    def __str__(self) -> str:
        one = self.contraction
        tf32 = ", TF32" if one.tf32 else ""
        shape = f"{one.batch} x {one.m:,} x {one.n:,} over {one.k:,}{tf32}"
        return f"{one.value} = contraction of {one.left} and {one.right} {one.bias}: {shape}\n{self.epilogue}"


def _axis_index(stride: int, size: int, n: int, total: int) -> AxisIndex:
    """The index along an axis with a stride in the flat result of rows of length n.

    Raises:
        Unsupported: the axis has a part of a row and does not divide it.
    """
    modulus = 0 if stride * size == total else size
    if stride % n == 0:
        return AxisIndex(row_factor=-1, row_divisor=stride // n, modulus=modulus)
    if stride * size <= n:
        return AxisIndex(column_divisor=stride, modulus=0 if stride * size == n else size)
    if n % stride:
        raise Unsupported("an epilogue whose axes do not divide the rows of the contraction")
    return AxisIndex(row_factor=n // stride, column_divisor=stride, modulus=modulus)


AnyRegion = Region | ContractionRegion | CallRegion
"""What one or a few kernels compute."""
