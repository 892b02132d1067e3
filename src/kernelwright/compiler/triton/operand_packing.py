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
from kernelwright.compiler.triton.source_lines import remove_dead_lines
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
        all_finite: rows of any finite numbers are scaled; products of such scales may leave the range of FP32.
    """

    prefix: str
    matrix: Matrix
    batch: int
    rows: int
    padded_rows: int
    k: int
    padded_k: int
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
                f"start = {batch_start(matrix)} + row{wide} * {matrix.row_stride}",
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


def batch_start(matrix: Matrix) -> str:
    """Return the offset of an element of a batch."""
    inner, terms = 1, []
    for size, stride in reversed(matrix.batch_axes):
        index = f"batch // {inner} % {size}" if inner > 1 else f"batch % {size}"
        terms.append(f"({index}).to(tl.int64) * {stride}")
        inner *= size
    outer = f"(batch // {inner})" if inner > 1 else "batch"
    return " + ".join([f"{outer}.to(tl.int64) * {matrix.batch_stride}", *reversed(terms)])


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
    def run_taps(self) -> tuple[int, ...]:
        """Taps in a run, by phase of the last dimension."""
        taps = self.windows.phase_taps[-1]
        return taps if self.windows.dilation[-1] == 1 else tuple(min(count, 1) for count in taps)

    @property
    def runs(self) -> tuple[int, ...]:
        """Elements of a run with padding, whose weights are 0, by phase of the last dimension; 0 without taps."""
        return tuple(_run_length(count * self.channels) for count in self.run_taps)

    @property
    def paddings(self) -> tuple[int, ...]:
        """Elements at the end of a run that belong to other pixels, by phase of the last dimension."""
        return tuple(run - taps * self.channels for run, taps in zip(self.runs, self.run_taps, strict=True))

    @property
    def depth(self) -> int:
        """The most elements along k of a phase."""
        last_taps = self.windows.phase_taps[-1]
        counts = zip(self.runs, self.run_taps, last_taps, strict=True)
        return prod(self.windows.taps[:-1]) * max(run * (count // max(taps, 1)) for run, taps, count in counts)

    @property
    def run_dims(self) -> tuple[int, ...]:
        """The dimensions whose taps are in different runs, the last one first."""
        dims = range(len(self.windows.taps) - (self.run_taps == self.windows.phase_taps[-1]))
        return tuple(reversed(dims))

    def count_taps(self) -> list[str]:
        """Lines that find the taps of a phase in each dimension of the runs; 1 in place of none, as divisor."""
        return [
            f"taps_{dim} = {select(f'phase_{dim}', [max(one, 1) for one in self.windows.phase_taps[dim]])}"
            for dim in self.run_dims
            if dim in self.windows.uneven_dims
        ]

    def run_positions(self, last_taps: int = 0) -> dict[int, str]:
        """By dimension whose taps are in different runs, the expression of the tap of a `run`.

        Args:
            last_taps: those of the phase of the last dimension, where it is known as the kernel is generated.
        """
        inner, positions = list[str](), dict[int, str]()
        for dim in self.run_dims:
            taps = f"taps_{dim}" if dim in self.windows.uneven_dims else str(self.windows.taps[dim])
            if last_taps and dim == len(self.windows.taps) - 1:
                taps = str(last_taps)
            positions[dim] = f"(run // ({' * '.join(inner)}) % {taps})" if inner else f"(run % {taps})"
            inner.append(taps)
        return positions


def _run_length(used: int) -> int:
    """Steps along k are short only if longer ones need much padding."""
    run = round_up(used, 2 * MIN_BLOCK_K)
    return run if run - used <= MAX_PADDING_SHARE * used else round_up(used, MIN_BLOCK_K)


class PackedFilters(Record, frozen=True, kw_only=True):
    """Filters packed as `PREFIX_packed`, [phase, group, padded_rows, depth], and their scales, `PREFIX_scale`.

    A phase with fewer taps leaves the end of its rows unused.

    Attributes:
        rows: of one group.
    """

    prefix: str
    filters: Filters
    layout: PackedLayout
    rows: int
    padded_rows: int

    @property
    def buffers(self) -> dict[str, tuple[int, str]]:
        """Number of elements and dtype of each buffer."""
        rows = self.layout.windows.groups * self.padded_rows
        size = prod(self.layout.windows.phases) * rows * self.layout.depth
        packed = {f"{self.prefix}_packed": (size, self.layout.dtype)}
        return {**packed, f"{self.prefix}_scale": (rows, "float32")} if self.layout.scaled else packed

    def kernels(self, region: str) -> list[Kernel]:
        """The kernel that packs them, one program for each filter and phase."""
        one, layout, windows = self.filters, self.layout, self.layout.windows
        size, block = windows.channels * prod(one.kernel_size), 1024
        offset = f"{one.offset} + " if one.offset else ""
        body = [f"row, phase = tl.program_id(0) % {self.rows}, tl.program_id(0) // {self.rows}"]
        group, padded = "", "row"
        if windows.groups > 1:
            body.append(f"group, phase = phase % {windows.groups}, phase // {windows.groups}")
            group, padded = f"group * {one.group_stride} + ", f"group * {self.padded_rows} + row"
        body += [f"start = {offset}{group}row * {one.row_stride}", f"padded_row = {padded}"]
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
                f"tl.store({self.prefix}_scale_ptr + padded_row, inverse)",
            ]
        for dim, count in enumerate(windows.phases):
            body.append(f"phase_{dim} = phase // {prod(windows.phases[dim + 1 :])} % {count}")
        body += layout.count_taps()
        body += [f"for k in range(0, {layout.depth}, {block}):", *indented(self._copy_lines(block))]
        tensors = [one.buffer, *self.buffers]
        doc = f"Copies {self.rows:,} filters with their {windows.channels:,} channels last"
        name = f"{region}_pack_{self.prefix}_kernel"
        programs = self.rows * windows.groups * prod(windows.phases)
        body = remove_dead_lines(body)
        return [Kernel(name, print_kernel(name, tensors, doc, body), tensors, programs, 4)]

    def _copy_lines(self, block: int) -> list[str]:
        """The copy of `block` packed elements of a row."""
        one, layout, windows = self.filters, self.layout, self.layout.windows
        last_phase = f"phase_{len(windows.taps) - 1}"
        run = select(last_phase, [max(size, MIN_BLOCK_K) for size in layout.runs])
        lines = [
            f"at = k + tl.arange(0, {block})",
            f"run_size = {run}",
            "in_run, run = at % run_size, at // run_size",
            f"channel, run_tap = in_run % {layout.channels}, in_run // {layout.channels}",
            f"run_taps = {select(last_phase, layout.run_taps)}",
            f"mask = (at < {layout.depth}) & (channel < {windows.channels}) & (run_tap < run_taps)",
        ]
        terms, positions = [], layout.run_positions()
        for dim in range(len(one.kernel_size)):
            lines.append(f"weight_{dim} = {weight_expr(one, dim, f'phase_{dim}', positions.get(dim, 'run_tap'))}")
            terms.append(f"weight_{dim} * {prod(one.kernel_size[dim + 1 :])}")
        packed = "(x * scale).to(tl.float16)" if layout.scaled else "x"
        return [
            *lines,
            f"offsets = start + channel * {one.channel_stride} + {' + '.join(terms)}",
            f"x = tl.load({one.buffer}_ptr + offsets, mask=mask, other=0.0)",
            f"padded = (phase * {windows.groups * self.padded_rows} + padded_row) * {layout.depth} + at",
            f"tl.store({self.prefix}_packed_ptr + padded, {packed}, mask=at < {layout.depth})",
        ]


class PackedImages(Record, frozen=True, kw_only=True):
    """Images packed as `PREFIX_packed`, [image, *size, channels], and their scales, `PREFIX_scale`.

    The channels of each group are an image of their own.

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
        size = self.batch * prod(self.size) * self.layout.channels + max(self.layout.runs)
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
            f"start = {offset}{image_start(one, 'image')}",
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
        if any(layout.paddings):
            slack = power_of_two(max(layout.runs))
            zeros = f"tl.zeros(({slack},), {TRITON_TYPES[layout.dtype]})"
            body += [
                "if tl.program_id(0) == 0:",
                f"    slack = tl.arange(0, {slack})",
                f"    end = {self.prefix}_packed_ptr + {self.batch * pixels * channels}",
                f"    tl.store(end + slack, {zeros}, mask=slack < {max(layout.runs)})",
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
            f"start = {offset}{image_start(one, 'image')} + {' + '.join(terms)}",
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


def image_start(windows: Windows, image: str) -> str:
    """The offset of an image, or of a group of its channels, by the expression of its index."""
    if windows.groups == 1:
        return f"{image}.to(tl.int64) * {windows.batch_stride}"
    group = f"{image} % {windows.groups} * {windows.channels * windows.channel_stride}"
    return f"({image} // {windows.groups}).to(tl.int64) * {windows.batch_stride} + {group}"


def group_start(windows: Windows, rows: int) -> str:
    """The first of the `rows` of a batch's group as a term; empty without groups."""
    return f"batch % {windows.groups} * {rows} + " if windows.groups > 1 else ""


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
