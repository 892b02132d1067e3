"""Generates Triton for contractions with their epilogues.

FP32 products run on the tensor cores without loss of accuracy: each operand is split into two FP16 terms, scaled by a
power of two for each row, and three products of these are accumulated. The main one is added to an FP32 register every
few steps, since the tensor cores round their sums towards zero. A row that the split cannot hold (with infinity, NaN,
or beyond 2**60) is computed again in FP32. Ootomo & Yokota 2022, arXiv:2203.03341.

The other dtypes, and FP32 where torch permits TF32, use their tensor-core product as it is. Convolutions read windows
directly, or packed with channels last.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.contraction import AxisIndex, ContractionRegion, Filters, Matrix, Windows
from kernelwright.compiler.regions.region import HALF_DTYPES, Load, Reduction, Scan, Step, Store
from kernelwright.compiler.triton.op_templates import TRITON_TYPES, full, select_helpers, step_expr
from kernelwright.compiler.triton.operand_packing import (
    INT32_ELEMENTS,
    Kernel,
    PackedFilters,
    PackedImages,
    PackedLayout,
    SplitMatrix,
    indented,
    power_of_two,
    print_kernel,
    round_up,
    select,
)
from kernelwright.compiler.triton.source_lines import remove_dead_lines, wrap_line
from kernelwright.compiler.triton.triton_source import TritonSource
from kernelwright.core.record import Record

GROUP_M = 8
"""Rows of tiles that run together, so that their operands stay in the L2 cache."""
PROMOTED_STEPS = 4
"""Steps of BLOCK_K after which the main product of split operands is added to its FP32 sum."""
EXACT_TILE, EXACT_BLOCK_K = 64, 32
DIRECT, SPLIT, PACKED = "direct", "split", "packed"
MAX_DIRECT_CHANNELS = 32
"""Windows of images with more channels are not read directly: their elements are far apart."""


class ContractionConfig(Record, frozen=True, kw_only=True):
    """A tile of the result, and the steps along k.

    Attributes:
        operands: `direct`, `split` (FP32 in two FP16 terms) or `packed` (channels last).
    """

    BLOCK_M: int
    BLOCK_N: int
    BLOCK_K: int
    num_warps: int
    num_stages: int
    operands: str = DIRECT


def generate_contraction_configs(region: ContractionRegion) -> list[ContractionConfig]:
    """Return the configs that can run a contraction, most promising first."""
    one = region.contraction
    if isinstance(one.right, Windows):
        run = PackedLayout(windows=one.right, scaled=one.tf32).run
        packed = [tile for tile in _PACKED_TILES if run % tile[2] == 0]
        configs = _fitting(packed, one.m, one.n, PACKED)
        if one.right.channels <= MAX_DIRECT_CHANNELS and _is_plain(one.left):
            configs = [*_fitting(_DIRECT_TILES, one.m, one.n, DIRECT), *configs]
        return configs
    if one.left.dtype == "float32":
        return _fitting(*((_TF32_TILES, one.m, one.n, DIRECT) if one.tf32 else (_SPLIT_TILES, one.m, one.n, SPLIT)))
    return _fitting(_HALF_TILES, one.m, one.n, DIRECT)


def _fitting(tiles: Sequence[tuple[int, ...]], m: int, n: int, operands: str) -> list[ContractionConfig]:
    """The configs whose tiles are not far larger than the result; the smallest always."""
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    limits = [power_of_two(max(size, min(tile[dim] for tile in tiles))) for dim, size in enumerate((m, n))]
    fitting = [tile for tile in tiles if tile[0] <= limits[0] and tile[1] <= limits[1]]
    return [ContractionConfig(**dict(zip(names, tile, strict=True)), operands=operands) for tile in fitting]


def _is_plain(filters: Matrix | Filters) -> bool:
    """Whether filters are those of a plain convolution."""
    return isinstance(filters, Filters) and set(filters.tap_step) == {1}


_SPLIT_TILES = ((128, 128, 64, 8, 3), (128, 64, 64, 8, 4), (64, 64, 64, 4, 4))
_TF32_TILES = ((128, 256, 32, 8, 3), (128, 128, 32, 8, 3), (64, 128, 32, 4, 4), (64, 64, 32, 4, 4))
_HALF_TILES = ((128, 256, 64, 8, 3), (128, 128, 64, 4, 4), (64, 128, 64, 4, 4), (64, 64, 64, 4, 4))
_DIRECT_TILES = ((64, 128, 16, 4, 3), (64, 128, 32, 4, 3), (32, 128, 16, 4, 3))
_PACKED_TILES = (
    (128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (128, 128, 32, 4, 4), (64, 256, 64, 8, 3), (64, 256, 32, 4, 4),
    (64, 128, 64, 4, 4), (64, 128, 32, 4, 4), (64, 128, 16, 4, 4), (32, 256, 32, 4, 4), (32, 128, 16, 4, 4),
)  # fmt: skip


def print_contraction(region: ContractionRegion, config: ContractionConfig) -> TritonSource:
    """Generate the kernels of a contraction and the function that launches them.

    Raises:
        Unsupported: a step of the epilogue has no Triton code.
    """
    return _Printer(region, config).generate()


class _Printer:
    def __init__(self, region: ContractionRegion, config: ContractionConfig) -> None:
        self.region, self.config, self.one = region, config, region.contraction
        self.indices = region.indices
        self.windows = self.one.right if isinstance(self.one.right, Windows) else None
        self.round_to_tf32 = self.one.tf32 and self.one.left.dtype == "float32"
        operands: tuple[SplitMatrix | PackedFilters | PackedImages, ...] = ()
        if config.operands == SPLIT:
            operands = self._split_operands()
        elif config.operands == PACKED:
            operands = self._packed_operands()
        self.buffers = {name: size for operand in operands for name, size in operand.buffers.items()}
        self.operands = operands

    def generate(self) -> TritonSource:
        name, config = self.region.name, self.config
        kernels = [kernel for one in self.operands for kernel in one.kernels(name)]
        loops = {SPLIT: self._split_loop, PACKED: self._packed_loop, DIRECT: self._direct_loop}
        kernels.append(self._main_kernel(loops[config.operands]()))
        kernels += [self._exact_kernel()] if "left_scale" in self.buffers else []
        source = "\n\n".join(kernel.source for kernel in kernels)
        inputs, outputs = self.region.reads, self.region.writes
        lines = [
            f"launch_{one.name} = make_launcher({one.name}, {one.num_programs}, {one.num_warps})" for one in kernels
        ]
        lines += ["", "", f"def launch_{name}({', '.join([*inputs, *outputs])}):"]
        lines.append(f'    """Computes {", ".join(outputs)} from {", ".join(inputs)}."""')
        for buffer, (size, dtype) in self.buffers.items():
            lines.append(f"    {buffer} = empty_on_device_of({inputs[0]}, ({size},), (1,), torch.{dtype})")
        lines += [f"    launch_{one.name}({', '.join(one.tensors)})" for one in kernels]
        return TritonSource(
            launcher_name=f"launch_{name}",
            helpers=select_helpers(source),
            kernels=source,
            kernel_names=tuple(one.name for one in kernels),
            scratch={buffer: dtype for buffer, (_, dtype) in self.buffers.items()},
            launcher="\n".join(wrapped for line in lines for wrapped in wrap_line(line)) + "\n",
        )

    def _split_operands(self) -> tuple[SplitMatrix, SplitMatrix]:
        one, config = self.one, self.config
        if not isinstance(one.left, Matrix) or not isinstance(one.right, Matrix):
            raise Unsupported("images in two terms")

        def split(side: str, matrix: Matrix, rows: int, block: int) -> SplitMatrix:
            batch = one.batch if matrix.batch_stride else 1
            padded_rows, padded_k = round_up(rows, block), round_up(one.k, config.BLOCK_K)
            return SplitMatrix(
                side=side, matrix=matrix, batch=batch, rows=rows, padded_rows=padded_rows, k=one.k, padded_k=padded_k
            )

        return split("left", one.left, one.m, config.BLOCK_M), split("right", one.right, one.n, config.BLOCK_N)

    def _packed_operands(self) -> tuple[PackedFilters, PackedImages]:
        one = self.one
        if not isinstance(one.left, Filters) or self.windows is None:
            raise Unsupported("packed matrices")
        layout = PackedLayout(windows=self.windows, scaled=self.round_to_tf32)
        if layout.run % self.config.BLOCK_K:
            raise Unsupported("runs that are not a multiple of the step")
        padded_rows = round_up(one.m, self.config.BLOCK_M)
        filters = PackedFilters(filters=one.left, layout=layout, rows=one.m, padded_rows=padded_rows)
        return filters, PackedImages(layout=layout, batch=one.batch)

    # ---- the kernel of a tile

    def _main_kernel(self, loop: list[str]) -> Kernel:
        one, config = self.one, self.config
        tiles_m, tiles_n = -(-one.m // config.BLOCK_M), -(-self._num_columns // config.BLOCK_N)
        body = [*self._tile_position(tiles_m, tiles_n, config.BLOCK_M, config.BLOCK_N), *loop]
        body += self._epilogue(self._mask(config.BLOCK_M, config.BLOCK_N))
        doc = f"{one.batch} x {one.m:,} x {one.n:,} over {one.k:,} in tiles"
        programs = one.batch * tiles_m * tiles_n * self._num_phases
        return self._build(f"{self.region.name}_kernel", doc, body, programs, config.num_warps)

    @property
    def _num_phases(self) -> int:
        return prod(self.windows.phases) if self.windows else 1

    @property
    def _num_columns(self) -> int:
        """The columns of one phase."""
        return prod(self.windows.grid) if self.windows else self.one.n

    def _tile_position(self, tiles_m: int, tiles_n: int, block_m: int, block_n: int) -> list[str]:
        """The batch, and the offsets of a tile's rows and columns; groups of rows run column by column."""
        lines = ["tile = tl.program_id(0)"]
        if self._num_phases > 1:
            lines += [f"phase = tile % {self._num_phases}", f"tile = tile // {self._num_phases}"]
        if self.one.batch > 1:
            lines += [f"batch = tile // {tiles_m * tiles_n}", f"tile = tile % {tiles_m * tiles_n}"]
        if self.windows or min(tiles_m, tiles_n) == 1:
            lines += [f"tile_m, tile_n = tile % {tiles_m}, tile // {tiles_m}"]
        else:
            lines += [
                f"group = tile // {GROUP_M * tiles_n} * {GROUP_M}",
                f"group_rows = tl.minimum({tiles_m} - group, {GROUP_M})",
                f"tile_m = group + tile % {GROUP_M * tiles_n} % group_rows",
                f"tile_n = tile % {GROUP_M * tiles_n} // group_rows",
            ]
        lines += [
            f"offs_m = tile_m * {block_m} + tl.arange(0, {block_m})",
            f"offs_n = tile_n * {block_n} + tl.arange(0, {block_n})",
            f"rows = batch * {self.one.m} + offs_m" if self.one.batch > 1 else "rows = offs_m",
        ]
        return [*lines, *self._output_pixels()]

    def _output_pixels(self) -> list[str]:
        """The column of the result of each column of a tile: pixels of one phase are apart."""
        if self._num_phases == 1 or self.windows is None:
            return ["columns, in_columns = offs_n, offs_n < " + str(self.one.n)]
        one, lines, terms, masks = self.windows, [], [], [f"(offs_n < {self._num_columns})"]
        for dim, (size, phases, length) in enumerate(zip(one.grid, one.phases, one.output_size, strict=True)):
            inner, inner_phases = prod(one.grid[dim + 1 :]), prod(one.phases[dim + 1 :])
            lines.append(f"phase_{dim} = phase // {inner_phases} % {phases}")
            lines.append(f"pixel_{dim} = offs_n // {inner} % {size} * {phases} + phase_{dim}")
            terms.append(f"pixel_{dim} * {prod(one.output_size[dim + 1 :])}")
            if length % phases:
                masks.append(f"(pixel_{dim} < {length})")
        return [*lines, f"columns, in_columns = {' + '.join(terms)}, {' & '.join(masks)}"]

    def _split_loop(self) -> list[str]:
        config, (left, right) = self.config, self._split_operands()
        zeros = f"tl.zeros(({config.BLOCK_M}, {config.BLOCK_N}), tl.float32)"
        k = left.padded_k

        def base(operand: SplitMatrix) -> str:
            return f"batch * {operand.padded_rows} + " if operand.batch > 1 else ""

        wide = ".to(tl.int64)" if self.one.batch * max(left.padded_rows, right.padded_rows) * k > INT32_ELEMENTS else ""
        return [
            f"offs_k = tl.arange(0, {config.BLOCK_K})",
            f"left_rows, right_rows = {base(left)}offs_m, {base(right)}offs_n",
            f"left_offsets = left_rows{wide}[:, None] * {k} + offs_k[None, :]",
            f"right_offsets = right_rows{wide}[None, :] * {k} + offs_k[:, None]",
            f"total = {zeros}",
            f"main = {zeros}",
            f"cross = {zeros}",
            f"for k in tl.range(0, {k}, {config.BLOCK_K}, num_stages={config.num_stages}):",
            *indented(
                [
                    *(
                        f"{side}_{part} = tl.load({side}_{part}_ptr + {side}_offsets + k)"
                        for side in ("left", "right")
                        for part in ("hi", "lo")
                    ),
                    "cross = tl.dot(left_lo, right_hi, cross)",
                    "cross = tl.dot(left_hi, right_lo, cross)",
                    "main = tl.dot(left_hi, right_hi, main)",
                    f"if (k // {config.BLOCK_K}) % {PROMOTED_STEPS} == {PROMOTED_STEPS - 1}:",
                    "    total += main",
                    f"    main = {zeros}",
                ]
            ),
            "left_scale = tl.load(left_scale_ptr + left_rows)[:, None]",
            "right_scale = tl.load(right_scale_ptr + right_rows)[None, :]",
            "acc = (total + main + cross * (1.0 / 2048.0)) * left_scale * right_scale",
        ]

    def _packed_loop(self) -> list[str]:
        """The product of packed filters and images, run by run."""
        config, (filters, images) = self.config, self._packed_operands()
        layout = filters.layout
        one, channels = layout.windows, layout.channels
        lines, origin, shift, inner_taps = [], list[str](), list[str](), layout.num_runs
        for dim, stride in enumerate(images.pixel_strides):
            inner = prod(one.grid[dim + 1 :])
            start = select(f"phase_{dim}", [at + one.margins[dim][0] for at in one.start[dim]])
            pixel = f"offs_n // {inner} % {one.grid[dim]}" if inner > 1 else f"offs_n % {one.grid[dim]}"
            lines.append(f"origin_{dim} = ({pixel}) * {one.step[dim]} + {start}")
            origin.append(f"origin_{dim} * {stride}")
            if dim < len(one.taps) - 1 or layout.run_taps < one.taps[dim]:
                inner_taps //= one.taps[dim]
                shift.append(f"run // {inner_taps} % {one.taps[dim]} * {one.dilation[dim] * stride * channels}")
        batch = f"batch.to(tl.int64) * {prod(images.size)} + " if self.one.batch > 1 else ""
        phase = f"phase * {filters.padded_rows} + " if self._num_phases > 1 else ""
        precision = ', input_precision="tf32x3"' if layout.dtype == "float32" else ""
        masks = [f"(offs_n < {self._num_columns})[None, :]"] * bool(self._num_columns % config.BLOCK_N)
        if layout.padding and not layout.scaled:  # infinities of other pixels, which are marked if scaled
            masks.append(f"(k % {layout.run} + offs_k < {layout.run - layout.padding})[:, None]")
        right_mask = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
        scale = []
        if layout.scaled:
            image = "batch" if self.one.batch > 1 else "0"
            scale = [
                "left_scale = tl.load(left_scale_ptr + offs_m)[:, None]",
                f"right_scale = tl.load(right_scale_ptr + {image})",
                "acc = acc * left_scale * right_scale",
            ]
        return [
            *lines,
            f"offs_k = tl.arange(0, {config.BLOCK_K})",
            f"left_offsets = ({phase}offs_m)[:, None] * {layout.depth} + offs_k[None, :]",
            f"origin = ({batch}{' + '.join(origin)}) * {channels}",
            "right_offsets = origin[None, :] + offs_k[:, None]",
            f"acc = tl.zeros(({config.BLOCK_M}, {config.BLOCK_N}), tl.float32)",
            f"for k in tl.range(0, {layout.depth}, {config.BLOCK_K}, num_stages={config.num_stages}):",
            *indented(
                [
                    f"run = k // {layout.run}",
                    f"shift = {' + '.join([*shift, f'k % {layout.run}'])}",
                    "left = tl.load(left_packed_ptr + left_offsets + k)",
                    f"right = tl.load(right_packed_ptr + right_offsets + shift{right_mask})",
                    f"acc = tl.dot(left, right, acc{precision})",
                ]
            ),
            *scale,
        ]

    def _direct_loop(self, *, exact: bool = False) -> list[str]:
        """The product of the operands as they are; with `exact` in FP32 without tensor cores."""
        one, config = self.one, self.config
        block_k = EXACT_BLOCK_K if exact else config.BLOCK_K
        block_m, block_n = (EXACT_TILE, EXACT_TILE) if exact else (config.BLOCK_M, config.BLOCK_N)
        stages = 1 if exact else config.num_stages
        block = ("offs_m", ("[:, None]", "[None, :]"), one.m, block_m, block_k)
        left, mask_left = (
            self._matrix_pointer(one.left, *block)
            if isinstance(one.left, Matrix)
            else self._filter_pointer(one.left, block_m)
        )
        if isinstance(one.right, Windows):
            setup, inside, right, mask_right = self._window_pointer(one.right, block_n, block_k)
        else:
            setup, inside = [], []
            right, mask_right = self._matrix_pointer(
                one.right, "offs_n", ("[None, :]", "[:, None]"), one.n, block_n, block_k
            )
        precision, rounded = "", "round_to_tf32({})" if self.round_to_tf32 and not exact else "{}"
        if one.left.dtype == "float32":
            fp32 = "tf32x3" if isinstance(one.right, Windows) else "ieee"
            precision = f', input_precision="{"tf32" if one.tf32 and not exact else fp32}"'
        return [
            *setup,
            f"acc = tl.zeros(({block_m}, {block_n}), tl.float32)",
            f"for k in tl.range(0, {one.k}, {block_k}, num_stages={stages}):",
            *indented(
                [
                    f"offs_k = k + tl.arange(0, {block_k})",
                    *inside,
                    f"left = {rounded.format(f'tl.load({left}{mask_left})')}",
                    f"right = {rounded.format(f'tl.load({right}{mask_right})')}",
                    f"acc = tl.dot(left, right, acc{precision})",
                ]
            ),
        ]

    def _matrix_pointer(
        self, matrix: Matrix, rows: str, suffixes: tuple[str, str], size: int, block: int, block_k: int
    ) -> tuple[str, str]:
        """The addresses of a tile of an operand, and its mask as an argument of the load."""
        wide = ".to(tl.int64)" if size * matrix.row_stride + self.one.k * matrix.k_stride > INT32_ELEMENTS else ""
        row, k = suffixes
        terms = [f"{matrix.buffer}_ptr"]
        terms += [str(matrix.offset)] * bool(matrix.offset)
        terms += [f"batch.to(tl.int64) * {matrix.batch_stride}"] * bool(matrix.batch_stride and self.one.batch > 1)
        terms += [f"{rows}{wide}{row} * {matrix.row_stride}", f"offs_k{wide}{k} * {matrix.k_stride}"]
        masks = [f"({rows} < {size}){row}"] * bool(size % block)
        masks += [f"(offs_k < {self.one.k}){k}"] * bool(self.one.k % block_k)
        return " + ".join(terms), f", mask={' & '.join(masks)}, other=0.0" if masks else ""

    def _filter_pointer(self, one: Filters, block_m: int) -> tuple[str, str]:
        """The addresses of a tile of filters, [rows, (channel, tap)], and its mask; `_window_pointer` has the taps."""
        assert self.windows
        masks = [f"(offs_m < {self.one.m})[:, None]"] * bool(self.one.m % block_m)
        masks.append(f"(offs_k < {self.one.k})[None, :]")
        terms = [f"{one.buffer}_ptr", *[str(one.offset)] * bool(one.offset)]
        terms.append(f"offs_m[:, None] * {one.row_stride}")
        terms.append(f"(offs_k // {prod(self.windows.taps)} * {one.channel_stride})[None, :]")
        for dim, (first, step) in enumerate(zip(one.first, one.tap_step, strict=True)):
            weight = f"{select(f'phase_{dim}', first)} + position_{dim} * {step}"
            terms.append(f"({weight})[None, :] * {prod(one.kernel_size[dim + 1 :])}")
            if step != 1:
                masks.append(f"(({weight} >= 0) & ({weight} < {one.kernel_size[dim]}))[None, :]")
        return " + ".join(terms), f", mask={' & '.join(masks)}, other=0.0"

    def _window_pointer(self, one: Windows, block_n: int, block_k: int) -> tuple[list[str], list[str], str, str]:
        """Lines before and in the loop, the addresses of a tile of windows, and its mask."""
        dims, taps = range(len(one.taps)), prod(one.taps)
        setup, inside, masks = [], [], []
        rest = "offs_n"
        for dim in dims:
            inner = prod(one.grid[dim + 1 :])
            expr = f"{rest} // {inner}" if inner > 1 else rest
            setup.append(f"start_{dim} = ({expr}) * {one.step[dim]} + {select(f'phase_{dim}', one.start[dim])}")
            rest = f"({rest} % {inner})"
        origin = " + ".join(f"start_{dim} * {one.image_strides[dim]}" for dim in dims)
        setup.append(f"origin = {origin}")
        inside.append(f"tap = offs_k % {taps}")
        for dim in dims:
            inner = prod(one.taps[dim + 1 :])
            expr = f"tap // {inner} % {one.taps[dim]}" if inner > 1 else f"tap % {one.taps[dim]}"
            inside.append(f"position_{dim} = {expr}")
            inside.append(f"tap_{dim} = position_{dim} * {one.dilation[dim]}")
            if any(one.margins[dim]):
                inside.append(f"at_{dim} = start_{dim}[None, :] + tap_{dim}[:, None]")
                masks.append(f"(at_{dim} >= 0) & (at_{dim} < {one.image_size[dim]})")
        shift = " + ".join(f"tap_{dim} * {one.image_strides[dim]}" for dim in dims)
        inside.append(f"shift = offs_k // {taps} * {one.channel_stride} + {shift}")
        terms = [f"{one.buffer}_ptr"] + [str(one.offset)] * bool(one.offset)
        terms += [f"batch.to(tl.int64) * {one.batch_stride}"] * (self.one.batch > 1)
        terms += ["origin[None, :]", "shift[:, None]"]
        masks += [f"(offs_n < {self._num_columns})[None, :]"] * bool(self._num_columns % block_n)
        masks += [f"(offs_k < {self.one.k})[:, None]"] * bool(self.one.k % block_k)
        return setup, inside, " + ".join(terms), f", mask={' & '.join(masks)}, other=0.0" if masks else ""

    def _exact_kernel(self) -> Kernel:
        """The rows and columns that the scaled operands cannot hold, in FP32."""
        one = self.one
        tiles_m, tiles_n = -(-one.m // EXACT_TILE), -(-self._num_columns // EXACT_TILE)
        mask = self._mask(EXACT_TILE, EXACT_TILE, always=True)
        body = [
            *self._tile_position(tiles_m, tiles_n, EXACT_TILE, EXACT_TILE),
            *self._load_lost(),
            "if tl.max(tl.max(is_lost.to(tl.int32), axis=1), axis=0) == 1:",
            *indented(
                [*self._direct_loop(exact=True), *self._epilogue({**mask, "store": f"{mask['store']} & is_lost"})]
            ),
        ]
        doc = "Computes in FP32 what the scaled FP16 operands could not hold, marked by a scale that is NaN"
        programs = one.batch * tiles_m * tiles_n * self._num_phases
        return self._build(f"{self.region.name}_exact_kernel", doc, body, programs, 4)

    def _load_lost(self) -> list[str]:
        """Whether each element of a tile is in a row or column whose scale is NaN."""
        one = self.one
        left_rows = right_rows = ""
        if self.config.operands == SPLIT:
            left, right = self._split_operands()
            left_rows = f"batch * {left.padded_rows} + " if left.batch > 1 else ""
            right_rows = f"batch * {right.padded_rows} + " if right.batch > 1 else ""
            right_scale = f"{right_rows}offs_n, mask=offs_n < {one.n}, other=1.0"
        else:
            right_scale = f"offs_n * 0{' + batch' if one.batch > 1 else ''}"
        return [
            f"left_scale = tl.load(left_scale_ptr + {left_rows}offs_m, mask=offs_m < {one.m}, other=1.0)",
            f"right_scale = tl.load(right_scale_ptr + {right_scale})",
            "is_lost = (left_scale != left_scale)[:, None] | (right_scale != right_scale)[None, :]",
        ]

    # ---- the epilogue

    def _mask(self, block_m: int, block_n: int, *, always: bool = False) -> dict[str, str]:
        """The masks of loads that depend on rows, on columns, on both, and of stores; empty where none is needed."""
        rows = f"(offs_m < {self.one.m})[:, None]" if always or self.one.m % block_m else ""
        partial = self._num_phases > 1 or self._num_columns % block_n
        columns = "in_columns[None, :]" if always or partial else ""
        both = " & ".join(filter(None, (rows, columns)))
        return {"rows": rows, "columns": columns, "both": both, "store": both}

    def _epilogue(self, masks: dict[str, str]) -> list[str]:
        one, lines, dtypes = self.one, list[str](), dict[str, str]()
        if one.bias:
            buffer, dtype = one.bias
            dim, suffix, mask = (
                ("offs_m", "[:, None]", "rows") if one.bias_along == "m" else ("columns", "[None, :]", "columns")
            )
            value = self._load(f"{buffer}_ptr + {dim}{suffix}", dtype, masks[mask])
            lines.append(f"acc += {value}")
        for load in self.region.epilogue.loads:
            dtypes[load.value] = "float32" if load.dtype in HALF_DTYPES else load.dtype
            if load.buffer == one.value:
                lines.append(f"{load.value} = acc")
            else:
                address, mask = self._address(load)
                lines.append(f"{load.value} = {self._load(address, load.dtype, masks[mask] if mask else '')}")
        for step in self.region.epilogue.steps:
            if isinstance(step, Reduction | Scan):
                raise Unsupported("a reduction in the epilogue of a contraction")
            dtypes[step.value] = "float32" if step.dtype in HALF_DTYPES else step.dtype
            lines.append(f"{step.value} = {self._step(step, dtypes)}")
        for store in self.region.stores:
            address, _ = self._address(store)
            option = f", mask={masks['store']}" if masks["store"] else ""
            shape = "acc.shape"
            lines.append(f"tl.store({address}, tl.broadcast_to({store.value}, {shape}){option})")
        return lines

    def _load(self, address: str, dtype: str, mask: str) -> str:
        widened = ".to(tl.float32)" if dtype in HALF_DTYPES else ".to(tl.int1)" if dtype == "bool" else ""
        return f"tl.load({address}{f', mask={mask}, other=0' if mask else ''}){widened}"

    def _step(self, step: Step, dtypes: dict[str, str]) -> str:
        if step.op == "index":
            index, _ = self._index_expr(self.indices[str(step.args[0])])
            return f"({index}).to({TRITON_TYPES[step.dtype]})"
        if step.op == "constant":
            assert not isinstance(step.args[0], str)
            return full(step.args[0], step.dtype)
        known = tuple(dtypes[arg] if isinstance(arg, str) else None for arg in step.args)
        return step_expr(step.op, step.args, known, step.dtype)

    def _address(self, access: Load | Store) -> tuple[str, str]:
        """The address of an access, and whether it depends on `rows`, `columns` or `both`; empty if on neither."""
        sizes = {axis.name: axis.size for axis in self.region.outer}
        extent = sum(abs(stride) * sizes[axis] for axis, stride in access.strides.items())
        wide = extent > INT32_ELEMENTS
        terms, depends = [f"{access.buffer}_ptr"], set()
        for axis, stride in access.strides.items():
            if stride:
                index, used = self._index_expr(self.indices[axis])
                depends |= used
                index = f"({index}).to(tl.int64)" if wide else f"({index})" if " " in index else index
                terms.append(f"{index} * {stride}" if stride != 1 else index)
        if access.offset:
            terms.append(str(access.offset))
        return " + ".join(terms), "both" if len(depends) == 2 else next(iter(depends), "")

    def _index_expr(self, index: AxisIndex) -> tuple[str, set[str]]:
        terms, depends = [], set()
        if index.row_factor:
            row = "rows[:, None]"
            if index.row_factor == -1:
                row = f"{row} // {index.row_divisor}" if index.row_divisor > 1 else row
            else:
                row = f"{row} * {index.row_factor}"
            terms.append(row)
            depends.add("rows")
        if index.column_divisor:
            column = "columns[None, :]"
            terms.append(f"{column} // {index.column_divisor}" if index.column_divisor > 1 else column)
            depends.add("columns")
        expr = " + ".join(terms)
        return (f"({expr}) % {index.modulus}" if index.modulus else expr), depends

    def _build(self, name: str, doc: str, body: list[str], num_programs: int, num_warps: int) -> Kernel:
        """A kernel with the tensors that its body uses."""
        body = remove_dead_lines(body)
        text = "\n".join(body)
        named = [*self.region.reads, *self.region.writes, *self.buffers]
        tensors = [tensor for tensor in named if re.search(rf"\b{tensor}_ptr\b", text)]
        return Kernel(name, print_kernel(name, tensors, doc, body), tensors, num_programs, num_warps)
