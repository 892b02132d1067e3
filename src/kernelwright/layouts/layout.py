"""`Layout`: a shape with strides, which is a function from coordinates to offsets."""

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
    """A shape with strides, never changed after it is made.

    Args:
        shape: positive integers, nested at will: 8, (4, 2), (4, (2, 2)).
        stride: non-negative integers in the same form; compact column-major when left out.
    Raises:
        LayoutError: other forms or signs, or offsets of 2^63 and more.
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
        """The layout that `str` printed: Layout.parse("(4,(2,2)):(2,(1,8))").

        Raises:
            LayoutError: something else, with the offending place marked.
        """
        shape, stride = parse_parts(source)
        try:
            return cls(shape, stride)
        except LayoutError as fault:
            raise LayoutError(fault.message, where=f">>{source}<<") from fault

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a layout is never changed: make another one with that {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a layout is never changed")

    def __reduce__(self) -> tuple:
        return Layout, (self.shape, self.stride)

    def __eq__(self, other: object) -> bool:
        """The same shape and the same strides; `coalesce` first to compare functions."""
        return isinstance(other, Layout) and self.shape == other.shape and self.stride == other.stride

    def __hash__(self) -> int:
        return hash((self.shape, self.stride))

    def __str__(self) -> str:
        return f"{format_tuple(self.shape)}:{format_tuple(self.stride)}"

    def __repr__(self) -> str:
        return f"Layout({self.shape!r}, {self.stride!r})"

    def __len__(self) -> int:
        """Its rank: the number of modes at the top."""
        return len(self.shape) if isinstance(self.shape, tuple) else 1

    def __getitem__(self, mode: int) -> Layout:
        """A mode at the top as a layout of its own.

        Raises:
            IndexError: no such mode.
        """
        if not isinstance(mode, int) or not -len(self) <= mode < len(self):
            raise IndexError(f"{self} has {len(self)} modes, and no mode {mode}")
        return make_unchecked(self.shape[mode], self.stride[mode]) if isinstance(self.shape, tuple) else self

    def __iter__(self) -> Iterator[Layout]:
        return (self[mode] for mode in range(len(self)))

    def __call__(self, *coordinate: Any) -> Any:
        """The offset of a coordinate, or the layout that stays where the coordinate is None.

        Nothing is cut off, as in CuTe: an index beyond the size goes on in the last mode, and a mode's coordinate
        beyond its shape goes on along its stride. NumPy arrays give arrays.

        Raises:
            LayoutError: a coordinate that does not fit the shape, or a negative one.
        """
        crd = coordinate[0] if len(coordinate) == 1 else coordinate
        crd = normalize_coordinate(crd)
        if has_none(crd):
            return make_unchecked(slice_(crd, self.shape), slice_(crd, self.stride))
        return crd2idx(crd, self.shape, self.stride)

    def offset(self, *coordinate: Any) -> Any:
        """The offset of a coordinate whose open modes stand at 0.

        Raises:
            LayoutError: as for a call.
        """
        crd = coordinate[0] if len(coordinate) == 1 else coordinate
        return crd2idx(normalize_coordinate(crd), self.shape, self.stride)

    def offsets(self) -> list[int]:
        """All offsets in the order of the index: a million in under 0.1 s, without NumPy."""
        found = [0]
        for shape, stride in self.modes():
            steps = range(0, shape * stride, stride) if stride else (0,) * shape
            found = [at + step for step in steps for at in found]
        return found

    def modes(self) -> Iterator[tuple[int, int]]:
        """Every (shape, stride) of integers, from left to right."""
        return zip(leaves(self.shape), leaves(self.stride), strict=True)

    def flatten(self) -> Layout:
        return make_unchecked(tuples.flatten(self.shape), tuples.flatten(self.stride))

    def size(self) -> int:
        return product(self.shape)

    def cosize(self) -> int:
        """One more than the largest offset."""
        return 1 + sum((shape - 1) * stride for shape, stride in self.modes())


_set_attribute = object.__setattr__


def make_unchecked(shape: IntTuple, stride: IntTuple) -> Layout:
    """A layout whose parts are known to be sound."""
    made = Layout.__new__(Layout)
    _set_attribute(made, "shape", shape)
    _set_attribute(made, "stride", stride)
    return made


def require_bounded(layout: Layout) -> Layout:
    """The layout, whose size and offsets stay below 2^63.

    Raises:
        LayoutError: they do not.
    """
    if product(layout.shape) >= OFFSET_LIMIT or layout.cosize() > OFFSET_LIMIT:
        raise LayoutError(f"{layout}: 2^63 and more elements or offsets")
    return layout


def _validate_entries(value: IntTuple, what: str, minimum: int) -> None:
    if isinstance(value, tuple):
        if not value:
            raise LayoutError(f"an empty tuple in a {what}: a layout has at least one mode")
        for part in value:
            _validate_entries(part, what, minimum)
    elif not tuples.is_int(value):
        raise LayoutError(f"{what} {value!r}: {type(value).__name__}, not an integer or a tuple of them")
    elif value < minimum:
        raise LayoutError(f"{what} {value}: must be {minimum} or more")


def as_layout(value: Any) -> Layout:
    """A layout as it is; a shape as its compact column-major layout.

    Raises:
        LayoutError: neither; or swizzled, which this operation does not know.
    """
    if hasattr(value, "swizzle"):
        raise LayoutError(f"{value} has a swizzle, which this operation does not know: take its .layout")
    return value if isinstance(value, Layout) else Layout(value)


def without_swizzle(layout: Any) -> Layout:
    """The layout under a swizzle; any other as it is."""
    return getattr(layout, "layout", layout)


def is_layout(value: object) -> bool:
    return isinstance(value, Layout)


def make_layout(*parts: Any) -> Layout:
    """Layouts side by side as the modes of one: make_layout(3:1, 4:3) = (3,4):(1,3).

    Args:
        parts: layouts, or one iterable of them; or a shape, or a shape and a stride, as for `Layout`.
    Raises:
        LayoutError: none of these.
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
    made = make_unchecked(tuple(part.shape for part in parts), tuple(part.stride for part in parts))
    return require_bounded(made)


