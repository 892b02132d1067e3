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

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.contraction import ContractionRegion, Filters, Matrix
from kernelwright.compiler.triton.contraction_configs import DIRECT, PACKED, SPLIT, ContractionConfig
from kernelwright.compiler.triton.contraction_epilogues import emit_epilogue
from kernelwright.compiler.triton.contraction_loops import emit_direct_loop, emit_packed_loop, emit_split_loop
from kernelwright.compiler.triton.contraction_tiles import Tile
from kernelwright.compiler.triton.kernel import Kernel, indented, print_kernel, print_launcher
from kernelwright.compiler.triton.op_templates import select_helpers
from kernelwright.compiler.triton.operand_packing import (
    PackedFilters,
    PackedImages,
    PackedLayout,
    SplitMatrix,
    group_start,
    round_up,
)
from kernelwright.compiler.triton.source_lines import remove_dead_lines
from kernelwright.compiler.triton.triton_source import TritonSource

EXACT_TILE, EXACT_BLOCK_K = 64, 32
EXACT_PROGRAMS, SCALES_BLOCK = 264, 1024
"""Programs that look at the scales of a convolution, 2 for each multiprocessor of an H100, and the scales of a step."""


def print_contraction(region: ContractionRegion, config: ContractionConfig) -> TritonSource:
    """Generate the kernels of a contraction and the function that launches them.

    Raises:
        Unsupported: a step of the epilogue has no Triton code.
    """
    return _Printer(region, config).generate()


