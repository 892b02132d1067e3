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
    PackedLayout,
    SplitMatrix,
    batch_start,
    group_start,
    image_start,
    select,
    weight_expr,
)

PROMOTED_STEPS = 4
"""Steps of BLOCK_K after which the main product of split operands is added to its FP32 sum."""


def _steps(k: int | str, block_k: int, num_stages: int) -> list[str]:
    """The head of a loop over k in steps of `block_k`.

    A number of steps that the assembler knows is unrolled, in up to 5 s for a kernel, instead of 0.04 s.
    """
    if str(k).isdigit() and int(k) <= block_k:
        return [f"for k in tl.range(0, {k}, {block_k}, num_stages={num_stages}):"]
    return [
        "# program_id(1) is 0; a loop of unknown length is not unrolled",
        f"end = {k} + tl.program_id(1)",
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

    The phases of the last dimension have sums of their own, which become adjacent columns; those with the same number
    of taps share a loop. The address of a step is a scalar plus offsets that do not change. Triton knows that
    differences of multiples of 8 are multiples of 8, but not remainders: with those it would load element by element,
    without pipelining.
    """
    layout, one = filters.layout, filters.layout.windows
    origin, origin_terms, last = [], [], len(one.taps) - 1
    for dim, stride in enumerate(images.pixel_strides):
        pixel = f"offs_q // {prod(one.grid[dim + 1 :])} % {one.grid[dim]}"  # columns beyond the last read other pixels
        start = "" if dim == last else f" + {_padded_start(one, dim)}"
        origin.append(f"origin_{dim} = ({pixel}) * {one.step[dim]}{start}")
        origin_terms.append(f"origin_{dim} * {stride}")
    image = f" + batch.to(tl.int64) * {prod(images.size) * layout.channels}" if tile.contraction.batch > 1 else ""
    pixels = tile.BLOCK_N // tile.lanes
    zeros = f"tl.zeros(({tile.BLOCK_M}, {pixels}), tl.float32)"
    sums = [f"acc_{phase}" for phase in range(one.phases[last])] if tile.lanes > 1 else ["acc"]
    by_taps: dict[int, list[int]] = {}
    for phase, taps in enumerate(one.phase_taps[last]):
        by_taps.setdefault(taps, []).append(phase)
    return [
        f"offs_q = tile_n * {pixels} + tl.arange(0, {pixels})",
        *origin,
        *layout.count_taps(),
        f"offs_k = tl.arange(0, {block_k})",
        f"left_offsets = offs_m[:, None] * {layout.depth} + offs_k[None, :]",
        f"right_offsets = (({' + '.join(origin_terms)}) * {layout.channels})[None, :] + offs_k[:, None]",
        f"image_ptr = {images.prefix}_packed_ptr{image}",
        *(f"{name} = {zeros}" for name in sums),
        *(
            line
            for taps, phases in by_taps.items()
            if taps
            for line in _phases_loop(phases, sums, block_k, num_stages, filters, images)
        ),
        *([f"acc = {_interleaved(sums, tile.lanes, zeros)}"] if tile.lanes > 1 else []),
        *(_packed_scales(tile, filters, images) if layout.scaled else []),
    ]


def _phases_loop(
    phases: Sequence[int],
    sums: Sequence[str],
    block_k: int,
    num_stages: int,
    filters: PackedFilters,
    images: PackedImages,
) -> list[str]:
    """The loop that adds up phases of the last dimension that have the same number of taps."""
    layout, one = filters.layout, filters.layout.windows
    last, run, padding = len(one.taps) - 1, layout.runs[phases[0]], layout.paddings[phases[0]]
    positions = layout.run_positions(one.phase_taps[last][phases[0]])
    precision = ', input_precision="tf32x3"' if layout.dtype == "float32" else ""
    mask = f", mask=(in_run + offs_k < {run - padding})[:, None], other=0.0" if padding and not layout.scaled else ""
    setup, steps = [], []
    for phase in phases:
        end = f"_{phase}" if len(sums) > 1 else ""
        setup.append(f"filters{end}_ptr = {filters.prefix}_packed_ptr{_filter_start(filters, phase)}")
        start = (one.start[last][phase] + one.margins[last][0]) * images.pixel_strides[last] * layout.channels
        steps += [
            f"left{end} = tl.load(filters{end}_ptr + k + left_offsets)",
            f"right{end} = tl.load(image_ptr + (shift + {start}) + right_offsets{mask})",
            f"acc{end} = tl.dot(left{end}, right{end}, acc{end}{precision})",
        ]
    return [
        *setup,
        *_steps(_phase_depth(layout, phases[0]), block_k, num_stages),
        *indented(
            [
                f"run = k // {run}",
                f"in_run = k - run * {run}",
                f"shift = {_shift(images, positions)}",
                *steps,
            ]
        ),
    ]


def _padded_start(one: Windows, dim: int) -> str:
    """Where the windows of a phase start in a padded image; without taps they stay at its start."""
    starts = [
        at + one.margins[dim][0] if taps else 0 for at, taps in zip(one.start[dim], one.phase_taps[dim], strict=True)
    ]
    return select(f"phase_{dim}", starts)


def _phase_depth(layout: PackedLayout, last_phase: int) -> str:
    """The elements along k of a phase."""
    one, terms, size = layout.windows, list[str](), layout.runs[last_phase]
    for dim in layout.run_dims:
        if dim == len(one.taps) - 1:
            size *= one.phase_taps[dim][last_phase]
        elif dim not in one.uneven_dims:
            size *= one.taps[dim]
        else:
            terms.append(f"({select(f'phase_{dim}', one.phase_taps[dim])})")
    return " * ".join([*terms, str(size)])


def _filter_start(filters: PackedFilters, last_phase: int) -> str:
    """The offset of the filters of a phase and group, as a term."""
    one, terms = filters.layout.windows, list[str]()
    rows = one.groups * filters.padded_rows
    if prod(one.phases[:-1]) > 1:
        terms.append(f"phase * {one.phases[-1] * rows * filters.layout.depth}")
    if last_phase:
        terms.append(str(last_phase * rows * filters.layout.depth))
    if one.groups > 1:
        terms.append(f"batch % {one.groups} * {filters.padded_rows * filters.layout.depth}")
    return "".join(f" + {term}" for term in terms)


def _interleaved(sums: Sequence[str], lanes: int, zeros: str) -> str:
    """Sums whose columns alternate; lanes beyond the last sum are zeros."""
    if lanes == 1:
        return sums[0] if sums else zeros
    halves = [_interleaved(sums[half::2], lanes // 2, zeros) for half in range(2)]
    return f"tl.interleave({halves[0]}, {halves[1]})"


def _shift(images: PackedImages, positions: dict[int, str]) -> str:
    """The offset of a step in its windows."""
    layout, terms = images.layout, ["in_run"]
    for dim, index in positions.items():
        terms.append(f"{index} * {layout.windows.dilation[dim] * images.pixel_strides[dim] * layout.channels}")
    return " + ".join(reversed(terms))


def _packed_scales(tile: Tile, filters: PackedFilters, images: PackedImages) -> list[str]:
    group = group_start(filters.layout.windows, filters.padded_rows)
    return [
        f"left_scale = tl.load({filters.prefix}_scale_ptr + {group}offs_m)[:, None]",
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
    terms += [batch_start(matrix)] * bool(matrix.has_batch and one.batch > 1)
    terms += [f"{rows}{wide} * {matrix.row_stride}", f"{offs_k}{wide} * {matrix.k_stride}"]
    masks = [f"({rows} < {size})"] * bool(rest)
    masks += [f"({offs_k} < {one.k})"] * bool(one.k % block_k)
    return _load(terms, masks)


def _convolution_operands(
    tile: Tile, filters: Filters, windows: Windows, block_k: int
) -> tuple[list[str], list[str], str, str]:
    """Lines before and in the loop, and the loads of a tile of filters and windows, whose columns are (channel, tap).

    Elements without a weight are masked in both: an infinity there would become NaN.
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
    for dim in windows.uneven_dims:
        setup.append(f"taps_{dim} = {select(f'phase_{dim}', windows.phase_taps[dim])}")
        is_tap.append(f"(position_{dim} < taps_{dim})")
    if is_tap:
        inside.append(f"is_tap = {' & '.join(is_tap)}")
    shift = " + ".join(f"tap_{dim} * {windows.image_strides[dim]}" for dim in dims)
    inside += [
        f"channel = offs_k // {taps}",
        f"filter_shift = channel * {filters.channel_stride} + {' + '.join(weights)}",
        # Triton 3.6 takes a remainder of a remainder for even, and would load unaligned pairs
        f"shift = tl.multiple_of(channel * {windows.channel_stride} + {shift}, 1)",
    ]
    left = [f"{filters.buffer}_ptr", *[str(filters.offset)] * bool(filters.offset)]
    left += [f"batch % {windows.groups} * {filters.group_stride}"] * (windows.groups > 1)
    left += [f"offs_m[:, None] * {filters.row_stride}", "filter_shift[None, :]"]
    left_masks = [f"(offs_m < {one.m})[:, None]"] * bool(one.m % tile.BLOCK_M) + ["is_tap[None, :]"] * bool(is_tap)
    right = [f"{windows.buffer}_ptr", *[str(windows.offset)] * bool(windows.offset)]
    if one.batch > 1:
        right.append(image_start(windows, "batch"))
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
