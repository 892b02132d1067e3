"""The algebra: layouts as functions from integers to integers, simplified, chained and inverted.

Every operation gives a layout that does what its docstring says, or raises: where the rules of CuTe would give a layout
that is wrong, the error says why. Source: cutlass/media/docs/cpp/cute/02_layout_algebra.md; J. Shah, A note on the
algebra of CuTe layouts, 2024, which proves when a composition exists.
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
"""A composition that the rules refuse is looked for point by point up to this size."""


def coalesce(layout: Any, profile: Any = None) -> Any:
    """The same function with the fewest modes.

    Args:
        profile: a tuple: each of its integers coalesces the mode in its place, so that the rank stays; None leaves it.
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
    """Without modes of size 1 and of stride 0, coalesced: each offset once, where the layout repeats offsets by 0s."""
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
        b: Layout; or a tiler: a tuple of layouts, one for each mode of a (a shape stands for layouts of stride 1);
            None keeps a mode.
    Returns:
        R compatible with b; a composed layout where a has a swizzle.
    Raises:
        LayoutError: no layout is that function, as with (6,2):(1,7) after (3,2):(2,3); or CuTe's rules find none, and
            b has more than 2^16 elements.
    Cost: under 50 us for two layouts of rank 4 where the rules of CuTe apply.
    """
    if b is None:
        return a
    if isinstance(b, Swizzle | ComposedLayout) or (isinstance(a, Swizzle) and not isinstance(b, Layout)):
        raise LayoutError(
            f"composition: {a} after {format_tuple(b)}: a swizzle stands on the left, over the offsets of a layout"
        )
    if isinstance(a, Swizzle):
        return ComposedLayout(a, 0, b)
    if isinstance(b, tuple):
        return apply_by_mode(composition, a, b, "composition")
    if isinstance(a, ComposedLayout):
        return a.with_layout(composition(a.layout, b))
    b = as_layout(b)
    found, reason = _compose_by_rule(as_layout(a), b)
    return require_bounded(_compose_by_search(a, b, reason) if reason else found)


def _compose_by_rule(a: Layout, b: Layout) -> tuple[Layout, str]:
    """The composition as CuTe's rules have it, and why that is wrong, or ""."""
    modes, reason = unbounded_modes(a), ""
    room = [shape - 1 for shape, _ in modes[:-1]]

    def of(shape: IntTuple, stride: IntTuple) -> Layout:
        nonlocal reason
        if isinstance(shape, tuple):
            parts = [of(*part) for part in zip(shape, stride, strict=True)]
            return make_unchecked(tuple(part.shape for part in parts), tuple(part.stride for part in parts))
        digits, refusal = stride_digits(modes, shape, stride)
        reason = reason or refusal
        for mode, count, step in digits:
            if mode < len(room):
                room[mode] -= (count - 1) * step
        return _layout_from_modes([(count, step * modes[mode][1]) for mode, count, step in digits])

    found = of(b.shape, b.stride)
    if not reason and any(left < 0 for left in room):
        mode = next(at for at, left in enumerate(room) if left < 0)
        reason = f"the modes of {b} together step out of the mode {modes[mode][0]}:{modes[mode][1]} of {coalesce(a)}"
    return found, reason


def unbounded_modes(a: Layout) -> Modes:
    """The modes of a, coalesced, the last one kept even if its size is 1: an index beyond the size goes on in it."""
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
    """The numbers 0, step, 2 step ... (count of them) in the mixed radix of modes.

    Returns:
        (mode, how many values its digit takes, their step) from left to right, and why there is no such list, or "".
    """
    digits, wanted = [], f"{count}:{step}"
    if count == 1 or step == 0:
        return ([(0, count, 0)] if count > 1 else []), ""
    for mode, (shape, stride) in enumerate(modes[:-1]):
        if step >= shape:
            if step % shape:
                return digits, f"stride divisibility: {wanted} steps by {step} over the mode {shape}:{stride}"
            step //= shape
        elif (count - 1) * step < shape:
            return [*digits, (mode, count, step)], ""
        elif shape % step:
            return digits, f"stride divisibility: {wanted} steps by {step} through the mode {shape}:{stride}"
        else:
            fit = shape // step
            if count % fit:
                return digits, f"shape divisibility: {wanted} takes {fit} at a time of the mode {shape}:{stride}"
            digits.append((mode, fit, step))
            count, step = count // fit, 1
            if count == 1:
                return digits, ""
    return [*digits, (len(modes) - 1, count, step)], ""


