"""Divides and products: a layout divided into tiles, and a tile repeated along a layout.

Source: cutlass/media/docs/cpp/cute/02_layout_algebra.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelwright.layouts.algebra import (
    apply_by_mode,
    coalesce,
    complement,
    complement_by_rule,
    composition,
    right_inverse,
)
from kernelwright.layouts.errors import LayoutError
from kernelwright.layouts.layout import Layout, append, as_layout, cosize, make_layout, size, without_swizzle
from kernelwright.layouts.swizzle import ComposedLayout


def logical_divide(layout: Any, tiler: Any) -> Any:
    """Split each mode into the elements selected by the tiler and the repetition of that tile.

    Args:
        tiler: Layout or integer; or a tuple of them, one per mode; None keeps a mode.
    Returns:
        ((tile, rest)), with R(i, j) = layout(tiler(i) + complement(tiler)(j)). A tile that does not divide the size
        is rounded up, as in CuTe: the last tile exceeds the layout, and the kernel must mask it.
    Raises:
        LayoutError: the tiler overlaps itself or omits elements, or no layout has these tiles.
    """
    if tiler is None:
        return layout
    if isinstance(tiler, tuple):
        return apply_by_mode(logical_divide, layout, tiler, "logical_divide")
    tiler = as_layout(tiler)
    rest = complement(tiler, size(layout))
    if size(right_inverse(make_layout(tiler, rest))) < size(layout):
        raise LayoutError(f"logical_divide: tiles {tiler} leave gaps in {size(layout)} elements")
    return composition(layout, make_layout(tiler, rest))


def zipped_divide(layout: Any, tiler: Any) -> Any:
    """((tile of each mode), (rest of each mode)): mode 0 is composition(layout, tiler) if the tiler has every mode."""
    return _zip_modes(logical_divide, layout, tiler, "zipped_divide")


def tiled_divide(layout: Any, tiler: Any) -> Any:
    """((tile of each mode), rest, rest, ...)."""
    return _unpack_modes(zipped_divide(layout, tiler), tiles=False)


def flat_divide(layout: Any, tiler: Any) -> Any:
    """(tile, tile, ..., rest, rest, ...)."""
    return _unpack_modes(zipped_divide(layout, tiler), tiles=True)


def logical_product(layout: Any, tiler: Any) -> Any:
    """(layout, its repetitions in the order of the tiler); the repetitions do not overlap.

    With a tuple each mode is repeated on its own, and the repetitions of different modes may overlap, as in CuTe;
    `blocked_product` and `raked_product` do not overlap.

    Args:
        tiler: Layout or integer; or a tuple of them, one per mode; None keeps a mode.
    Returns:
        ((layout), (rest)), with rest = complement(layout) o tiler.
    Raises:
        LayoutError: the layout overlaps itself, or its gaps do not fit the tiler.
    """
    if tiler is None:
        return layout
    if isinstance(tiler, tuple):
        return apply_by_mode(logical_product, layout, tiler, "logical_product")
    if isinstance(layout, ComposedLayout):
        return layout.with_layout(logical_product(layout.layout, tiler))
    layout, tiler = as_layout(layout), as_layout(tiler)
    rest = complement_by_rule(layout, size(layout) * cosize(tiler))
    if size(rest) < cosize(tiler):  # copies that interleave do not suffice: place whole copies one after another
        rest = complement_by_rule(layout, 2 * layout.cosize() * cosize(tiler))
    return make_layout(layout, composition(rest, tiler))


def zipped_product(layout: Any, tiler: Any) -> Any:
    """((layout of each mode), (repetitions of each mode))."""
    return _zip_modes(logical_product, layout, tiler, "zipped_product")


def tiled_product(layout: Any, tiler: Any) -> Any:
    """((layout of each mode), repetition, repetition, ...)."""
    return _unpack_modes(zipped_product(layout, tiler), tiles=False)


def flat_product(layout: Any, tiler: Any) -> Any:
    """(mode, mode, ..., repetition, repetition, ...)."""
    return _unpack_modes(zipped_product(layout, tiler), tiles=True)


def blocked_product(block: Any, tiler: Any) -> Any:
    """Repeat the block as whole blocks: mode i is (block's mode i, tiler's mode i), coalesced.

    blocked_product((2,5):(5,1), (3,4):(1,3)) is a 6x20 matrix of 2x5 blocks.
    """
    return _combine_mode_products(block, tiler, lambda inner, outer: make_layout(inner, outer))


def raked_product(block: Any, tiler: Any) -> Any:
    """Repeat the block element by element, a cyclic distribution: mode i is (tiler's mode i, block's mode i)."""
    return _combine_mode_products(block, tiler, lambda inner, outer: make_layout(outer, inner))


def _combine_mode_products(block: Any, tiler: Any, combine: Callable[[Layout, Layout], Layout]) -> Any:
    if isinstance(block, ComposedLayout):
        return block.with_layout(_combine_mode_products(block.layout, tiler, combine))
    block, tiler = as_layout(block), as_layout(tiler)
    modes = max(len(block), len(tiler))
    block, tiler = (append(one, *[Layout(1, 0)] * (modes - len(one))) for one in (block, tiler))
    inner, outer = logical_product(block, tiler)
    return make_layout([coalesce(combine(*pair)) for pair in zip(inner, outer, strict=True)])


def _zip_modes(operation: Callable, layout: Any, tiler: Any, operation_name: str) -> Any:
    """Apply `operation` per mode and group the first parts and the second parts."""
    if isinstance(layout, ComposedLayout):
        return layout.with_layout(_zip_modes(operation, layout.layout, tiler, operation_name))
    if tiler is None:
        return make_layout(Layout(1, 0), layout)
    if not isinstance(tiler, tuple):
        return operation(layout, tiler)
    if not 1 <= len(tiler) <= len(layout):
        raise LayoutError(f"{operation_name}: a tiler of {len(tiler)} modes for {layout}, which has {len(layout)}")
    pairs = [_zip_modes(operation, mode, part, operation_name) for mode, part in zip(layout, tiler, strict=False)]
    tiles, rests = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return make_layout(make_layout(tiles), make_layout([*rests, *list(layout)[len(tiler) :]]))


def _unpack_modes(zipped: Any, *, tiles: bool) -> Any:
    """Unpack the modes of the rest, and with `tiles` those of the tile."""
    tile, rest = without_swizzle(zipped)
    result = make_layout(*(tile if tiles else [tile]), *rest)
    return zipped.with_layout(result) if isinstance(zipped, ComposedLayout) else result
