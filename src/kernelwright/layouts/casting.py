"""Layouts of the same memory in wider or narrower elements: 16-bit elements as 32-bit ones and back."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

from kernelwright.layouts.errors import LayoutError
from kernelwright.layouts.layout import Layout, make_unchecked, require_bounded
from kernelwright.layouts.swizzle import ComposedLayout, Swizzle
from kernelwright.layouts.tuples import IntTuple, is_int, leaves


def upcast(layout: Any, count: int) -> Any:
    """Offsets in elements that are `count` times as wide: upcast((4,8):(8,1), 2) = (4,4):(4,1).

    Args:
        layout: Layout, Swizzle or composed layout.
        count: number of narrow elements in a wide one.
    Returns:
        R with R(group of c) = layout(c) // count; a mode with a stride below `count` becomes shorter, down to one
        element.
    Raises:
        LayoutError: a group of elements would straddle two wide ones.
    """
    _require_positive(count)
    if not isinstance(layout, Layout):
        return _recast_swizzled(layout, count, upcast)
    result = _map_modes(layout, lambda shape, stride: _widen_mode(shape, stride, count, layout))
    lengths = zip(leaves(layout.shape), leaves(result.shape), leaves(layout.stride), strict=True)
    if sum((before // after - 1) * stride for before, after, stride in lengths) >= count:
        raise LayoutError(f"upcast: the modes of {layout} within {count} elements overlap")
    return result


def downcast(layout: Any, count: int) -> Any:
    """Offsets in elements that are `count` times as narrow: downcast((4,4):(4,1), 2) = (4,8):(8,1).

    Returns:
        R of `count` times the size; the mode of stride 1 becomes longer.
    Raises:
        LayoutError: not exactly one mode of stride 1, which must hold the parts.
    """
    _require_positive(count)
    if not isinstance(layout, Layout):
        return _recast_swizzled(layout, count, downcast)
    if count > 1 and (result := sum(stride == 1 for _, stride in layout.modes())) != 1:
        raise LayoutError(
            f"downcast: {layout} has {result} modes of stride 1; exactly one is needed for the {count} parts"
        )
    return _map_modes(layout, lambda shape, stride: (shape * count, 1) if stride == 1 else (shape, stride * count))


def recast(layout: Any, old_bits: int, new_bits: int) -> Any:
    """The layout of the same memory in elements of `new_bits` in place of `old_bits`.

    Raises:
        LayoutError: as in `upcast` and `downcast`.
    """
    _require_positive(old_bits)
    _require_positive(new_bits)
    common = gcd(old_bits, new_bits)
    narrower, wider = old_bits // common, new_bits // common
    result = downcast(layout, narrower) if narrower > 1 else layout
    return upcast(result, wider) if wider > 1 else result


def _widen_mode(shape: int, stride: int, count: int, layout: Layout) -> tuple[int, int]:
    if stride % count == 0:
        return shape, stride // count
    if count % stride == 0:
        fit = count // stride
        if shape % fit == 0:
            return shape // fit, 1
        if fit % shape == 0:
            return 1, 1
    raise LayoutError(f"upcast: {shape}:{stride} of {layout} does not fit elements that are {count} times as wide")


def _map_modes(layout: Layout, function: Callable[[int, int], tuple[int, int]]) -> Layout:
    def of(shape: IntTuple, stride: IntTuple) -> tuple[IntTuple, IntTuple]:
        if isinstance(shape, tuple):
            parts = [of(*part) for part in zip(shape, stride, strict=True)]
            return tuple(part[0] for part in parts), tuple(part[1] for part in parts)
        return function(shape, stride)

    return require_bounded(make_unchecked(*of(layout.shape, layout.stride)))


def _recast_swizzled(layout: Any, count: int, cast: Callable) -> Any:
    """Recast a swizzle so that it applies to the same bits of the byte address."""
    bits = count.bit_length() - 1
    if count != 1 << bits:
        raise LayoutError(f"{cast.__name__}: a swizzled layout needs a power of 2, not {count}")
    if isinstance(layout, Swizzle):
        base = layout.base - bits if cast is upcast else layout.base + bits
        if base < 0:
            raise LayoutError(f"upcast: {layout} changes bits inside an element that is {count} times as wide")
        return Swizzle(layout.bits, base, layout.shift)
    if not isinstance(layout, ComposedLayout):
        raise LayoutError(f"{cast.__name__}: {layout} is not a layout")
    if cast is upcast and layout.base_offset % count:
        raise LayoutError(
            f"upcast: {layout} starts at {layout.base_offset}, inside an element that is {count} times as wide"
        )
    begin = layout.base_offset // count if cast is upcast else layout.base_offset * count
    return ComposedLayout(cast(layout.swizzle, count), begin, cast(layout.layout, count))


def _require_positive(count: int) -> None:
    if not is_int(count) or count < 1:
        raise LayoutError(f"{count!r} is not a positive number of elements or bits")
