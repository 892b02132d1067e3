"""Generates Triton for contractions with their epilogues.

FP32 products run on the tensor cores without loss of accuracy: each operand is split into two FP16 terms, scaled by a
power of two for each row, and three products of these are accumulated. The main one is added to an FP32 register every
few steps, since the tensor cores round their sums towards zero. A row that the split cannot hold (with infinity, NaN,
or beyond 2**60) is computed again in FP32. Ootomo & Yokota 2022, arXiv:2203.03341.

The other dtypes, and FP32 where torch permits TF32, use their tensor-core product as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.contraction import AxisIndex, ContractionRegion, Matrix, Windows
from kernelwright.compiler.regions.region import HALF_DTYPES, Load, Reduction, Scan, Step, Store
from kernelwright.compiler.triton.op_templates import TRITON_TYPES, full, select_helpers, step_expr
from kernelwright.compiler.triton.source_lines import remove_dead_lines, wrap_line
from kernelwright.compiler.triton.triton_source import TritonSource
from kernelwright.core.record import Record

GROUP_M = 8
"""Rows of tiles that run together, so that their operands stay in the L2 cache."""
PROMOTED_STEPS = 4
"""Steps of BLOCK_K after which the main product of split operands is added to its FP32 sum."""
EXACT_TILE, EXACT_BLOCK_K = 64, 32
INT32_ELEMENTS = 2**31 - 1
SPLIT_ELEMENTS = 2048
"""Elements of a tile of the kernel that splits an operand."""


class ContractionConfig(Record, frozen=True, kw_only=True):
    """A tile of the result, and the steps along k.

    Attributes:
        split: FP32 operands are split into two FP16 terms.
    """

    BLOCK_M: int
    BLOCK_N: int
    BLOCK_K: int
    num_warps: int
    num_stages: int
    split: bool = False


def generate_contraction_configs(region: ContractionRegion) -> list[ContractionConfig]:
    """Return the configs that can run a contraction, most promising first."""
    one = region.contraction
    if isinstance(one.right, Windows):
        tiles = _CONVOLUTION_TILES
    elif one.left.dtype == "float32":
        tiles = _TF32_TILES if one.tf32 else _SPLIT_TILES
    else:
        tiles = _HALF_TILES
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    limits = [
        _power_of_two(max(size, min(tile[index] for tile in tiles))) for index, size in enumerate((one.m, one.n))
    ]
    return [
        ContractionConfig(**dict(zip(names, tile, strict=True)), split=tiles is _SPLIT_TILES)
        for tile in tiles
        if tile[0] <= limits[0] and tile[1] <= limits[1]
    ]


_SPLIT_TILES = ((128, 128, 64, 8, 3), (128, 64, 64, 8, 4), (64, 64, 64, 4, 4))
_TF32_TILES = ((128, 256, 32, 8, 3), (128, 128, 32, 8, 3), (64, 128, 32, 4, 4), (64, 64, 32, 4, 4))
_HALF_TILES = ((128, 256, 64, 8, 3), (128, 128, 64, 4, 4), (64, 128, 64, 4, 4), (64, 64, 64, 4, 4))
_CONVOLUTION_TILES = ((64, 128, 16, 4, 3), (64, 128, 32, 4, 3), (128, 128, 16, 4, 4), (128, 256, 32, 8, 3), (32, 128, 16, 4, 3))  # fmt: skip


def print_contraction(region: ContractionRegion, config: ContractionConfig) -> TritonSource:
    """Generate the kernels of a contraction and the function that launches them.

    Raises:
        Unsupported: a step of the epilogue has no Triton code.
    """
    return _Printer(region, config).generate()


class _Operand(Record, frozen=True, kw_only=True):
    """How an operand is split into buffers `SIDE_hi` and `SIDE_lo`, [batch * padded_rows, padded_k]."""

    side: str
    matrix: Matrix
    batch: int
    rows: int
    padded_rows: int

    @property
    def buffers(self) -> tuple[str, str, str]:
        return f"{self.side}_hi", f"{self.side}_lo", f"{self.side}_scale"


class _Printer:
    def __init__(self, region: ContractionRegion, config: ContractionConfig) -> None:
        self.region, self.config, self.one = region, config, region.contraction
        self.indices = region.indices
        self.padded_k = _round_up(self.one.k, config.BLOCK_K)
        self.used: list[str] = []
        if config.split and isinstance(self.one.right, Windows):
            raise Unsupported("windows of images in two terms")

    def generate(self) -> TritonSource:
        name = self.region.name
        kernels: list[tuple[str, str, Sequence[str], int, int]] = []
        scratch: list[tuple[str, int, str]] = []
        if self.config.split:
            for operand in self._operands():
                kernels.append(self._split_kernel(operand))
                count = operand.batch * operand.padded_rows
                hi, lo, scale = operand.buffers
                scratch += [(hi, count * self.padded_k, "float16"), (lo, count * self.padded_k, "float16")]
                scratch.append((scale, count, "float32"))
            kernels += [self._main_kernel(self._split_loop()), self._exact_kernel()]
        else:
            kernels.append(self._main_kernel(self._direct_loop()))
        source = "\n\n".join(text for _, text, _, _, _ in kernels)
        launchers = [
            f"launch_{kernel} = make_launcher({kernel}, {count}, {warps})" for kernel, _, _, count, warps in kernels
        ]
        inputs, outputs = self.region.reads, self.region.writes
        lines = [*launchers, "", "", f"def launch_{name}({', '.join([*inputs, *outputs])}):"]
        lines.append(f'    """Computes {", ".join(outputs)} from {", ".join(inputs)}."""')
        for buffer, size, dtype in scratch:
            lines.append(f"    {buffer} = empty_on_device_of({inputs[0]}, ({size},), (1,), torch.{dtype})")
        lines += [f"    launch_{kernel}({', '.join(tensors)})" for kernel, _, tensors, _, _ in kernels]
        return TritonSource(
            launcher_name=f"launch_{name}",
            helpers=select_helpers(source),
            kernels=source,
            kernel_names=tuple(kernel[0] for kernel in kernels),
            scratch={buffer: dtype for buffer, _, dtype in scratch},
            launcher="\n".join(wrapped for line in lines for wrapped in wrap_line(line)) + "\n",
        )

    def _operands(self) -> tuple[_Operand, _Operand]:
        one, config = self.one, self.config
        assert isinstance(one.right, Matrix)
        sides = (("left", one.left, one.m, config.BLOCK_M), ("right", one.right, one.n, config.BLOCK_N))
        left, right = (
            _Operand(
                side=side, matrix=matrix, batch=one.batch if matrix.batch_stride else 1, rows=rows,
                padded_rows=_round_up(rows, block),
            )
            for side, matrix, rows, block in sides
        )  # fmt: skip
        return left, right

    # ---- the kernel that splits an operand

    def _split_kernel(self, operand: _Operand) -> tuple[str, str, Sequence[str], int, int]:
        matrix, k = operand.matrix, self.one.k
        along_k = matrix.k_stride == 1
        block_k = min(SPLIT_ELEMENTS, _power_of_two(self.padded_k)) if along_k else 64
        block_r = max(SPLIT_ELEMENTS // block_k, 1)
        total = operand.batch * operand.rows
        x = self._pointer(matrix.buffer)
        wide = ".to(tl.int64)" if self._is_wide(matrix, operand) else ""
        index = [f"rows = tl.program_id(0) * {block_r} + tl.arange(0, {block_r})"]
        if operand.batch == 1:
            index += [f"start = rows{wide} * {matrix.row_stride}", "padded = rows"]
        else:
            index += [
                f"batch, row = rows // {operand.rows}, rows % {operand.rows}",
                f"start = batch.to(tl.int64) * {matrix.batch_stride} + row * {matrix.row_stride}",
                f"padded = batch * {operand.padded_rows} + row",
            ]
        load = [
            f"offs_k = k + tl.arange(0, {block_k})",
            f"mask = (rows < {total})[:, None] & (offs_k < {k})[None, :]",
            f"offsets = {matrix.offset} + start[:, None] + offs_k{wide}[None, :] * {matrix.k_stride}",
            f"x = tl.load({x} + offsets, mask=mask, other=0.0)",
        ]
        hi, lo, scale = (f"{buffer}_ptr" for buffer in operand.buffers)
        body = [
            *index,
            f"largest = tl.zeros(({block_r}, {block_k}), tl.int32)",
            f"for k in range(0, {k}, {block_k}):",
            *_indented([*load, "largest = tl.maximum(largest, x.to(tl.int32, bitcast=True) & 0x7FFFFFFF)"]),
            "largest = tl.max(largest, axis=1)",
            "exponent = tl.where(largest == 0, 141, largest >> 23)",
            "in_range = (exponent > 67) & (exponent < 187)",
            "scale = tl.where(in_range, ((268 - exponent) << 23).to(tl.float32, bitcast=True), 0.0)",
            'inverse = tl.where(in_range, ((exponent - 14) << 23).to(tl.float32, bitcast=True), float("nan"))',
            f"tl.store({scale} + padded, inverse, mask=rows < {total})",
            f"for k in range(0, {self.padded_k}, {block_k}):",
            *_indented(
                [
                    *load,
                    "x *= scale[:, None]",
                    "hi = x.to(tl.float16)",
                    "lo = ((x - hi.to(tl.float32)) * 2048.0).to(tl.float16)",
                    f"mask = (rows < {total})[:, None] & (offs_k < {self.padded_k})[None, :]",
                    f"offsets = padded.to(tl.int64)[:, None] * {self.padded_k} + offs_k[None, :]",
                    f"tl.store({hi} + offsets, hi, mask=mask)",
                    f"tl.store({lo} + offsets, lo, mask=mask)",
                ]
            ),
        ]
        doc = f"Splits {total:,} rows of {k:,} into two FP16 terms, scaled so that the largest of a row is in [2**14, 2**15)"
        name = f"{self.region.name}_split_{operand.side}_kernel"
        tensors = [matrix.buffer, *operand.buffers]
        return name, _function(name, tensors, doc, body), tensors, -(-total // block_r), 4

    def _is_wide(self, matrix: Matrix, operand: _Operand) -> bool:
        return operand.rows * matrix.row_stride + self.one.k * matrix.k_stride > INT32_ELEMENTS

    # ---- the kernel of a tile

    def _main_kernel(self, loop: list[str]) -> tuple[str, str, Sequence[str], int, int]:
        one, config = self.one, self.config
        tiles_m, tiles_n = -(-one.m // config.BLOCK_M), -(-one.n // config.BLOCK_N)
        body = [*self._tile_position(tiles_m, tiles_n, config.BLOCK_M, config.BLOCK_N), *loop]
        body += self._epilogue(self._mask(config.BLOCK_M, config.BLOCK_N))
        name = f"{self.region.name}_kernel"
        operands = [buffer for one in self._operands() for buffer in one.buffers] if config.split else []
        doc = f"{one.batch} x {one.m:,} x {one.n:,} over {one.k:,} in tiles"
        tensors, text = self._build(name, doc, body, operands)
        return name, text, tensors, one.batch * tiles_m * tiles_n, config.num_warps

    def _tile_position(self, tiles_m: int, tiles_n: int, block_m: int, block_n: int) -> list[str]:
        """The batch, and the offsets of a tile's rows and columns; groups of rows run column by column."""
        lines = ["tile = tl.program_id(0)"]
        if self.one.batch > 1:
            lines += [f"batch = tile // {tiles_m * tiles_n}", f"tile = tile % {tiles_m * tiles_n}"]
        if isinstance(self.one.right, Windows) or min(tiles_m, tiles_n) == 1:
            lines += [f"tile_m, tile_n = tile % {tiles_m}, tile // {tiles_m}"]
        else:
            lines += [
                f"group = tile // {GROUP_M * tiles_n} * {GROUP_M}",
                f"group_rows = tl.minimum({tiles_m} - group, {GROUP_M})",
                f"tile_m = group + tile % {GROUP_M * tiles_n} % group_rows",
                f"tile_n = tile % {GROUP_M * tiles_n} // group_rows",
            ]
        return [
            *lines,
            f"offs_m = tile_m * {block_m} + tl.arange(0, {block_m})",
            f"offs_n = tile_n * {block_n} + tl.arange(0, {block_n})",
            f"rows = batch * {self.one.m} + offs_m" if self.one.batch > 1 else "rows = offs_m",
        ]

    def _split_loop(self) -> list[str]:
        config, left, right = self.config, *self._operands()
        zeros = f"tl.zeros(({config.BLOCK_M}, {config.BLOCK_N}), tl.float32)"
        k = self.padded_k

        def base(operand: _Operand) -> str:
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
            *_indented(
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

    def _direct_loop(self, *, exact: bool = False) -> list[str]:
        """The product of the operands as they are; with `exact` in FP32 without tensor cores."""
        one, config = self.one, self.config
        block_k = EXACT_BLOCK_K if exact else config.BLOCK_K
        block_m, block_n = (EXACT_TILE, EXACT_TILE) if exact else (config.BLOCK_M, config.BLOCK_N)
        stages = 1 if exact else config.num_stages
        left, mask_left = self._matrix_pointer(one.left, "offs_m", ("[:, None]", "[None, :]"), one.m, block_m, block_k)
        if isinstance(one.right, Windows):
            setup, inside, right, mask_right = self._window_pointer(one.right, block_n, block_k)
        else:
            setup, inside = [], []
            right, mask_right = self._matrix_pointer(
                one.right, "offs_n", ("[None, :]", "[:, None]"), one.n, block_n, block_k
            )
        precision = ""
        if one.left.dtype == "float32":
            fp32 = "tf32x3" if isinstance(one.right, Windows) else "ieee"
            precision = f', input_precision="{"tf32" if one.tf32 and not exact else fp32}"'
        return [
            *setup,
            f"acc = tl.zeros(({block_m}, {block_n}), tl.float32)",
            f"for k in tl.range(0, {one.k}, {block_k}, num_stages={stages}):",
            *_indented(
                [
                    f"offs_k = k + tl.arange(0, {block_k})",
                    *inside,
                    f"left = tl.load({left}{mask_left})",
                    f"right = tl.load({right}{mask_right})",
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
        terms = [self._pointer(matrix.buffer)]
        terms += [str(matrix.offset)] * bool(matrix.offset)
        terms += [f"batch.to(tl.int64) * {matrix.batch_stride}"] * bool(matrix.batch_stride and self.one.batch > 1)
        terms += [f"{rows}{wide}{row} * {matrix.row_stride}", f"offs_k{wide}{k} * {matrix.k_stride}"]
        masks = [f"({rows} < {size}){row}"] * bool(size % block)
        masks += [f"(offs_k < {self.one.k}){k}"] * bool(self.one.k % block_k)
        return " + ".join(terms), f", mask={' & '.join(masks)}, other=0.0" if masks else ""

    def _window_pointer(self, one: Windows, block_n: int, block_k: int) -> tuple[list[str], list[str], str, str]:
        """Lines before and in the loop, the addresses of a tile of windows, and its mask."""
        dims, taps = range(len(one.kernel_size)), prod(one.kernel_size)
        setup, inside, masks = [], [], []
        rest = "offs_n"
        for dim in dims:
            inner = prod(one.output_size[dim + 1 :])
            expr = f"{rest} // {inner}" if inner > 1 else rest
            setup.append(f"start_{dim} = ({expr}) * {one.step[dim]} - {one.padding[dim]}")
            rest = f"({rest} % {inner})"
        origin = " + ".join(f"start_{dim} * {one.image_strides[dim]}" for dim in dims)
        setup.append(f"origin = {origin}")
        inside.append(f"tap = offs_k % {taps}")
        for dim in dims:
            inner = prod(one.kernel_size[dim + 1 :])
            expr = f"tap // {inner} % {one.kernel_size[dim]}" if inner > 1 else f"tap % {one.kernel_size[dim]}"
            inside.append(f"tap_{dim} = ({expr}) * {one.dilation[dim]}")
            if one.padding[dim]:
                inside.append(f"at_{dim} = start_{dim}[None, :] + tap_{dim}[:, None]")
                masks.append(f"(at_{dim} >= 0) & (at_{dim} < {one.image_size[dim]})")
        shift = " + ".join(f"tap_{dim} * {one.image_strides[dim]}" for dim in dims)
        inside.append(f"shift = offs_k // {taps} * {one.channel_stride} + {shift}")
        terms = [self._pointer(one.buffer)] + [str(one.offset)] * bool(one.offset)
        terms += [f"batch.to(tl.int64) * {one.batch_stride}"] * (self.one.batch > 1)
        terms += ["origin[None, :]", "shift[:, None]"]
        masks += [f"(offs_n < {self.one.n})[None, :]"] * bool(self.one.n % block_n)
        masks += [f"(offs_k < {self.one.k})[:, None]"] * bool(self.one.k % block_k)
        return setup, inside, " + ".join(terms), f", mask={' & '.join(masks)}, other=0.0" if masks else ""

    def _exact_kernel(self) -> tuple[str, str, Sequence[str], int, int]:
        """The rows and columns that the split cannot hold, in FP32."""
        one = self.one
        tiles_m, tiles_n = -(-one.m // EXACT_TILE), -(-one.n // EXACT_TILE)
        left, right = self._operands()
        scales = [
            f"{side}_scale = tl.load({side}_scale_ptr + {f'batch * {padded} + ' if batch > 1 else ''}offs_{dim}, "
            f"mask=offs_{dim} < {size}, other=1.0)"
            for side, dim, size, padded, batch in (
                ("left", "m", one.m, left.padded_rows, left.batch),
                ("right", "n", one.n, right.padded_rows, right.batch),
            )
        ]
        mask = self._mask(EXACT_TILE, EXACT_TILE, always=True)
        body = [
            *self._tile_position(tiles_m, tiles_n, EXACT_TILE, EXACT_TILE),
            *scales,
            "is_lost = (left_scale != left_scale)[:, None] | (right_scale != right_scale)[None, :]",
            "if tl.max(tl.max(is_lost.to(tl.int32), axis=1), axis=0) == 1:",
            *_indented([*self._direct_loop(exact=True), *self._epilogue({**mask, "store": f"{mask['store']} & is_lost"})]),
        ]
        name = f"{self.region.name}_exact_kernel"
        doc = "Computes in FP32 what the two FP16 terms could not hold, marked by a scale that is NaN"
        tensors, text = self._build(name, doc, body, [left.buffers[2], right.buffers[2]])
        return name, text, tensors, one.batch * tiles_m * tiles_n, 4

    # ---- the epilogue

    def _mask(self, block_m: int, block_n: int, *, always: bool = False) -> dict[str, str]:
        """The masks of loads that depend on rows, on columns, on both, and of stores; empty where none is needed."""
        rows = f"(offs_m < {self.one.m})[:, None]" if always or self.one.m % block_m else ""
        columns = f"(offs_n < {self.one.n})[None, :]" if always or self.one.n % block_n else ""
        both = " & ".join(filter(None, (rows, columns)))
        return {"rows": rows, "columns": columns, "both": both, "store": both}

    def _epilogue(self, masks: dict[str, str]) -> list[str]:
        one, lines, dtypes = self.one, list[str](), dict[str, str]()
        if one.bias:
            buffer, dtype = one.bias
            dim, suffix, mask = ("m", "[:, None]", "rows") if one.bias_along == "m" else ("n", "[None, :]", "columns")
            value = self._load(f"{self._pointer(buffer)} + offs_{dim}{suffix}", dtype, masks[mask])
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
        terms, depends = [self._pointer(access.buffer)], set()
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
            column = "offs_n[None, :]"
            terms.append(f"{column} // {index.column_divisor}" if index.column_divisor > 1 else column)
            depends.add("columns")
        expr = " + ".join(terms)
        return (f"({expr}) % {index.modulus}" if index.modulus else expr), depends

    def _pointer(self, buffer: str) -> str:
        if buffer not in self.used:
            self.used.append(buffer)
        return f"{buffer}_ptr"

    def _build(self, name: str, doc: str, body: list[str], scratch: Sequence[str]) -> tuple[list[str], str]:
        """The tensors and the source of a kernel."""
        body = remove_dead_lines(body)
        text = "\n".join(body)
        named = [*self.region.reads, *self.region.writes, *scratch]
        tensors = [tensor for tensor in named if f"{tensor}_ptr" in text]
        return tensors, _function(name, tensors, doc, body)


def _function(name: str, tensors: Sequence[str], doc: str, body: Sequence[str]) -> str:
    head = f"def {name}({', '.join(f'{tensor}_ptr' for tensor in tensors)}):"
    lines = ["@triton.jit", head, f'    """{doc}."""', *_indented(body)]
    return "\n".join(wrapped for line in lines for wrapped in wrap_line(line)) + "\n"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _round_up(size: int, block: int) -> int:
    return -(-size // block) * block


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()