def complement(layout: Any, cotarget: Any = 1) -> Layout:
    """What the layout leaves out: R repeats it without overlap until all of `cotarget` is covered.

    Args:
        cotarget: integer or shape, of which the size counts.
    Returns:
        R with increasing offsets; every sum layout(i) + R(j) occurs once (repetition by stride 0 aside), and the
        cosize of both together is at least size(cotarget). complement(4:2, 24) = (2,3):(1,8).
    Raises:
        LayoutError: a stride is smaller than what the strides below it cover, or so placed that repeating the layout
            does not reach the cotarget.
    """
    layout, reach = as_layout(layout), size(as_layout(getattr(cotarget, "shape", cotarget)))
    found = complement_by_rule(layout, reach)
    if (together := make_layout(layout, found).cosize()) < reach:
        raise LayoutError(
            f"complement: {layout} leaves gaps that its repetition misses: it ends below {together}, not {reach}"
        )
    return found


def complement_by_rule(layout: Layout, reach: int) -> Layout:
    """The complement by CuTe's rule, whether it reaches the cotarget or not.

    Raises:
        LayoutError: a stride is smaller than what the strides below it cover.
    """
    found, covered = [], 1
    for stride, shape in sorted((stride, shape) for shape, stride in filter(layout).modes() if stride):
        if stride < covered:
            raise LayoutError(
                f"complement: the mode {shape}:{stride} of {layout} begins inside what smaller strides cover "
                f"({covered} offsets), so its elements overlap or interleave"
            )
        found.append((stride // covered, covered))
        covered = shape * stride
    found.append((ceil_div(reach, covered), covered))
    return coalesce(_layout_from_modes([mode for mode in found if mode[0] > 1]))


def right_inverse(layout: Layout) -> Layout:
    """The R through which the layout counts: layout(R(k)) = k for every k below size(R), as far as strides reach.

    right_inverse((8,4):(4,1)) = (4,8):(8,1).
    """
    layout = as_layout(layout)
    starts = prefix_product(tuple(shape for shape, _ in layout.modes()))
    found, reached = [], 1
    ordered = sorted((stride, shape, start) for (shape, stride), start in zip(layout.modes(), starts, strict=True))
    for stride, shape, start in ordered:
        if shape > 1 and stride == reached:
            found.append((shape, start))
            reached = shape * stride
    return coalesce(_layout_from_modes(found))


def left_inverse(layout: Layout) -> Layout:
    """The R that leads back: R(layout(i)) = i for every i below size(layout).

    left_inverse(4:2) = (2,4):(0,1): offset 6 was element 3; what no element has leads to a neighbour's.

    Raises:
        LayoutError: the layout repeats offsets, or a stride is no multiple of the one below it. CuTe inverts what it
            can of a layout with strides of 0; this one does not.
    """
    layout = as_layout(layout)
    starts = prefix_product(tuple(shape for shape, _ in layout.modes()))
    pairs = zip(layout.modes(), starts, strict=True)
    ordered = sorted((stride, shape, start) for (shape, stride), start in pairs if shape > 1)
    found, below, room, start_below = [], 1, 1, 0
    for stride, shape, start in ordered:
        if stride % below:
            raise LayoutError(f"left_inverse: {shape}:{stride} of {layout} is no multiple of the stride {below}")
        if stride < below * room or not stride:
            raise LayoutError(f"left_inverse: {shape}:{stride} of {layout} gives several coordinates one offset")
        found.append((stride // below, start_below))
        below, room, start_below = stride, shape, start
    return coalesce(_layout_from_modes([mode for mode in [*found, (room, start_below)] if mode[0] > 1]))


def nullspace(layout: Layout) -> Layout:
    """The coordinates that do not matter: layout(R(i)) = 0, with size(R) = size(layout) / size(filter(layout))."""
    layout = as_layout(layout)
    starts = prefix_product(tuple(shape for shape, _ in layout.modes()))
    pairs = zip(layout.modes(), starts, strict=True)
    return _layout_from_modes([(shape, start) for (shape, stride), start in pairs if stride == 0 and shape > 1])


def max_common_layout(a: Layout, b: Layout) -> Layout:
    """The most elements that lie one after the other in both: a(R(i)) = b(R(i)) = i for every i below size(R).

    Where CuTe's rules do not say how far that goes, the first 2^16 elements are looked at.
    """
    a, b = as_layout(a), as_layout(b)
    inverse = right_inverse(b)
    together, reason = _compose_by_rule(a, inverse)
    shape, stride = next(iter(coalesce(together).modes()))
    if reason:
        counts = range(min(size(inverse), MAX_SEARCHED_ELEMENTS))
        common = next((at for at in counts if a(inverse(at)) != at), len(counts))
    else:
        common = shape if stride == 1 else 1
    found, reached = [], 1
    for shape, step in inverse.modes():
        inside = 1 + (size(a) - 1 - sum((count - 1) * one for count, one in found)) // max(step, 1)
        if (count := min(shape, common // reached, inside)) > 1:
            found.append((count, step))
            reached *= count
        if count < shape:
            break
    return _layout_from_modes(found)


def max_common_vector(a: Layout, b: Layout) -> int:
    """How many elements one copy instruction could move from the one to the other: size(max_common_layout(a, b))."""
    return size(max_common_layout(a, b))


def apply_by_mode(operation: Callable, layout: Any, tiler: tuple, operation_name: str) -> Any:
    """`operation` with each part of a tiler on the mode in its place; modes beyond the tiler stay."""
    inner = without_swizzle(layout)
    if not 1 <= len(tiler) <= len(inner):
        raise LayoutError(f"{operation_name}: a tiler of {len(tiler)} modes for {layout}, which has {len(inner)}")
    parts = [mode if part is None else operation(mode, part) for mode, part in zip(inner, tiler, strict=False)]
    found = make_layout([*parts, *list(inner)[len(tiler) :]])
    return layout.with_layout(found) if isinstance(layout, ComposedLayout) else found


def _layout_from_modes(modes: Iterable[tuple[int, int]]) -> Layout:
    """A layout of depth at most 1; without modes the one element at 0."""
    modes = list(modes)
    if len(modes) == 1:
        return make_unchecked(*modes[0])
    return make_unchecked(*(tuple(part) for part in zip(*modes, strict=True))) if modes else make_unchecked(1, 0)


def _compose_by_search(a: Layout, b: Layout, reason: str) -> Layout:
    """The composition looked for point by point, where the rules do not find it.

    Raises:
        LayoutError: there is none, with the coordinate that shows it; or too many points to look at.
    """
    if size(b) > MAX_SEARCHED_ELEMENTS:
        many = f"{size(b):,} points are too many to look for a layout one by one"
        raise LayoutError(f"composition: {a} after {b}: {reason}, and {many}")

    def of(shape: IntTuple, stride: IntTuple) -> Layout:
        if isinstance(shape, tuple):
            return make_layout([of(*part) for part in zip(shape, stride, strict=True)])
        return _fit_layout([a(at * stride) for at in range(shape)])

    found = of(b.shape, b.stride)
    wrong = next((at for at, offset in enumerate(b.offsets()) if found(at) != a(offset)), None)
    if wrong is None:
        return found
    where = format_tuple(idx2crd(wrong, b.shape))
    raise LayoutError(
        f"composition: {a} after {b} is no layout: {reason}; at {where} it would have to give {a(b(wrong))}, "
        f"where its modes one by one add up to {found(wrong)}"
    )


def _fit_layout(offsets: Sequence[int]) -> Layout:
    """The only layout that can have these offsets: each mode is as long as its step holds."""
    modes, done = [], 1
    while done < len(offsets) and len(offsets) % done == 0:
        step, count = offsets[done], 1
        while count * done < len(offsets) and offsets[count * done] == count * step:
            count += 1
        modes.append((count, step))
        done *= count
    return _layout_from_modes(modes) if done == len(offsets) else Layout(len(offsets), 0)
