"""Generates the Triton kernels that prepare the operands of a contraction in memory of their own.

Split: an FP32 matrix as two FP16 terms, scaled by a power of two for each row. Packed: images and filters with their
channels last and zeros around the images, so that the loop over the operands has no masks. Where torch permits TF32,
FP32 is packed as FP16, scaled by a power of two for each image and filter: FP16 has the significand of TF32, half its
bytes, and twice its rate. What the scaled range cannot hold is marked by a scale that is NaN. Small elements have an
absolute error of 2**-40 of the largest of their image or filter, and of 2**-50 of the largest of a split row.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kernelwright.compiler.regions.contraction import Filters, Matrix, Windows
from kernelwright.compiler.triton.kernel import Kernel, indented, print_kernel
from kernelwright.compiler.triton.op_templates import TRITON_TYPES
from kernelwright.core.record import Record

INT32_ELEMENTS = 2**31 - 1
TILE_ELEMENTS, MIN_SPLIT_ROWS = 2048, 4096
MIN_BLOCK_K, MAX_PADDING_SHARE = 16, 1 / 8
MAX_CHUNKS = 1024
"""Parts of an image of which the largest elements are found separately."""
SCALING = [
    "exponent = tl.where(largest == 0, 141, largest >> 23)",
    "in_range = (exponent > 67) & (exponent < 187)",
    "scale = tl.where(in_range, ((268 - exponent) << 23).to(tl.float32, bitcast=True), 0.0)",
    'inverse = tl.where(in_range, ((exponent - 14) << 23).to(tl.float32, bitcast=True), float("nan"))',
]
SCALING_OF_FINITE = ["exponent = tl.maximum(largest >> 23, 15)", "in_range = exponent < 255", *SCALING[2:]]
"""From the bits of the largest magnitude, the scale that makes it 2**14 to 2**15, and its inverse."""


class SplitMatrix(Record, frozen=True, kw_only=True):
    """A matrix split into `PREFIX_hi` and `PREFIX_lo`, [batch * padded_rows, padded_k], and `PREFIX_scale`.

    Attributes:
        heads: consecutive elements of the batch that are `head_stride` apart; the matrix's stride is that of groups.
        all_finite: rows of any finite numbers are scaled; products of such scales may leave the range of FP32.
    """

    prefix: str
    matrix: Matrix
    batch: int
    rows: int
    padded_rows: int
    k: int
    padded_k: int
    heads: int = 1
    head_stride: int = 0
    all_finite: bool = False

    @property
    def buffers(self) -> dict[str, tuple[int, str]]:
        """Number of elements and dtype of each buffer."""
        rows, prefix = self.batch * self.padded_rows, self.prefix
        terms = {f"{prefix}_{part}": (rows * self.padded_k, "float16") for part in ("hi", "lo")}
        return {**terms, f"{prefix}_scale": (rows, "float32")}

    def kernels(self, region: str) -> list[Kernel]:
        """The kernel that splits it."""
        matrix, prefix = self.matrix, self.prefix
        block_k = min(TILE_ELEMENTS, power_of_two(self.padded_k)) if matrix.k_stride == 1 else 64
        total = self.batch * self.rows
        if matrix.k_stride != 1 and total < MIN_SPLIT_ROWS:  # more programs, each with shorter pieces of lines
            block_k = 256
        block_r = max(TILE_ELEMENTS // block_k, 1)
        extent = matrix.offset + self.rows * abs(matrix.row_stride) + self.k * abs(matrix.k_stride)
        wide = ".to(tl.int64)" if extent > INT32_ELEMENTS else ""
        index = [f"rows = tl.program_id(0) * {block_r} + tl.arange(0, {block_r})"]
        if self.batch == 1:
            index += [f"start = rows{wide} * {matrix.row_stride}", "padded = rows"]
        else:
            index += [
                f"batch, row = rows // {self.rows}, rows % {self.rows}",
                f"start = {self._batch_start()} + row{wide} * {matrix.row_stride}",
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
            *(SCALING_OF_FINITE if self.all_finite else SCALING),
            f"tl.store({prefix}_scale_ptr + padded, inverse, mask=rows < {total})",
            f"for k in range(0, {self.padded_k}, {block_k}):",
            *indented(
                [
                    *load,
                    "x *= scale[:, None]",
                    "hi = x.to(tl.float16)",
                    "lo = ((x - hi.to(tl.float32)) * 2048.0).to(tl.float16)",
                    f"mask = (rows < {total})[:, None] & (offs_k < {self.padded_k})[None, :]",
                    f"offsets = padded.to(tl.int64)[:, None] * {self.padded_k} + offs_k[None, :]",
                    f"tl.store({prefix}_hi_ptr + offsets, hi, mask=mask)",
                    f"tl.store({prefix}_lo_ptr + offsets, lo, mask=mask)",
                ]
            ),
        ]
        doc = f"Splits {total:,} rows of {self.k:,} into two FP16 terms; the largest is 2**14 to 2**15"
        name, tensors = f"{region}_split_{prefix}_kernel", [matrix.buffer, *self.buffers]
        return [Kernel(name, print_kernel(name, tensors, doc, body), tensors, -(-total // block_r), 4)]

    def _batch_start(self) -> str:
        """The offset of an element of the batch."""
        stride = self.matrix.batch_stride
        if self.heads == 1:
            return f"batch.to(tl.int64) * {stride}"
        head = f"batch % {self.heads} * {self.head_stride}"
        return f"(batch // {self.heads}).to(tl.int64) * {stride} + {head}"


class PackedLayout(Record, frozen=True, kw_only=True):
    """The order of packed operands along k: taps of all dimensions but the last, then a run that is contiguous in an
    image: the taps of the last dimension, and the channels.

    Attributes:
        scaled: FP32 is packed as scaled FP16.
    """

    windows: Windows
    scaled: bool

    @property
    def dtype(self) -> str:
        """Of packed elements."""
        return "float16" if self.scaled else self.windows.dtype

    @property
    def channels(self) -> int:
        """Channels with padding, so that pixels are aligned to 8 or 16 bytes."""
        return round_up(self.windows.channels, 4 if self.windows.channels <= 4 else 8)

    @property
    def run_taps(self) -> int:
        """Taps of the last dimension in a run."""
        return self.windows.taps[-1] if self.windows.dilation[-1] == 1 else 1

    @property
    def run(self) -> int:
        """Elements of a run, with padding; the weights there are 0. Steps along k are short only if longer ones need
        much padding."""
        used = self.run_taps * self.channels
        run = round_up(used, 2 * MIN_BLOCK_K)
        return run if run - used <= MAX_PADDING_SHARE * used else round_up(used, MIN_BLOCK_K)

    @property
    def padding(self) -> int:
        """Elements at the end of a run that belong to other pixels."""
        return self.run - self.run_taps * self.channels

    @property
    def num_runs(self) -> int:
        """Runs along k."""
        return prod(self.windows.taps) // self.run_taps

    @property
    def depth(self) -> int:
        """Elements along k."""
        return self.num_runs * self.run

    def run_positions(self) -> dict[int, str]:
        """By dimension whose taps are in different runs, the expression of the tap of a `run`."""
        taps, inner, positions = self.windows.taps, 1, dict[int, str]()
        for dim in reversed(range(len(taps) - (self.run_taps == taps[-1]))):
            positions[dim] = f"(run // {inner} % {taps[dim]})"
            inner *= taps[dim]
        return positions


class PackedFilters(Record, frozen=True, kw_only=True):
    """Filters packed as `PREFIX_packed`, [phase, padded_rows, depth], and their scales, `PREFIX_scale`."""

    prefix: str
    filters: Filters
    layout: PackedLayout
    rows: int
    padded_rows: int

    @property
    def buffers(self) -> dict[str, tuple[int, str]]:
        """Number of elements and dtype of each buffer."""
        size = prod(self.layout.windows.phases) * self.padded_rows * self.layout.depth
        packed = {f"{self.prefix}_packed": (size, self.layout.dtype)}
        return {**packed, f"{self.prefix}_scale": (self.padded_rows, "float32")} if self.layout.scaled else packed

    def kernels(self, region: str) -> list[Kernel]:
        """The kernel that packs them, one program for each filter and phase."""
        one, layout, windows = self.filters, self.layout, self.layout.windows
        size, block = windows.channels * prod(one.kernel_size), 1024
        offset = f"{one.offset} + " if one.offset else ""
        body = [f"row, phase = tl.program_id(0) % {self.rows}, tl.program_id(0) // {self.rows}"]
        body += [f"start = {offset}row * {one.row_stride}"]
        if layout.scaled:
            taps = prod(one.kernel_size)
            body += [
                f"largest = tl.zeros(({block},), tl.int32)",
                f"for k in range(0, {size}, {block}):",
                *indented(
                    [
                        f"at = k + tl.arange(0, {block})",
                        f"offsets = start + at // {taps} * {one.channel_stride} + at % {taps}",
                        f"x = tl.load({one.buffer}_ptr + offsets, mask=at < {size}, other=0.0)",
                        "largest = tl.maximum(largest, x.to(tl.int32, bitcast=True) & 0x7FFFFFFF)",
                    ]
                ),
                "largest = tl.max(largest, axis=0)",
                *SCALING,
                f"tl.store({self.prefix}_scale_ptr + row, inverse)",
            ]
        body += [f"for k in range(0, {layout.depth}, {block}):", *indented(self._copy_lines(block))]
        tensors = [one.buffer, *self.buffers]
        doc = f"Copies {self.rows:,} filters with their {windows.channels:,} channels last"
        name = f"{region}_pack_{self.prefix}_kernel"
        programs = self.rows * prod(windows.phases)
        return [Kernel(name, print_kernel(name, tensors, doc, body), tensors, programs, 4)]

    def _copy_lines(self, block: int) -> list[str]:
        """The copy of `block` packed elements of a row."""
        one, layout, windows = self.filters, self.layout, self.layout.windows
        lines = [
            f"at = k + tl.arange(0, {block})",
            f"in_run, run = at % {layout.run}, at // {layout.run}",
            f"channel, run_tap = in_run % {layout.channels}, in_run // {layout.channels}",
            f"mask = (at < {layout.depth}) & (channel < {windows.channels}) & (run_tap < {layout.run_taps})",
        ]
        terms, positions = [], layout.run_positions()
        for dim, size in enumerate(one.kernel_size):
            phase = f"phase // {prod(windows.phases[dim + 1 :])} % {windows.phases[dim]}"
            lines.append(f"weight_{dim} = {weight_expr(one, dim, phase, positions.get(dim, 'run_tap'))}")
            terms.append(f"weight_{dim} * {prod(one.kernel_size[dim + 1 :])}")
            if dim in one.incomplete_dims(windows.taps):
                lines.append(f"mask &= weight_{dim} < {size}")
        packed = "(x * scale).to(tl.float16)" if layout.scaled else "x"
        return [
            *lines,
            f"offsets = start + channel * {one.channel_stride} + {' + '.join(terms)}",
            f"x = tl.load({one.buffer}_ptr + offsets, mask=mask, other=0.0)",
            f"padded = (phase * {self.padded_rows} + row) * {layout.depth} + at",
            f"tl.store({self.prefix}_packed_ptr + padded, {packed}, mask=at < {layout.depth})",
        ]


class PackedImages(Record, frozen=True, kw_only=True):
    """Images packed as `PREFIX_packed`, [image, *size, channels], and their scales, `PREFIX_scale`.

    Those that FP16 cannot hold are packed as 0: windows at the end of the image before may read into them.
    """

    prefix: str
    layout: PackedLayout
    batch: int

    @property
    def size(self) -> tuple[int, ...]:
        """Pixels in each dimension, with the margins."""
        one = self.layout.windows
        return tuple(size + sum(margin) for size, margin in zip(one.image_size, one.margins, strict=True))

    @property
    def pixel_strides(self) -> tuple[int, ...]:
        """Strides in pixels."""
        return tuple(prod(self.size[dim + 1 :]) for dim in range(len(self.size)))

    @property
    def _chunk(self) -> int:
        """Elements of an image of which one program finds the largest."""
        elements = self.layout.windows.channels * prod(self.layout.windows.image_size)
        return round_up(max(-(-elements // MAX_CHUNKS), 16384), 4096)

    @property
    def _num_chunks(self) -> int:
        return -(-self.layout.windows.channels * prod(self.layout.windows.image_size) // self._chunk)

    @property
    def buffers(self) -> dict[str, tuple[int, str]]:
        """Number of elements and dtype of each buffer; runs at the end of the last image read beyond it."""
        size = self.batch * prod(self.size) * self.layout.channels + self.layout.run
        packed = {f"{self.prefix}_packed": (size, self.layout.dtype)}
        scales = {
            f"{self.prefix}_scale": (self.batch, "float32"),
            f"{self.prefix}_largest": (self.batch * self._num_chunks, "int32"),
        }
        return {**packed, **scales} if self.layout.scaled else packed

    def kernels(self, region: str) -> list[Kernel]:
        """The kernel that packs them; before it the one that finds their largest elements."""
        return (
            [self._largest_kernel(region), self._pack_kernel(region)]
            if self.layout.scaled
            else [self._pack_kernel(region)]
        )

    def _largest_kernel(self, region: str) -> Kernel:
        one, block = self.layout.windows, 4096
        pixels = prod(one.image_size)
        terms, inner = [f"at // {pixels} * {one.channel_stride}"], 1
        for size, stride in zip(reversed(one.image_size), reversed(one.image_strides), strict=True):
            terms.append(f"at // {inner} % {size} * {stride}")
            inner *= size
        contiguous = [one.channel_stride, *one.image_strides] == [
            prod(one.image_size[dim:]) for dim in range(len(one.image_size) + 1)
        ]
        offset = f"{one.offset} + " if one.offset else ""
        body = [
            f"image, chunk = tl.program_id(0) // {self._num_chunks}, tl.program_id(0) % {self._num_chunks}",
            f"start = {offset}image.to(tl.int64) * {one.batch_stride}",
            f"largest = tl.zeros(({block},), tl.int32)",
            f"for k in range(0, {self._chunk}, {block}):",
            *indented(
                [
                    f"at = chunk * {self._chunk} + k + tl.arange(0, {block})",
                    f"offsets = start + {'at' if contiguous else ' + '.join(terms)}",
                    f"x = tl.load({one.buffer}_ptr + offsets, mask=at < {one.channels * pixels}, other=0.0)",
                    "largest = tl.maximum(largest, x.to(tl.int32, bitcast=True) & 0x7FFFFFFF)",
                ]
            ),
            f"tl.store({self.prefix}_largest_ptr + tl.program_id(0), tl.max(largest, axis=0))",
        ]
        name, tensors = f"{region}_largest_{self.prefix}_kernel", [one.buffer, f"{self.prefix}_largest"]
        doc = f"The largest magnitudes of {self._num_chunks:,} parts of {self.batch:,} images"
        return Kernel(name, print_kernel(name, tensors, doc, body), tensors, self.batch * self._num_chunks, 4)

    def _pack_kernel(self, region: str) -> Kernel:
        layout, one, pixels = self.layout, self.layout.windows, prod(self.size)
        channels = layout.channels
        block_c = min(power_of_two(channels), 64)
        block_p = 2 * TILE_ELEMENTS // block_c
        tiles = -(-pixels // block_p)
        body = [
            f"image = tl.program_id(0) // {tiles}",
            f"pixel = tl.program_id(0) % {tiles} * {block_p} + tl.arange(0, {block_p})",
            f"inside = pixel < {pixels}",
        ]
        if layout.scaled:
            block = power_of_two(self._num_chunks)
            body += [
                f"chunk = tl.arange(0, {block})",
                f"parts = {self.prefix}_largest_ptr + image * {self._num_chunks} + chunk",
                f"largest = tl.max(tl.load(parts, mask=chunk < {self._num_chunks}, other=0), axis=0)",
                *SCALING,
                f"if tl.program_id(0) % {tiles} == 0:",
                f"    tl.store({self.prefix}_scale_ptr + image, inverse)",
            ]
        if layout.padding:
            slack = power_of_two(layout.run)
            zeros = f"tl.zeros(({slack},), {TRITON_TYPES[layout.dtype]})"
            body += [
                "if tl.program_id(0) == 0:",
                f"    slack = tl.arange(0, {slack})",
                f"    end = {self.prefix}_packed_ptr + {self.batch * pixels * channels}",
                f"    tl.store(end + slack, {zeros}, mask=slack < {layout.run})",
            ]
        terms = []
        for dim, (stride, size) in enumerate(zip(self.pixel_strides, self.size, strict=True)):
            before, after = one.margins[dim]
            body.append(f"at_{dim} = pixel // {stride} % {size} - {before}")
            if before or after:
                body.append(f"inside &= (at_{dim} >= 0) & (at_{dim} < {one.image_size[dim]})")
            terms.append(f"at_{dim} * {one.image_strides[dim]}")
        offset = f"{one.offset} + " if one.offset else ""
        packed = "tl.where(in_range, x * scale, 0.0).to(tl.float16)" if layout.scaled else "x"
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
                    f"tl.store({self.prefix}_packed_ptr + padded[:, None] + channel[None, :], {packed}, mask=mask)",
                ]
            ),
        ]
        name, tensors = f"{region}_pack_{self.prefix}_kernel", [one.buffer, *self.buffers]
        doc = f"Copies {self.batch:,} images with their {one.channels:,} channels last and zeros around them"
        return Kernel(name, print_kernel(name, tensors, doc, body), tensors, self.batch * tiles, 4)


def weight_expr(filters: Filters, dim: int, phase: str, position: str) -> str:
    """The index of a weight in a dimension, by the expressions of its phase and of the position of its tap."""
    return f"{select(phase, filters.first[dim])} + {position} * {filters.tap_step[dim]}"


def select(index: str, values: Sequence[int]) -> str:
    """The expression of the value at an index."""
    if len(set(values)) == 1:
        return str(values[0])
    expr = str(values[-1])
    for at in reversed(range(len(values) - 1)):
        expr = f"tl.where({index} == {at}, {values[at]}, {expr})"
    return expr


def round_up(size: int, block: int) -> int:
    """The least multiple of a block that is not below a size."""
    return -(-size // block) * block


def power_of_two(size: int) -> int:
    """The least power of two that is not below a size."""
    return 1 << (size - 1).bit_length()
