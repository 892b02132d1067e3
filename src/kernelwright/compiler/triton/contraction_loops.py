"""Generates the loops over k that sum up a tile of a contraction as `acc`, in FP32, for each kind of operands."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kernelwright.compiler.regions.contraction import Filters, Matrix, Windows
from kernelwright.compiler.triton.contraction_tiles import Tile
from kernelwright.compiler.triton.kernel import indented
from kernelwright.compiler.triton.operand_packing import (
    INT32_ELEMENTS,
    PackedFilters,
    PackedImages,
    SplitMatrix,
    select,
    weight_expr,
)

PROMOTED_STEPS = 4
"""Steps of BLOCK_K after which the main product of split operands is added to its FP32 sum."""


def _steps(k: int, block_k: int, num_stages: int) -> list[str]:
    """The head of a loop over k in steps of `block_k`.

    A number of steps that the assembler knows is unrolled, in up to 5 s for a kernel, instead of 0.04 s.
    """
    if k <= block_k:
        return [f"for k in tl.range(0, {k}, {block_k}, num_stages={num_stages}):"]
    return [
        f"end = {k} + tl.program_id(1)  # which is 0; a loop of unknown length is not unrolled",
        f"for k in tl.range(0, end, {block_k}, num_stages={num_stages}):",
    ]


def emit_split_loop(tile: Tile, block_k: int, num_stages: int, left: SplitMatrix, right: SplitMatrix) -> list[str]:
    """Three products of the FP16 terms of both operands; the fourth is below the rounding error of FP32."""
    zeros = f"tl.zeros(({tile.BLOCK_M}, {tile.BLOCK_N}), tl.float32)"
    k = left.padded_k

    def base(operand: SplitMatrix) -> str:
        return f"batch * {operand.padded_rows} + " if operand.batch > 1 else ""

    def load(name: str, operand: SplitMatrix, part: str) -> str:
        return f"{name}_{part} = tl.load({operand.prefix}_{part}_ptr + {name}_offsets + k)"

    wide = ".to(tl.int64)" if max(one.batch * one.padded_rows for one in (left, right)) * k > INT32_ELEMENTS else ""
    return [
        f"offs_k = tl.arange(0, {block_k})",
        f"left_rows, right_rows = {base(left)}offs_m, {base(right)}offs_n",
        f"left_offsets = left_rows{wide}[:, None] * {k} + offs_k[None, :]",
        f"right_offsets = right_rows{wide}[None, :] * {k} + offs_k[:, None]",
        f"total = {zeros}",
        f"main = {zeros}",
        f"cross = {zeros}",
        *_steps(k, block_k, num_stages),
        *indented(
            [
                *(load(*one, part) for one in (("left", left), ("right", right)) for part in ("hi", "lo")),
                "cross = tl.dot(left_lo, right_hi, cross)",
                "cross = tl.dot(left_hi, right_lo, cross)",
                "main = tl.dot(left_hi, right_hi, main)",
                f"if (k // {block_k}) % {PROMOTED_STEPS} == {PROMOTED_STEPS - 1}:",
                "    total += main",
                f"    main = {zeros}",
            ]
        ),
        f"left_scale = tl.load({left.prefix}_scale_ptr + left_rows)[:, None]",
        f"right_scale = tl.load({right.prefix}_scale_ptr + right_rows)[None, :]",
        "acc = (total + main + cross * (1.0 / 2048.0)) * left_scale * right_scale",
    ]


def emit_packed_loop(
    tile: Tile, block_k: int, num_stages: int, filters: PackedFilters, images: PackedImages
) -> list[str]:
    """The product of packed filters and images, run by run.

    The address of a step is a scalar plus offsets that do not change. Triton knows that differences of multiples of 8
    are multiples of 8, but not remainders: with those it would load element by element, without pipelining.
    """
    layout = filters.layout
    one, phase = layout.windows, f"phase * {filters.padded_rows} + " if tile.num_phases > 1 else ""
    origin, origin_terms = [], []
    for dim, stride in enumerate(images.pixel_strides):
        inner = prod(one.grid[dim + 1 :])
        start = select(f"phase_{dim}", [at + one.margins[dim][0] for at in one.start[dim]])
        pixel = f"offs_n // {inner} % {one.grid[dim]}"  # columns beyond the last one read other pixels
        origin.append(f"origin_{dim} = ({pixel}) * {one.step[dim]} + {start}")
        origin_terms.append(f"origin_{dim} * {stride}")
    image = f" + batch.to(tl.int64) * {prod(images.size) * layout.channels}" if tile.contraction.batch > 1 else ""
    masks = [] if layout.scaled else _packed_masks(filters)
    right_mask = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
    precision = ', input_precision="tf32x3"' if layout.dtype == "float32" else ""
    return [
        *origin,
        f"offs_k = tl.arange(0, {block_k})",
        f"left_offsets = ({phase}offs_m)[:, None] * {layout.depth} + offs_k[None, :]",
        f"right_offsets = (({' + '.join(origin_terms)}) * {layout.channels})[None, :] + offs_k[:, None]",
        f"image_ptr = {images.prefix}_packed_ptr{image}",
        f"acc = tl.zeros(({tile.BLOCK_M}, {tile.BLOCK_N}), tl.float32)",
        *_steps(layout.depth, block_k, num_stages),
        *indented(
            [
                f"run = k // {layout.run}",
                f"in_run = k - run * {layout.run}",
                f"left = tl.load({filters.prefix}_packed_ptr + k + left_offsets)",
                f"right = tl.load(image_ptr + ({_shift(images)}) + right_offsets{right_mask})",
                f"acc = tl.dot(left, right, acc{precision})",
            ]
        ),
        *(_packed_scales(tile, filters, images) if layout.scaled else []),
    ]


def _shift(images: PackedImages) -> str:
    """The offset of a step in its windows."""
    layout, terms = images.layout, ["in_run"]
    for dim, index in layout.run_positions().items():
        terms.append(f"{index} * {layout.windows.dilation[dim] * images.pixel_strides[dim] * layout.channels}")
    return " + ".join(reversed(terms))


def _packed_masks(filters: PackedFilters) -> list[str]:
    """Masks of elements whose weights are 0 in place of none: an infinity there would become NaN."""
    layout, one, masks = filters.layout, filters.layout.windows, list[str]()
    if layout.padding:
        masks.append(f"(in_run + offs_k < {layout.run - layout.padding})[:, None]")
    positions = layout.run_positions()
    for dim in filters.filters.incomplete_dims(one.taps):
        position = positions.get(dim, f"((in_run + offs_k) // {layout.channels})[:, None]")
        weight = weight_expr(filters.filters, dim, f"phase_{dim}", position)
        masks.append(f"({weight} < {filters.filters.kernel_size[dim]})")
    return masks


def _packed_scales(tile: Tile, filters: PackedFilters, images: PackedImages) -> list[str]:
    return [
        f"left_scale = tl.load({filters.prefix}_scale_ptr + offs_m)[:, None]",
        f"right_scale = tl.load({images.prefix}_scale_ptr + {'batch' if tile.contraction.batch > 1 else '0'})",
        "acc = acc * left_scale * right_scale",
    ]


def emit_direct_loop(tile: Tile, block_k: int, num_stages: int, *, exact: bool = False) -> list[str]:
    """The product of the operands as they are; with `exact` in the accuracy of FP32 where torch permits TF32."""
    one = tile.contraction
    if isinstance(one.left, Filters) and tile.windows:
        setup, inside, left, right = _convolution_operands(tile, one.left, tile.windows, block_k)
    else:
        assert isinstance(one.left, Matrix) and isinstance(one.right, Matrix)
        setup, inside = [], []
        left = _matrix_load(tile, one.left, "offs_m[:, None]", "offs_k[None, :]", one.m % tile.BLOCK_M, block_k)
        right = _matrix_load(tile, one.right, "offs_n[None, :]", "offs_k[:, None]", one.n % tile.BLOCK_N, block_k)
    is_tf32, precision = one.tf32 and one.left.dtype == "float32" and not exact, ""
    if is_tf32:
        left, right, precision = f"round_to_tf32({left})", f"round_to_tf32({right})", ', input_precision="tf32"'
    elif one.left.dtype == "float32":
        precision = f', input_precision="{"tf32x3" if tile.windows else "ieee"}"'
    return [
        *setup,
        f"acc = tl.zeros(({tile.BLOCK_M}, {tile.BLOCK_N}), tl.float32)",
        *_steps(one.k, block_k, num_stages),
        *indented(
            [
                f"offs_k = k + tl.arange(0, {block_k})",
                *inside,
                f"left = {left}",
                f"right = {right}",
                f"acc = tl.dot(left, right, acc{precision})",
            ]
        ),
    ]


def _matrix_load(tile: Tile, matrix: Matrix, rows: str, offs_k: str, rest: int, block_k: int) -> str:
    """The load of a tile of a matrix; `rest` is not 0 if the last tile is not full."""
    one, is_left = tile.contraction, rows.startswith("offs_m")
    size = one.m if is_left else one.n
    extent = size * abs(matrix.row_stride) + one.k * abs(matrix.k_stride)
    wide = ".to(tl.int64)" if extent > INT32_ELEMENTS else ""
    terms = [f"{matrix.buffer}_ptr"]
    terms += [str(matrix.offset)] * bool(matrix.offset)
    terms += [f"batch.to(tl.int64) * {matrix.batch_stride}"] * bool(matrix.batch_stride and one.batch > 1)
    terms += [f"{rows}{wide} * {matrix.row_stride}", f"{offs_k}{wide} * {matrix.k_stride}"]
    masks = [f"({rows} < {size})"] * bool(rest)
    masks += [f"({offs_k} < {one.k})"] * bool(one.k % block_k)
    return _load(terms, masks)


def _convolution_operands(
    tile: Tile, filters: Filters, windows: Windows, block_k: int
) -> tuple[list[str], list[str], str, str]:
    """Lines before and in the loop, and the loads of a tile of filters and windows, whose columns are (channel, tap).

    Elements whose weight is 0 in place of none are masked in both: an infinity there would become NaN.
    """
    one, dims, taps = tile.contraction, range(len(windows.taps)), prod(windows.taps)
    setup, inside, weights = _window_starts(windows), [f"tap = offs_k % {taps}"], list[str]()
    is_tap = [f"(offs_k < {one.k})"] * bool(one.k % block_k)
    at_masks = []
    for dim in dims:
        inner = prod(windows.taps[dim + 1 :])
        inside += [
            f"position_{dim} = tap // {inner} % {windows.taps[dim]}",
            f"weight_{dim} = {weight_expr(filters, dim, f'phase_{dim}', f'position_{dim}')}",
            f"tap_{dim} = position_{dim} * {windows.dilation[dim]}",
        ]
        weights.append(f"weight_{dim} * {prod(filters.kernel_size[dim + 1 :])}")
        if any(windows.margins[dim]):
            inside.append(f"at_{dim} = start_{dim}[None, :] + tap_{dim}[:, None]")
            inside.append(f"in_image_{dim} = (at_{dim} >= 0) & (at_{dim} < {windows.image_size[dim]})")
            at_masks.append(f"in_image_{dim}")
    is_tap += [f"(weight_{dim} < {filters.kernel_size[dim]})" for dim in filters.incomplete_dims(windows.taps)]
    if is_tap:
        inside.append(f"is_tap = {' & '.join(is_tap)}")
    shift = " + ".join(f"tap_{dim} * {windows.image_strides[dim]}" for dim in dims)
    inside += [
        f"channel = offs_k // {taps}",
        f"filter_shift = channel * {filters.channel_stride} + {' + '.join(weights)}",
        f"shift = channel * {windows.channel_stride} + {shift}",
    ]
    left = [f"{filters.buffer}_ptr", *[str(filters.offset)] * bool(filters.offset)]
    left += [f"offs_m[:, None] * {filters.row_stride}", "filter_shift[None, :]"]
    left_masks = [f"(offs_m < {one.m})[:, None]"] * bool(one.m % tile.BLOCK_M) + ["is_tap[None, :]"] * bool(is_tap)
    right = [f"{windows.buffer}_ptr", *[str(windows.offset)] * bool(windows.offset)]
    right += [f"batch.to(tl.int64) * {windows.batch_stride}"] * (one.batch > 1)
    right += ["origin[None, :]", "shift[:, None]"]
    right_masks = [*at_masks, *["in_grid[None, :]"] * bool(tile.num_columns % tile.BLOCK_N)]
    right_masks += ["is_tap[:, None]"] * bool(is_tap)
    setup.append(f"in_grid = offs_n < {tile.num_columns}")
    return setup, inside, _load(left, left_masks), _load(right, right_masks)


def _load(terms: Sequence[str], masks: Sequence[str]) -> str:
    options = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
    return f"tl.load({' + '.join(terms)}{options})"


def _window_starts(windows: Windows) -> list[str]:
    """The position of each window in each dimension, and its offset in the image."""
    lines, terms = [], []
    for dim, stride in enumerate(windows.image_strides):
        inner, start = prod(windows.grid[dim + 1 :]), select(f"phase_{dim}", windows.start[dim])
        pixel = f"offs_n // {inner} % {windows.grid[dim]}" if dim else f"offs_n // {inner}"
        lines.append(f"start_{dim} = ({pixel}) * {windows.step[dim]} + {start}")
        terms.append(f"start_{dim} * {stride}")
    return [*lines, f"origin = {' + '.join(terms)}"]
