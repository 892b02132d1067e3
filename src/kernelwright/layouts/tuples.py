"""Integer tuples: an integer, or a tuple of integer tuples. Used for shapes, strides and coordinates."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Iterator
from itertools import chain
from math import prod
from typing import Any

from kernelwright.layouts.errors import LayoutError

OFFSET_LIMIT = 2**63
"""Sizes and offsets are below this limit: kernels use 64-bit integers."""
IntTuple = Any
"""int | tuple[IntTuple, ...]: type checkers do not support the recursive type in arithmetic."""


class Integer(metaclass=ABCMeta):  # noqa: B024 - used only with isinstance
    """Virtual base class of int and its subclasses, without bool."""

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        return issubclass(other, int) and not issubclass(other, bool)


def is_int(value: object) -> bool:
    """Whether a value is an integer; bool is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_tuple(value: object) -> bool:
    """Whether a value is a tuple."""
    return isinstance(value, tuple)


def leaves(value: IntTuple) -> Iterator[Any]:
    """Yield every integer, or None, from left to right."""
    if isinstance(value, tuple):
        for part in value:
            yield from leaves(part)
    else:
        yield value


def flatten(value: Any) -> Any:
    """A tuple without nested tuples; an integer is returned unchanged, a layout is flattened in shape and stride."""
    if hasattr(value, "flatten"):
        return value.flatten()
    return tuple(leaves(value)) if isinstance(value, tuple) else value


def product(value: IntTuple) -> int:
    """The product of all integers: product(((2,3),4)) = 24.

    Raises:
        LayoutError: an element is not an integer.
    """
    if not isinstance(value, tuple):
        if not is_int(value):
            raise LayoutError(f"{value!r}: {type(value).__name__}, not an integer or a tuple of them")
        return value
    return prod(map(product, value))


def inner_product(a: IntTuple, b: IntTuple) -> int:
    """The sum of the products of corresponding integers: inner_product((1,2), (3,2)) = 7.

    Raises:
        LayoutError: a and b are not congruent.
    """
    if not isinstance(a, tuple) and not isinstance(b, tuple):
        return a * b
    require_congruent(a, b, "inner_product")
    return sum(x * y for x, y in zip(leaves(a), leaves(b), strict=True))


def prefix_product(shape: IntTuple) -> IntTuple:
    """The exclusive product from the left, congruent with `shape`: the strides of a compact column-major layout.

    prefix_product((3,(2,4))) = (1,(3,6)).
    """
    running = 1

    def of(part: IntTuple) -> IntTuple:
        nonlocal running
        if isinstance(part, tuple):
            return tuple(of(inner) for inner in part)
        before, running = running, running * part
        return before

    return of(shape)


def suffix_product(shape: IntTuple) -> IntTuple:
    """The exclusive product from the right, the strides of a row-major layout: suffix_product((3,4)) = (4,1)."""
    return _reversed(prefix_product(_reversed(shape)))


def _reversed(value: IntTuple) -> IntTuple:
    return tuple(_reversed(part) for part in reversed(value)) if isinstance(value, tuple) else value


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def shape_div(a: IntTuple, b: IntTuple) -> IntTuple:
    """Divide a shape by an integer from the left: shape_div((3,4), 6) = (1,2).

    The result of two integers is at least 1; the remaining factor of `b` divides the next mode.

    Raises:
        LayoutError: neither divides the other.
    """
    if isinstance(a, tuple):
        if isinstance(b, tuple):
            if len(a) != len(b):
                raise LayoutError(f"shape_div: {format_tuple(a)} has {len(a)} modes and {format_tuple(b)} has {len(b)}")
            return tuple(shape_div(x, y) for x, y in zip(a, b, strict=True))
        parts, rest = [], b
        for part in a:
            parts.append(shape_div(part, rest))
            rest = shape_div(rest, product(part))
        return tuple(parts)
    b = product(b)
    if not a or not b or (a % b and b % a):
        raise LayoutError(f"shape_div: neither of {a} and {b} divides the other")
    return ceil_div(a, b)


def rank(value: Any) -> int:
    """Number of top-level modes: 1 for an integer."""
    value = getattr(value, "shape", value)
    return len(value) if isinstance(value, tuple) else 1


def depth(value: Any) -> int:
    """Nesting depth: 0 for an integer, 1 for a tuple of integers."""
    value = getattr(value, "shape", value)
    return 1 + max(map(depth, value), default=0) if isinstance(value, tuple) else 0