def size(value: Any) -> int:
    """How many coordinates a layout or a shape has.

    Raises:
        LayoutError: neither.
    """
    return product(getattr(value, "shape", value))


def cosize(layout: Any) -> int:
    """One more than the largest offset, of a layout or a swizzled one; of a shape as its compact layout."""
    return layout.cosize() if hasattr(layout, "cosize") else as_layout(layout).cosize()


def select(layout: Layout, *modes: int) -> Layout:
    """Some modes of the top, as a tuple of them: select((2,3,5):(1,2,6), 0, 2) = (2,5):(1,6)."""
    return make_layout([layout[mode] for mode in modes])


def group(layout: Layout, begin: int, end: int) -> Layout:
    """The modes from `begin` to before `end` as one: group((2,3,5):(1,2,6), 0, 2) = ((2,3),5):((1,2),6)."""
    parts = list(layout)
    return make_layout([*parts[:begin], take(layout, begin, end), *parts[end:]])


def take(layout: Layout, begin: int, end: int) -> Layout:
    """The modes from `begin` to before `end`: take((2,3,5):(1,2,6), 1, 3) = (3,5):(2,6).

    Raises:
        LayoutError: they are not there, or none.
    """
    if not 0 <= begin < end <= len(layout):
        raise LayoutError(f"{layout} has {len(layout)} modes: none from {begin} to before {end}")
    return make_layout([layout[mode] for mode in range(begin, end)])


def replace(layout: Layout, mode: int, part: Layout) -> Layout:
    """The layout with another mode in one place: replace((3,4):(1,3), 1, 2:9) = (3,2):(1,9)."""
    if not 0 <= mode < len(layout):
        raise LayoutError(f"{layout} has {len(layout)} modes, and no mode {mode}")
    return make_layout(part if at == mode else old for at, old in enumerate(layout))


def append(layout: Layout, *parts: Layout) -> Layout:
    """The modes of a layout, and more behind them: append(3:1, 4:3) = (3,4):(1,3)."""
    return make_layout([*layout, *parts])


def prepend(layout: Layout, *parts: Layout) -> Layout:
    """The modes of a layout, and more before them: prepend(3:1, 4:3) = (4,3):(3,1)."""
    return make_layout([*parts, *layout])


def slice_and_offset(crd: Any, layout: Layout) -> tuple[Layout, int]:
    """What a coordinate with open modes leaves of a layout, and the offset at which that begins."""
    return layout(crd), layout.offset(crd)
