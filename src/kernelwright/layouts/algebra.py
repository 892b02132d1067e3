"""The layout algebra: layouts as functions from integers to integers, simplified, composed and inverted.

Every operation returns a layout that satisfies its docstring, or raises: where the rules of CuTe would produce a wrong
layout, the error explains why. Source: cutlass/media/docs/cpp/cute/02_layout_algebra.md; J. Shah, A note on the algebra
of CuTe layouts, 2024, which proves when a composition exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kernelwright.layouts.errors import LayoutError
from kernelwright.layouts.layout import (
    Layout,
    as_layout,
    make_layout,
    make_unchecked,
    require_bounded,
    size,
    without_swizzle,
)
from kernelwright.layouts.swizzle import ComposedLayout, Swizzle
from kernelwright.layouts.tuples import IntTuple, ceil_div, format_tuple, idx2crd, prefix_product

Modes = list[tuple[int, int]]
MAX_SEARCHED_ELEMENTS = 2**16
"""Up to this size, a composition that the rules reject is searched for element by element."""


def coalesce(layout: Any, profile: Any = None) -> Any:
    """The same function with the fewest modes.

    Args:
        profile: tuple; each integer coalesces the mode at its position on its own, None keeps the mode. Preserves the
            rank.
    Returns:
        R of depth at most 1 with size(R) = size(layout) and R(i) = layout(i) for every i below that.
    """
    if isinstance(layout, ComposedLayout):
        return layout.with_layout(coalesce(layout.layout, profile))
    layout = as_layout(layout)
    if isinstance(profile, tuple):
        return apply_by_mode(coalesce, layout, profile, "coalesce")
    modes: Modes = []
    for shape, stride in layout.modes():
        if shape == 1:
            continue
        if modes and modes[-1][1] * modes[-1][0] == stride:
            modes[-1] = modes[-1][0] * shape, modes[-1][1]
        else:
            modes.append((shape, stride))
    return _layout_from_modes(modes)


def filter(layout: Any, profile: Any = None) -> Any:
    """The layout without modes of size 1 or stride 0, coalesced: offsets repeated by stride 0 occur once."""
    if isinstance(layout, ComposedLayout):
        return layout.with_layout(filter(layout.layout, profile))
    layout = as_layout(layout)
    if isinstance(profile, tuple):
        return apply_by_mode(filter, layout, profile, "filter")
    return coalesce(_layout_from_modes([(shape, stride) for shape, stride in layout.modes() if stride]))


def composition(a: Any, b: Any) -> Any:
    """The layout R(c) = a(b(c)), with the coordinates of b.

    Args:
        a: Layout, Swizzle or composed layout.
        b: Layout; or a tiler: a tuple of layouts, one per mode of a. An integer in it means a layout of stride 1, None
            keeps the mode.
    Returns:
        R compatible with b; a composed layout if a has a swizzle.
    Raises:
        LayoutError: the function is not a layout, as for (6,2):(1,7) o (3,2):(2,3); or CuTe's rules do not apply and b
            has more than 2^16 elements.
    Cost: under 50 us for two layouts of rank 4 if CuTe's rules apply.
    """
    if b is None:
        return a
    if isinstance(b, Swizzle | ComposedLayout) or (isinstance(a, Swizzle) and not isinstance(b, Layout)):
        raise LayoutError(
            f"composition: {a} o {format_tuple(b)}: a swizzle must be the left operand, applied to a layout's offsets"
        )
    if isinstance(a, Swizzle):
        return ComposedLayout(a, 0, b)
    if isinstance(b, tuple):
        return apply_by_mode(composition, a, b, "composition")
    if isinstance(a, ComposedLayout):
        return a.with_layout(composition(a.layout, b))
    b = as_layout(b)
    result, reason = _compose_by_rule(as_layout(a), b)
    return require_bounded(_compose_by_search(a, b, reason) if reason else result)


def _compose_by_rule(a: Layout, b: Layout) -> tuple[Layout, str]:
    """The composition by CuTe's rules, and the reason why it is wrong, or ""."""
    modes, reason = unbounded_modes(a), ""
    remaining = [shape - 1 for shape, _ in modes[:-1]]

    def of(shape: IntTuple, stride: IntTuple) -> Layout:
        nonlocal reason
        if isinstance(shape, tuple):
            parts = [of(*part) for part in zip(shape, stride, strict=True)]
            return make_unchecked(tuple(part.shape for part in parts), tuple(part.stride for part in parts))
        digits, refusal = stride_digits(modes, shape, stride)
        reason = reason or refusal
        for mode, count, step in digits:
            if mode < len(remaining):
                remaining[mode] -= (count - 1) * step
        return _layout_from_modes([(count, step * modes[mode][1]) for mode, count, step in digits])

    result = of(b.shape, b.stride)
    if not reason and any(extent < 0 for extent in remaining):
        mode = next(mode for mode, extent in enumerate(remaining) if extent < 0)
        reason = f"the modes of {b} together exceed the mode {modes[mode][0]}:{modes[mode][1]} of {coalesce(a)}"
    return result, reason


