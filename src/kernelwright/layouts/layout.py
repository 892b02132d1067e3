"""`Layout`: a shape with strides, a function from coordinates to offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kernelwright.layouts import tuples
from kernelwright.layouts.errors import LayoutError
from kernelwright.layouts.parsing import parse_parts
from kernelwright.layouts.tuples import (
    OFFSET_LIMIT,
    IntTuple,
    crd2idx,
    format_tuple,
    has_none,
    leaves,
    normalize_coordinate,
    prefix_product,
    product,
    slice_,
)


class Layout:
    """An immutable shape with strides.

    Args:
        shape: positive integers, nested to any depth: 8, (4, 2), (4, (2, 2)).
        stride: non-negative integers, congruent with `shape`; compact column-major by default.
    Raises:
        LayoutError: not congruent, an invalid integer, or offsets of 2^63 or more.
    Source: CuTe, cutlass/media/docs/cpp/cute/01_layout.md.
    """

    __slots__ = ("shape", "stride")
    shape: IntTuple
    stride: IntTuple

    def __init__(self, shape: IntTuple, stride: Any = None) -> None:
        _validate_entries(shape, "shape", 1)
        if stride is None:
            stride = prefix_product(shape)
        else:
            _validate_entries(stride, "stride", 0)
            tuples.require_congruent(shape, stride, "shape and stride")
        _set_attribute(self, "shape", shape)
        _set_attribute(self, "stride", stride)
        require_bounded(self)

    @classmethod
    def parse(cls, source: str) -> Layout:
        """Parse the output of `str`: Layout.parse("(4,(2,2)):(2,(1,8))").

        Raises:
            LayoutError: not a layout; the offending part is marked.
        """
        shape, stride = parse_parts(source)
        try:
            return cls(shape, stride)
        except LayoutError as error:
            raise LayoutError(error.message, where=f">>{source}<<") from error

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"layouts are immutable: create a new one to change {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("layouts are immutable")

    def __reduce__(self) -> tuple:
        return Layout, (self.shape, self.stride)

    def __eq__(self, other: object) -> bool:
        """Whether shapes and strides are equal; `coalesce` first to compare functions."""
        return isinstance(other, Layout) and self.shape == other.shape and self.stride == other.stride

    def __hash__(self) -> int:
        return hash((self.shape, self.stride))

    def __str__(self) -> str:
        return f"{format_tuple(self.shape)}:{format_tuple(self.stride)}"

    def __repr__(self) -> str:
        return f"Layout({self.shape!r}, {self.stride!r})"

    def __len__(self) -> int:
        """The rank: number of top-level modes."""
        return len(self.shape) if isinstance(self.shape, tuple) else 1

    def __getitem__(self, mode: int) -> Layout:
        """A top-level mode as a layout.

        Raises:
            IndexError: no such mode.
        """
        if not isinstance(mode, int) or not -len(self) <= mode < len(self):
            raise IndexError(f"{self} has {len(self)} modes, no mode {mode}")
        return make_unchecked(self.shape[mode], self.stride[mode]) if isinstance(self.shape, tuple) else self

    def __iter__(self) -> Iterator[Layout]:
        return (self[mode] for mode in range(len(self)))

    def __call__(self, *coordinate: Any) -> Any:
        """The offset of a coordinate, or the sublayout of the modes where the coordinate is None.

        Bounds are not checked, as in CuTe: an index beyond the size continues in the last mode, and a mode's coordinate
        beyond its shape continues along its stride. NumPy arrays return arrays.

        Raises:
            LayoutError: a coordinate that does not match the shape or is negative.
        """
        crd = coordinate[0] if len(coordinate) == 1 else coordinate
        crd = normalize_coordinate(crd)
        if has_none(crd):
            return make_unchecked(slice_(crd, self.shape), slice_(crd, self.stride))
        return crd2idx(crd, self.shape, self.stride)

    def offset(self, *coordinate: Any) -> Any:
        """The offset of a coordinate; None counts as 0.

        Raises:
            LayoutError: as for a call.
        """
        crd = coordinate[0] if len(coordinate) == 1 else coordinate
        return crd2idx(normalize_coordinate(crd), self.shape, self.stride)

    def offsets(self) -> list[int]:
        """All offsets by index; a million take under 0.1 s, without NumPy."""
        offsets = [0]
        for shape, stride in self.modes():
            steps = range(0, shape * stride, stride) if stride else (0,) * shape
            offsets = [offset + step for step in steps for offset in offsets]
        return offsets

    def modes(self) -> Iterator[tuple[int, int]]:
        """Yield every (shape, stride) pair of integers from left to right."""
        return zip(leaves(self.shape), leaves(self.stride), strict=True)

    def flatten(self) -> Layout:
        """The layout without nested modes."""
        return make_unchecked(tuples.flatten(self.shape), tuples.flatten(self.stride))

    def size(self) -> int:
        """Number of coordinates."""
        return product(self.shape)

    def cosize(self) -> int:
        """One more than the largest offset."""
        return 1 + sum((shape - 1) * stride for shape, stride in self.modes())


_set_attribute = object.__setattr__


def make_unchecked(shape: IntTuple, stride: IntTuple) -> Layout:
    """Create a layout without validation."""
    layout = Layout.__new__(Layout)
    _set_attribute(layout, "shape", shape)
    _set_attribute(layout, "stride", stride)
    return layout


def require_bounded(layout: Layout) -> Layout:
    """Return the layout if its size and offsets are below 2^63.

    Raises:
        LayoutError: they are not.
    """
    if product(layout.shape) >= OFFSET_LIMIT or layout.cosize() > OFFSET_LIMIT:
        raise LayoutError(f"{layout}: 2^63 or more elements or offsets")
    return layout


def _validate_entries(value: IntTuple, what: str, minimum: int) -> None:
    if isinstance(value, tuple):
        if not value:
            raise LayoutError(f"empty tuple in a {what}: a layout has at least one mode")
        for part in value:
            _validate_entries(part, what, minimum)
    elif not tuples.is_int(value):
        raise LayoutError(f"{what} {value!r}: {type(value).__name__}, not an integer or a tuple of them")
    elif value < minimum:
        raise LayoutError(f"{what} {value}: must be {minimum} or more")


def as_layout(value: Any) -> Layout:
    """Convert a shape to its compact column-major layout; layouts are returned unchanged.

    Raises:
        LayoutError: neither, or a swizzled layout, which most operations do not support.
    """
    if hasattr(value, "swizzle"):
        raise LayoutError(f"{value} has a swizzle, which this operation does not support: use its .layout")
    return value if isinstance(value, Layout) else Layout(value)


def without_swizzle(layout: Any) -> Layout:
    """The layout inside a composed layout; any other layout unchanged."""
    return getattr(layout, "layout", layout)


def is_layout(value: object) -> bool:
    """Whether a value is a `Layout`."""
    return isinstance(value, Layout)


def make_layout(*parts: Any) -> Layout:
    """Combine layouts as the modes of one: make_layout(3:1, 4:3) = (3,4):(1,3).

    Args:
        parts: layouts, or one iterable of them; or a shape, or a shape and a stride, as for `Layout`.
    Raises:
        LayoutError: invalid or no parts.
    """
    if len(parts) == 1 and isinstance(parts[0], Iterable) and not isinstance(parts[0], Layout):
        parts = tuple(parts[0])
        if parts and not any(isinstance(part, Layout) for part in parts):
            return Layout(parts)
    if len(parts) in (1, 2) and not any(isinstance(part, Layout) for part in parts):
        return Layout(*parts)
    parts = tuple(map(as_layout, parts))
    if not parts:
        raise LayoutError("make_layout: no layouts")
    return require_bounded(make_unchecked(tuple(part.shape for part in parts), tuple(part.stride for part in parts)))


def size(value: Any) -> int:
    """Number of coordinates of a layout or a shape.

    Raises:
        LayoutError: neither.
    """
    return product(getattr(value, "shape", value))


def cosize(layout: Any) -> int:
    """One more than the largest offset of a layout, a composed layout, or the compact layout of a shape."""
    return layout.cosize() if hasattr(layout, "cosize") else as_layout(layout).cosize()


def select(layout: Layout, *modes: int) -> Layout:
    """A layout of some top-level modes: select((2,3,5):(1,2,6), 0, 2) = (2,5):(1,6)."""
    return make_layout([layout[mode] for mode in modes])


def group(layout: Layout, begin: int, end: int) -> Layout:
    """Group the modes in [begin, end) into one: group((2,3,5):(1,2,6), 0, 2) = ((2,3),5):((1,2),6)."""
    parts = list(layout)
    return make_layout([*parts[:begin], take(layout, begin, end), *parts[end:]])


def take(layout: Layout, begin: int, end: int) -> Layout:
    """The modes in [begin, end): take((2,3,5):(1,2,6), 1, 3) = (3,5):(2,6).

    Raises:
        LayoutError: an empty range or one outside the layout.
    """
    if not 0 <= begin < end <= len(layout):
        raise LayoutError(f"{layout} has {len(layout)} modes: [{begin}, {end}) is empty or out of range")
    return make_layout([layout[mode] for mode in range(begin, end)])


def replace(layout: Layout, mode: int, part: Layout) -> Layout:
    """Replace one mode of a layout: replace((3,4):(1,3), 1, 2:9) = (3,2):(1,9)."""
    if not 0 <= mode < len(layout):
        raise LayoutError(f"{layout} has {len(layout)} modes, no mode {mode}")
    return make_layout(part if i == mode else old for i, old in enumerate(layout))


def append(layout: Layout, *parts: Layout) -> Layout:
    """Append modes to a layout: append(3:1, 4:3) = (3,4):(1,3)."""
    return make_layout([*layout, *parts])


def prepend(layout: Layout, *parts: Layout) -> Layout:
    """Prepend modes to a layout: prepend(3:1, 4:3) = (4,3):(3,1)."""
    return make_layout([*parts, *layout])


def slice_and_offset(crd: Any, layout: Layout) -> tuple[Layout, int]:
    """The sublayout of the open (None) modes of a coordinate, and its start offset."""
    return layout(crd), layout.offset(crd)