def congruent(a: IntTuple, b: IntTuple) -> bool:
    """Whether both have the same nesting structure."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(congruent, a, b))
    return not isinstance(a, tuple) and not isinstance(b, tuple)


def compatible(a: Any, b: Any) -> bool:
    """Whether every coordinate of shape `a` is a coordinate of shape `b`: compatible(24, (4,6)), but not vice versa."""
    a, b = getattr(a, "shape", a), getattr(b, "shape", b)
    if not isinstance(a, tuple):
        return a == product(b)
    return isinstance(b, tuple) and len(a) == len(b) and all(map(compatible, a, b))


def require_congruent(a: IntTuple, b: IntTuple, what: str) -> None:
    """Raise a LayoutError unless `a` and `b` are congruent."""
    if not congruent(a, b):
        raise LayoutError(f"{what}: {format_tuple(a)} and {format_tuple(b)} are not congruent")


def crd2idx(crd: Any, shape: IntTuple, stride: Any = None) -> Any:
    """The offset of a coordinate. An integer is split over `shape` from the left; the last mode is unbounded.

    Args:
        crd: integer or nested tuple, at most as deep as `shape`; None counts as 0. NumPy arrays return arrays.
        stride: compact column-major by default.
    Raises:
        LayoutError: the number of coordinates differs from the number of modes.
    """
    if stride is None:
        return _offset(crd, shape, prefix_product(shape))
    require_congruent(shape, stride, "crd2idx")
    return _offset(crd, shape, stride)


def _offset(crd: Any, shape: IntTuple, stride: IntTuple) -> Any:
    if isinstance(crd, tuple):
        if not isinstance(shape, tuple) or len(crd) != len(shape):
            raise LayoutError(f"coordinate {format_tuple(crd)} does not fit the shape {format_tuple(shape)}")
        return sum(map(_offset, crd, shape, stride))
    if crd is None:
        return 0
    if not isinstance(shape, tuple):
        return crd * stride
    offset = 0
    for part, step in zip(shape[:-1], stride[:-1], strict=True):
        size = part if isinstance(part, int) else prod(leaves(part))
        offset += _offset(crd % size, part, step)
        crd = crd // size
    return offset + _offset(crd, shape[-1], stride[-1])


def normalize_coordinate(crd: Any) -> Any:
    """Validate a coordinate of non-negative integers, or arrays of them, which are converted to 64 bits.

    Raises:
        LayoutError: not an integer, or negative.
    """
    if isinstance(crd, tuple):
        return tuple(map(normalize_coordinate, crd))
    if crd is None or (is_int(crd) and crd >= 0):
        return crd
    if not is_int(crd) and "int" not in str(getattr(crd, "dtype", "")):
        raise LayoutError(f"coordinate {crd!r}: {type(crd).__name__}, not an integer")
    if is_int(crd) or (crd < 0).any():
        raise LayoutError(f"coordinate {crd} is negative")
    return crd.astype("int64") if hasattr(crd, "astype") else crd.long()


def idx2crd(idx: Any, shape: IntTuple, stride: Any = None) -> IntTuple:
    """The natural coordinate of an index within `shape`: idx2crd(16, (3,(2,3))) = (1,(1,2)).

    Args:
        idx: integer, or a coordinate that is at most as deep as the shape.
        stride: strides of the index; compact column-major by default.
    Raises:
        LayoutError: a tuple that does not match the shape.
    """
    if stride is None:
        stride = prefix_product(shape) if not isinstance(idx, tuple) else None
    else:
        require_congruent(shape, stride, "idx2crd")
    if isinstance(idx, tuple):
        if not isinstance(shape, tuple) or len(idx) != len(shape):
            raise LayoutError(f"coordinate {format_tuple(idx)} does not fit the shape {format_tuple(shape)}")
        strides = stride if isinstance(stride, tuple) else (None,) * len(shape)
        return tuple(map(idx2crd, idx, shape, strides))
    if isinstance(shape, tuple):
        return tuple(idx2crd(idx, part, step) for part, step in zip(shape, stride, strict=True))
    return (idx // stride) % shape if stride else 0


def has_none(value: Any) -> bool:
    """Whether a coordinate has an open mode (None)."""
    return any(leaf is None for leaf in leaves(value))


def slice_(crd: Any, value: IntTuple) -> IntTuple:
    """The parts of `value` where the coordinate is None: slice_((None, 2), (4, 8)) = (4,).

    The remaining parts of a nested tuple are merged into the outer one, as in CuTe:
    slice_(((None, 1), 0), ((3, 2), 5)) = (3,).
    """
    if crd is None:
        return value
    if not isinstance(crd, tuple):
        return ()
    if not isinstance(value, tuple) or len(crd) != len(value):
        raise LayoutError(f"coordinate {format_tuple(crd)} does not fit {format_tuple(value)}")
    return tuple(chain(*((part,) if c is None else slice_(c, part) for c, part in zip(crd, value, strict=True))))


def format_tuple(value: Any) -> str:
    """A tuple in CuTe's notation: (4,(2,2)), with _ for an open mode and (3) for a tuple of one."""
    if isinstance(value, tuple):
        return f"({','.join(map(format_tuple, value))})"
    return "_" if value is None else str(value)