def unbounded_modes(a: Layout) -> Modes:
    """The coalesced modes of a. The last mode is kept even if its size is 1: it is unbounded."""
    *before, last = a.modes()
    modes = [mode for mode in _layout_from_modes(before).modes() if mode[0] > 1] if before else []
    merged: Modes = []
    for shape, stride in [*modes, last]:
        if merged and merged[-1][0] * merged[-1][1] == stride:
            merged[-1] = merged[-1][0] * shape, merged[-1][1]
        else:
            merged.append((shape, stride))
    return merged


def stride_digits(modes: Sequence[tuple[int, int]], count: int, step: int) -> tuple[list[tuple[int, int, int]], str]:
    """Decompose the numbers 0, step, ..., (count - 1) * step into digits of the mixed radix of the modes.

    Returns:
        (mode, number of values of its digit, their step) from left to right, and the reason why there is no such
        decomposition, or "".
    """
    digits, mode_text = [], f"{count}:{step}"
    if count == 1 or step == 0:
        return ([(0, count, 0)] if count > 1 else []), ""
    for mode, (shape, stride) in enumerate(modes[:-1]):
        if step >= shape:
            if step % shape:
                return (
                    digits,
                    f"stride divisibility: step {step} of {mode_text} is not a multiple of the mode {shape}:{stride}",
                )
            step //= shape
        elif (count - 1) * step < shape:
            return [*digits, (mode, count, step)], ""
        elif shape % step:
            return digits, f"stride divisibility: step {step} of {mode_text} does not divide the mode {shape}:{stride}"
        else:
            fit = shape // step
            if count % fit:
                return (
                    digits,
                    f"shape divisibility: {mode_text} is not a multiple of {fit} elements of the mode {shape}:{stride}",
                )
            digits.append((mode, fit, step))
            count, step = count // fit, 1
            if count == 1:
                return digits, ""
    return [*digits, (len(modes) - 1, count, step)], ""


def complement(layout: Any, cotarget: Any = 1) -> Layout:
    """The offsets that a layout omits: R repeats it without overlap until `cotarget` is covered.

    Args:
        cotarget: integer or shape; its size counts.
    Returns:
        R with increasing offsets. Every sum layout(i) + R(j) occurs once (apart from repetition by stride 0), and the
        cosize of both together is at least size(cotarget). complement(4:2, 24) = (2,3):(1,8).
    Raises:
        LayoutError: a stride is smaller than the extent of the smaller strides, or repeating the layout does not reach
            the cotarget.
    """
    layout, reach = as_layout(layout), size(as_layout(getattr(cotarget, "shape", cotarget)))
    result = complement_by_rule(layout, reach)
    if (end := make_layout(layout, result).cosize()) < reach:
        raise LayoutError(
            f"complement: {layout} leaves gaps that its repetition does not fill: it ends below {end}, not {reach}"
        )
    return result


