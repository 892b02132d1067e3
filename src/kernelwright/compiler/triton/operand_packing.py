"""Generates the Triton kernels that prepare the operands of a contraction in memory of their own.

Split: an FP32 matrix as two FP16 terms, scaled by a power of two for each row. Packed: images and filters with their
channels last, zeros around the images, and FP32 rounded to TF32, so that the loop over the operands has no masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from kernelwright.compiler.regions.contraction import Filters, Matrix, Windows
from kernelwright.compiler.triton.source_lines import wrap_line
from kernelwright.core.record import Record

INT32_ELEMENTS = 2**31 - 1
TILE_ELEMENTS = 2048
CHANNEL_MULTIPLE = 16
"""Packed channels are padded to a multiple of the least depth of a step."""


class Kernel(NamedTuple):
    """A kernel with its tensor arguments, number of programs and warps."""

    name: str
    source: str
    tensors: Sequence[str]
    num_programs: int
    num_warps: int


class SplitMatrix(Record, frozen=True, kw_only=True):
    """A matrix split into `SIDE_hi` and `SIDE_lo`, [batch * padded_rows, padded_k], and `SIDE_scale`."""

    side: str
    matrix: Matrix
    batch: int
    rows: int
    padded_rows: int
    k: int
    padded_k: int

    @property
    def buffers(self) -> dict[str, tuple[int, str]]:
        """Number of elements and dtype of each buffer."""
        rows, side = self.batch * self.padded_rows, self.side
        terms = {f"{side}_{part}": (rows * self.padded_k, "float16") for part in ("hi", "lo")}
        return {**terms, f"{side}_scale": (rows, "float32")}

    def kernel(self, prefix: str) -> Kernel:
        """The kernel that splits it."""
        matrix, side = self.matrix, self.side
        block_k = min(TILE_ELEMENTS, power_of_two(self.padded_k)) if matrix.k_stride == 1 else 64
        block_r = max(TILE_ELEMENTS // block_k, 1)
        total = self.batch * self.rows
        extent = self.rows * matrix.row_stride + self.k * matrix.k_stride
        wide = ".to(tl.int64)" if extent > INT32_ELEMENTS else ""
        index = [f"rows = tl.program_id(0) * {block_r} + tl.arange(0, {block_r})"]
        if self.batch == 1:
            index += [f"start = rows{wide} * {matrix.row_stride}", "padded = rows"]
        else:
            index += [
                f"batch, row = rows // {self.rows}, rows % {self.rows}",
                f"start = batch.to(tl.int64) * {matrix.batch_stride} + row * {matrix.row_stride}",
                f"padded = batch * {self.padded_rows} + row",
            ]
        offset = f"{matrix.offset} + " if matrix.offset else ""
        load = [
            f"offs_k = k + tl.arange(0, {block_k})",
            f"mask = (rows < {total})[:, None] & (offs_k < {self.k})[None, :]",
            f"offsets = {offset}start[:, None] + offs_k{wide}[None, :] * {matrix.k_stride}",
            f"x = tl.load({matrix.buffer}_ptr + offsets, mask=mask, other=0.0)",
        ]
        body = [
            *index,
            f"largest = tl.zeros(({block_r}, {block_k}), tl.int32)",
            f"for k in range(0, {self.k}, {block_k}):",
            *indented([*load, "largest = tl.maximum(largest, x.to(tl.int32, bitcast=True) & 0x7FFFFFFF)"]),
            "largest = tl.max(largest, axis=1)",
            "exponent = tl.where(largest == 0, 141, largest >> 23)",
            "in_range = (exponent > 67) & (exponent < 187)",
            "scale = tl.where(in_range, ((268 - exponent) << 23).to(tl.float32, bitcast=True), 0.0)",
            'inverse = tl.where(in_range, ((exponent - 14) << 23).to(tl.float32, bitcast=True), float("nan"))',
            f"tl.store({side}_scale_ptr + padded, inverse, mask=rows < {total})",
            f"for k in range(0, {self.padded_k}, {block_k}):",
            *indented(
                [
                    *load,
                    "x *= scale[:, None]",
                    "hi = x.to(tl.float16)",
                    "lo = ((x - hi.to(tl.float32)) * 2048.0).to(tl.float16)",
                    f"mask = (rows < {total})[:, None] & (offs_k < {self.padded_k})[None, :]",
                    f"offsets = padded.to(tl.int64)[:, None] * {self.padded_k} + offs_k[None, :]",
                    f"tl.store({side}_hi_ptr + offsets, hi, mask=mask)",
                    f"tl.store({side}_lo_ptr + offsets, lo, mask=mask)",
                ]
            ),
        ]
        doc = f"Splits {total:,} rows of {self.k:,} into two FP16 terms; the largest of a row is from 2**14 to 2**15"
        name, tensors = f"{prefix}_split_{side}_kernel", [matrix.buffer, *self.buffers]
        return Kernel(name, print_kernel(name, tensors, doc, body), tensors, -(-total // block_r), 4)


class PackedFilters(Record, frozen=True, kw_only=True):
    """Filters packed as `left_packed`, [phase, padded_rows, tap, padded_channels]."""

    filters: Filters
    windows: Windows
    rows: int
    padded_rows: int

    @property
    def num_taps(self) -> int:
        """Of one phase."""
        return prod(self.windows.taps)

    @property
    def depth(self) -> int:
        """Elements of a packed row."""
        return self.num_taps * padded_channels(self.windows)

    @property
    def buffers(self) -> dict[str, tuple[int, str]]:
        """Number of elements and dtype of each buffer."""
        return {"left_packed": (prod(self.windows.phases) * self.padded_rows * self.depth, self.filters.dtype)}

    def kernel(self, prefix: str, rounding: str) -> Kernel:
        """The kernel that packs them."""
        one, windows, channels = self.filters, self.windows, padded_channels(self.windows)
        block = 1024
        total = prod(windows.phases) * self.rows * self.depth
        body = [
            f"at = tl.program_id(0) * {block} + tl.arange(0, {block})",
            f"channel = at % {channels}",
            f"tap = at // {channels} % {self.num_taps}",
            f"row = at // {self.depth} % {self.rows}",
            f"phase = at // {self.depth * self.rows}",
            f"mask = (at < {total}) & (channel < {windows.channels})",
        ]
        terms, inner_taps, inner_phases, inner_size = [], 1, 1, 1
        for dim in reversed(range(len(windows.taps))):
            taps, phases, size = windows.taps[dim], windows.phases[dim], one.kernel_size[dim]
            position = f"tap // {inner_taps} % {taps}" if inner_taps > 1 else f"tap % {taps}"
            first = select(f"phase // {inner_phases} % {phases}", one.first[dim])
            body.append(f"weight_{dim} = {first} + ({position}) * {one.tap_step[dim]}")
            if one.tap_step[dim] != 1:
                body.append(f"mask &= (weight_{dim} >= 0) & (weight_{dim} < {size})")
            terms.append(f"weight_{dim} * {inner_size}")
            inner_taps, inner_phases, inner_size = inner_taps * taps, inner_phases * phases, inner_size * size
        offset = f"{one.offset} + " if one.offset else ""
        body += [
            f"offsets = {offset}row * {one.row_stride} + channel * {one.channel_stride} + {' + '.join(terms)}",
            f"x = tl.load({one.buffer}_ptr + offsets, mask=mask, other=0.0)",
            f"padded = (phase * {self.padded_rows} + row) * {self.depth} + at % {self.depth}",
            f"tl.store(left_packed_ptr + padded, {rounding.format('x')}, mask=at < {total})",
        ]
        name, tensors = f"{prefix}_pack_left_kernel", [one.buffer, "left_packed"]
        doc = f"Copies {self.rows:,} filters with their {windows.channels:,} channels last"
        return Kernel(name, print_kernel(name, tensors, doc, body), tensors, -(-total // block), 4)


class PackedImages(Record, frozen=True, kw_only=True):
    """Images packed as `right_packed`, [image, *padded_size, padded_channels]."""

    windows: Windows
    batch: int

    @property
    def size(self) -> tuple[int, ...]:
        """Pixels in each dimension, with the margins."""
        one = self.windows
        return tuple(size + sum(margin) for size, margin in zip(one.image_size, one.margins, strict=True))

    @property
    def pixel_strides(self) -> tuple[int, ...]:
        """Strides in pixels."""
        return tuple(prod(self.size[dim + 1 :]) for dim in range(len(self.size)))

    @property
    def buffers(self) -> dict[str, tuple[int, str]]:
        """Number of elements and dtype of each buffer."""
        return {"right_packed": (self.batch * prod(self.size) * padded_channels(self.windows), self.windows.dtype)}

    def kernel(self, prefix: str, rounding: str) -> Kernel:
        """The kernel that packs them."""
        one, channels, pixels = self.windows, padded_channels(self.windows), prod(self.size)
        block_c = min(power_of_two(channels), 64)
        block_p = 2 * TILE_ELEMENTS // block_c
        tiles = -(-pixels // block_p)
        body = [
            f"image = tl.program_id(0) // {tiles}",
            f"pixel = tl.program_id(0) % {tiles} * {block_p} + tl.arange(0, {block_p})",
            f"inside = pixel < {pixels}",
        ]
        terms = []
        for dim, (stride, size) in enumerate(zip(self.pixel_strides, self.size, strict=True)):
            before, after = one.margins[dim]
            body.append(f"at_{dim} = pixel // {stride} % {size} - {before}")
            if before or after:
                body.append(f"inside &= (at_{dim} >= 0) & (at_{dim} < {one.image_size[dim]})")
            terms.append(f"at_{dim} * {one.image_strides[dim]}")
        offset = f"{one.offset} + " if one.offset else ""
        body += [
            f"start = {offset}image.to(tl.int64) * {one.batch_stride} + {' + '.join(terms)}",
            f"padded = (image.to(tl.int64) * {pixels} + pixel) * {channels}",
            f"for c in range(0, {channels}, {block_c}):",
            *indented(
                [
                    f"channel = c + tl.arange(0, {block_c})",
                    f"mask = inside[:, None] & (channel < {one.channels})[None, :]",
                    f"offsets = start[:, None] + channel[None, :] * {one.channel_stride}",
                    f"x = tl.load({one.buffer}_ptr + offsets, mask=mask, other=0.0)",
                    f"mask = (pixel < {pixels})[:, None] & (channel < {channels})[None, :]",
                    f"tl.store(right_packed_ptr + padded[:, None] + channel[None, :], {rounding.format('x')}, mask=mask)",
                ]
            ),
        ]
        name, tensors = f"{prefix}_pack_right_kernel", [one.buffer, "right_packed"]
        doc = f"Copies {self.batch:,} images with their {one.channels:,} channels last and zeros around them"
        return Kernel(name, print_kernel(name, tensors, doc, body), tensors, self.batch * tiles, 4)


def padded_channels(windows: Windows) -> int:
    """The channels of a packed operand."""
    return round_up(windows.channels, CHANNEL_MULTIPLE)


def select(index: str, values: Sequence[int]) -> str:
    """The expression of the value at an index."""
    if len(set(values)) == 1:
        return str(values[0])
    expr = str(values[-1])
    for at in reversed(range(len(values) - 1)):
        expr = f"tl.where({index} == {at}, {values[at]}, {expr})"
    return expr


def print_kernel(name: str, tensors: Sequence[str], doc: str, body: Sequence[str]) -> str:
    """The source of a kernel."""
    head = f"def {name}({', '.join(f'{tensor}_ptr' for tensor in tensors)}):"
    lines = ["@triton.jit", head, f'    """{doc}."""', *indented(body)]
    return "\n".join(wrapped for line in lines for wrapped in wrap_line(line)) + "\n"


def indented(lines: Sequence[str]) -> list[str]:
    """Lines one level deeper."""
    return [f"    {line}" for line in lines]


def round_up(size: int, block: int) -> int:
    """The least multiple of a block that is not below a size."""
    return -(-size // block) * block


def power_of_two(size: int) -> int:
    """The least power of two that is not below a size."""
    return 1 << (size - 1).bit_length()