class _Printer:
    def __init__(self, region: ContractionRegion, config: ContractionConfig) -> None:
        self.region, self.config, self.one = region, config, region.contraction
        self.tile = Tile(
            contraction=self.one, BLOCK_M=config.BLOCK_M, BLOCK_N=config.BLOCK_N, joins_phases=config.operands == PACKED
        )
        prepare = {SPLIT: self._split_operands, PACKED: self._packed_operands, DIRECT: tuple}
        self.operands: tuple[SplitMatrix | PackedFilters | PackedImages, ...] = prepare[config.operands]()
        self.scratch = {name: size for operand in self.operands for name, size in operand.buffers.items()}

    def generate(self) -> TritonSource:
        name = self.region.name
        kernels = [kernel for operand in self.operands for kernel in operand.kernels(name)]
        kernels.append(self._main_kernel())
        if self.operands and f"{self.operands[0].prefix}_scale" in self.scratch:
            kernels.append(self._exact_kernel())
        source = "\n\n".join(kernel.source for kernel in kernels)
        return TritonSource(
            launcher_name=f"launch_{name}",
            helpers=select_helpers(source),
            kernels=source,
            kernel_names=tuple(one.name for one in kernels),
            scratch={buffer: dtype for buffer, (_, dtype) in self.scratch.items()},
            launcher=print_launcher(self.region, kernels, self.scratch),
        )

    # ---- operands in memory of their own

    def _prefix(self, side: str) -> str:
        """The start of the names of an operand's buffers; no tensor of the program starts with it."""
        while any(name.startswith(f"{side}_") for name in (*self.region.reads, *self.region.writes)):
            side = f"{side}_operand"
        return side

    def _split_operands(self) -> tuple[SplitMatrix, SplitMatrix]:
        one, config = self.one, self.config

        def split(side: str, matrix: object, rows: int, block: int) -> SplitMatrix:
            if not isinstance(matrix, Matrix):
                raise Unsupported("images in two terms")
            return SplitMatrix(
                prefix=self._prefix(side), matrix=matrix, batch=one.batch if matrix.has_batch else 1, rows=rows,
                padded_rows=round_up(rows, block), k=one.k, padded_k=round_up(one.k, config.BLOCK_K),
            )  # fmt: skip

        return split("left", one.left, one.m, config.BLOCK_M), split("right", one.right, one.n, config.BLOCK_N)

    def _packed_operands(self) -> tuple[PackedFilters, PackedImages]:
        one, windows = self.one, self.tile.windows
        if not isinstance(one.left, Filters) or windows is None:
            raise Unsupported("packed matrices")
        layout = PackedLayout(windows=windows, scaled=one.tf32)
        if any(run % self.config.BLOCK_K for run in layout.runs):
            raise Unsupported("runs that are not a multiple of the step")
        padded_rows = round_up(one.m, self.config.BLOCK_M)
        prefix = self._prefix("left")
        filters = PackedFilters(prefix=prefix, filters=one.left, layout=layout, rows=one.m, padded_rows=padded_rows)
        return filters, PackedImages(prefix=self._prefix("right"), layout=layout, batch=one.batch)

    # ---- the kernels of a tile

    def _main_kernel(self) -> Kernel:
        one = self.one
        body = [*self.tile.position(), *self._loop(), *emit_epilogue(self.region, self.tile.masks())]
        doc = f"{one.batch} x {one.m:,} x {one.n:,} over {one.k:,} in tiles"
        return self._build(f"{self.region.name}_kernel", doc, body, self.tile.num_programs, self.config.num_warps)

    def _loop(self) -> list[str]:
        steps = self.config.BLOCK_K, self.config.num_stages
        match self.operands:
            case (SplitMatrix() as left, SplitMatrix() as right):
                return emit_split_loop(self.tile, *steps, left, right)
            case (PackedFilters() as filters, PackedImages() as images):
                return emit_packed_loop(self.tile, *steps, filters, images)
        return emit_direct_loop(self.tile, *steps)

    def _exact_kernel(self) -> Kernel:
        """The rows and columns that the scaled operands cannot hold, in FP32.

        A convolution has few scales, one for each filter and image: a few programs look at all of them and end. With a
        program for each tile, 32 images of 513 x 513 pixels are 132,000 programs of 255 registers that find nothing.
        In the last round, programs without a tile compute the last one again.
        """
        tile = Tile(contraction=self.one, BLOCK_M=EXACT_TILE, BLOCK_N=EXACT_TILE)
        num_programs, num_warps = tile.num_programs, 4
        match self.operands:
            case (PackedFilters() as filters, PackedImages() as images):
                num_programs, num_warps = min(num_programs, EXACT_PROGRAMS), 8
                body = [
                    *self._find_lost_scales(filters, images),
                    f"for first in tl.range(0, tl.max(lost, axis=0) * {tile.num_programs}, {num_programs}):",
                    f"    program = tl.minimum(first + tl.program_id(0), {tile.num_programs - 1})",
                    *indented([*tile.position("program"), *self._compute_lost(tile)]),
                ]
            case _:
                body = [*tile.position(), *self._compute_lost(tile)]
        doc = "Computes in FP32 what scaled FP16 operands could not hold, marked by a scale that is NaN"
        return self._build(f"{self.region.name}_exact_kernel", doc, body, num_programs, num_warps)

    def _find_lost_scales(self, filters: PackedFilters, images: PackedImages) -> list[str]:
        """Whether any scale is NaN, as a vector; those of padding rows are not set."""
        lines = [f"lost = tl.zeros(({SCALES_BLOCK},), tl.int32)"]
        padding = f" & (at % {filters.padded_rows} < {filters.rows})" if filters.padded_rows > filters.rows else ""
        for prefix, end in ((filters.prefix, padding), (images.prefix, "")):
            size = self.scratch[f"{prefix}_scale"][0]
            lines += [
                f"for k in range(0, {size}, {SCALES_BLOCK}):",
                f"    at = k + tl.arange(0, {SCALES_BLOCK})",
                f"    scale = tl.load({prefix}_scale_ptr + at, mask=(at < {size}){end}, other=1.0)",
                "    lost |= (scale != scale).to(tl.int32)",
            ]
        return lines

    def _compute_lost(self, tile: Tile) -> list[str]:
        """The elements of a tile that are in a row or column whose scale is NaN."""
        exact = emit_direct_loop(tile, EXACT_BLOCK_K, 1, exact=True)
        return [
            *self._load_lost(),
            "if tl.max(tl.max(is_lost.to(tl.int32), axis=1), axis=0) == 1:",
            *indented([*exact, *emit_epilogue(self.region, tile.masks(), "is_lost")]),
        ]

    def _load_lost(self) -> list[str]:
        """Whether each element of a tile is in a row or column whose scale is NaN."""
        one, (left, right) = self.one, self.operands
        left_rows, right_rows = (
            f"batch * {side.padded_rows} + " if isinstance(side, SplitMatrix) and side.batch > 1 else ""
            for side in (left, right)
        )
        if isinstance(left, PackedFilters):
            left_rows = group_start(left.layout.windows, left.padded_rows)
        right_at = f"{right_rows}offs_n, mask=offs_n < {one.n}, other=1.0"
        if isinstance(right, PackedImages):
            right_at = f"offs_n * 0{' + batch' if one.batch > 1 else ''}"
        return [
            f"left_scale = tl.load({left.prefix}_scale_ptr + {left_rows}offs_m, mask=offs_m < {one.m}, other=1.0)",
            f"right_scale = tl.load({right.prefix}_scale_ptr + {right_at})",
            "is_lost = (left_scale != left_scale)[:, None] | (right_scale != right_scale)[None, :]",
        ]

    def _build(self, name: str, doc: str, body: list[str], num_programs: int, num_warps: int) -> Kernel:
        """A kernel with the tensors that its body uses."""
        body = remove_dead_lines(body)
        text = "\n".join(body)
        named = [*self.region.reads, *self.region.writes, *self.scratch]
        tensors = [tensor for tensor in named if re.search(rf"\b{tensor}_ptr\b", text)]
        return Kernel(name, print_kernel(name, tensors, doc, body), tensors, num_programs, num_warps)