def complement_by_rule(layout: Layout, reach: int) -> Layout:
    """The complement by CuTe's rule, without the check that it reaches the cotarget.

    Raises:
        LayoutError: a stride is smaller than the extent of the smaller strides.
    """
    result, covered = [], 1
    for stride, shape in sorted((stride, shape) for shape, stride in filter(layout).modes() if stride):
        if stride < covered:
            raise LayoutError(
                f"complement: the mode {shape}:{stride} of {layout} starts inside the {covered} offsets that "
                f"smaller strides cover, so its elements overlap or interleave"
            )
        result.append((stride // covered, covered))
        covered = shape * stride
    result.append((ceil_div(reach, covered), covered))
    return coalesce(_layout_from_modes([mode for mode in result if mode[0] > 1]))


def right_inverse(layout: Layout) -> Layout:
    """The largest R with layout(R(k)) = k for every k below size(R).

    right_inverse((8,4):(4,1)) = (4,8):(8,1).
    """
    layout = as_layout(layout)
    starts = prefix_product(tuple(shape for shape, _ in layout.modes()))
    result, reached = [], 1
    ordered = sorted((stride, shape, start) for (shape, stride), start in zip(layout.modes(), starts, strict=True))
    for stride, shape, start in ordered:
        if shape > 1 and stride == reached:
            result.append((shape, start))
            reached = shape * stride
    return coalesce(_layout_from_modes(result))


def left_inverse(layout: Layout) -> Layout:
    """R with R(layout(i)) = i for every i below size(layout).

    left_inverse(4:2) = (2,4):(0,1): offset 6 belongs to element 3. An offset of no element maps to an adjacent element.

    Raises:
        LayoutError: the layout repeats offsets, or a stride is not a multiple of the next smaller one. Unlike CuTe, a
            layout with strides of 0 is not inverted in part.
    """
    layout = as_layout(layout)
    starts = prefix_product(tuple(shape for shape, _ in layout.modes()))
    pairs = zip(layout.modes(), starts, strict=True)
    ordered = sorted((stride, shape, start) for (shape, stride), start in pairs if shape > 1)
    result, below, shape_below, start_below = [], 1, 1, 0
    for stride, shape, start in ordered:
        if stride % below:
            raise LayoutError(f"left_inverse: {shape}:{stride} of {layout} is no multiple of the stride {below}")
        if stride < below * shape_below or not stride:
            raise LayoutError(f"left_inverse: {shape}:{stride} of {layout} maps several coordinates to one offset")
        result.append((stride // below, start_below))
        below, shape_below, start_below = stride, shape, start
    return coalesce(_layout_from_modes([mode for mode in [*result, (shape_below, start_below)] if mode[0] > 1]))


def nullspace(layout: Layout) -> Layout:
    """The coordinates that map to 0: layout(R(i)) = 0, with size(R) = size(layout) / size(filter(layout))."""
    layout = as_layout(layout)
    starts = prefix_product(tuple(shape for shape, _ in layout.modes()))
    pairs = zip(layout.modes(), starts, strict=True)
    return _layout_from_modes([(shape, start) for (shape, stride), start in pairs if stride == 0 and shape > 1])


def max_common_layout(a: Layout, b: Layout) -> Layout:
    """The most elements that are contiguous in both layouts: a(R(i)) = b(R(i)) = i for every i below size(R).

    Where CuTe's rules do not decide the number, the first 2^16 elements are searched.
    """
    a, b = as_layout(a), as_layout(b)
    inverse = right_inverse(b)
    composed, reason = _compose_by_rule(a, inverse)
    shape, stride = next(iter(coalesce(composed).modes()))
    if reason:
        counts = range(min(size(inverse), MAX_SEARCHED_ELEMENTS))
        common = next((i for i in counts if a(inverse(i)) != i), len(counts))
    else:
        common = shape if stride == 1 else 1
    result, reached = [], 1
    for shape, step in inverse.modes():
        inside = 1 + (size(a) - 1 - sum((count - 1) * one for count, one in result)) // max(step, 1)
        if (count := min(shape, common // reached, inside)) > 1:
            result.append((count, step))
            reached *= count
        if count < shape:
            break
    return _layout_from_modes(result)


def max_common_vector(a: Layout, b: Layout) -> int:
    """Number of elements that one copy instruction can move between the layouts: size(max_common_layout(a, b))."""
    return size(max_common_layout(a, b))


def apply_by_mode(operation: Callable, layout: Any, tiler: tuple, operation_name: str) -> Any:
    """Apply `operation` with each part of a tiler to the mode at its position; further modes are unchanged."""
    inner = without_swizzle(layout)
    if not 1 <= len(tiler) <= len(inner):
        raise LayoutError(f"{operation_name}: a tiler of {len(tiler)} modes for {layout}, which has {len(inner)}")
    parts = [mode if part is None else operation(mode, part) for mode, part in zip(inner, tiler, strict=False)]
    result = make_layout([*parts, *list(inner)[len(tiler) :]])
    return layout.with_layout(result) if isinstance(layout, ComposedLayout) else result


def _layout_from_modes(modes: Iterable[tuple[int, int]]) -> Layout:
    """A layout of depth at most 1; 1:0 if there are no modes."""
    modes = list(modes)
    if len(modes) == 1:
        return make_unchecked(*modes[0])
    return make_unchecked(*(tuple(part) for part in zip(*modes, strict=True))) if modes else make_unchecked(1, 0)


def _compose_by_search(a: Layout, b: Layout, reason: str) -> Layout:
    """Search the composition element by element where the rules do not apply.

    Raises:
        LayoutError: none exists (the error names a coordinate that shows it), or b has too many elements.
    """
    if size(b) > MAX_SEARCHED_ELEMENTS:
        detail = f"{size(b):,} elements are too many to search"
        raise LayoutError(f"composition: {a} o {b}: {reason}, and {detail}")

    def of(shape: IntTuple, stride: IntTuple) -> Layout:
        if isinstance(shape, tuple):
            return make_layout([of(*part) for part in zip(shape, stride, strict=True)])
        return _fit_layout([a(i * stride) for i in range(shape)])

    result = of(b.shape, b.stride)
    mismatch = next((i for i, offset in enumerate(b.offsets()) if result(i) != a(offset)), None)
    if mismatch is None:
        return result
    coordinate = format_tuple(idx2crd(mismatch, b.shape))
    raise LayoutError(
        f"composition: {a} o {b} is not a layout: {reason}; at {coordinate} the offset must be {a(b(mismatch))}, "
        f"but its modes add up to {result(mismatch)}"
    )


def _fit_layout(offsets: Sequence[int]) -> Layout:
    """The only layout that can have these offsets: each mode extends as far as its stride is constant."""
    modes, covered = [], 1
    while covered < len(offsets) and len(offsets) % covered == 0:
        step, count = offsets[covered], 1
        while count * covered < len(offsets) and offsets[count * covered] == count * step:
            count += 1
        modes.append((count, step))
        covered *= count
    return _layout_from_modes(modes) if covered == len(offsets) else Layout(len(offsets), 0)
