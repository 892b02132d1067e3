"""Axes by name instead of by position: which dimensions of different tensors run together.

A dimension is a tuple of axes, outermost first; a dimension of size one has none. Broadcasting makes axes one, a
reshape splits them, a transposition only orders them anew, so an index never needs arithmetic until code is printed.
"""

from __future__ import annotations

from math import prod

Dim = tuple[int, ...]
Dims = tuple[Dim, ...]


class Unsupported(Exception):
    """What was asked for cannot be said in these terms; the message is for people."""


class Axes:
    """The axes of one region, found equal or split as operators are added."""

    def __init__(self) -> None:
        self._size: list[int] = []
        self._unified: dict[int, int] = {}
        self._split_into: dict[int, Dim] = {}

    def copy(self) -> Axes:
        other = Axes()
        other._size, other._unified, other._split_into = list(self._size), dict(self._unified), dict(self._split_into)
        return other

    def new_dim(self, size: int) -> Dim:
        """A dimension of its own; of size one it needs no axis."""
        if size == 1:
            return ()
        self._size.append(size)
        return (len(self._size) - 1,)

    def new_dims(self, shape: tuple[int, ...]) -> Dims:
        return tuple(self.new_dim(size) for size in shape)

    def size(self, axis: int) -> int:
        return self._size[axis]

    def leaves(self, dim: Dim) -> Dim:
        """The unsplit axes that a dimension is by now."""
        found: list[int] = []
        for axis in dim:
            while axis in self._unified:
                axis = self._unified[axis]
            found += self.leaves(self._split_into[axis]) if axis in self._split_into else [axis]
        return tuple(found)

    def extent(self, dim: Dim) -> int:
        return prod(self._size[axis] for axis in self.leaves(dim))

    def unify(self, one: Dim, other: Dim) -> None:
        """Makes two dimensions of equal size the same.

        Raises:
            Misfit: their axes end at places of which neither divides the other.
        """
        left, right = list(self.leaves(one)), list(self.leaves(other))
        while left and right:
            a, b = left.pop(), right.pop()
            if a == b:
                continue
            if self._size[a] > self._size[b]:
                outer, a = self._split_axis(a, self._size[b])
                left.append(outer)
            elif self._size[b] > self._size[a]:
                outer, b = self._split_axis(b, self._size[a])
                right.append(outer)
            self._unified[b] = a
            left, right = list(self.leaves(tuple(left))), list(self.leaves(tuple(right)))
        if left or right:
            raise Unsupported("two dimensions of different size")

    def _split_axis(self, axis: int, inner: int) -> Dim:
        """Splits an axis into an outer part and an inner one of the size given."""
        if self._size[axis] % inner:
            raise Unsupported(f"an axis of {self._size[axis]} does not split into parts of {inner}")
        self._split_into[axis] = (*self.new_dim(self._size[axis] // inner), *self.new_dim(inner))
        return self._split_into[axis]

    def reshape(self, dims: Dims, shape: tuple[int, ...]) -> Dims:
        """The same values under another shape, as a reshape gives them.

        Raises:
            Misfit: the new shape cuts an axis where it does not divide.
        """
        rest = [axis for dim in dims for axis in self.leaves(dim)]
        grouped: list[Dim] = []
        for size in reversed(shape):
            dim: list[int] = []
            while (have := prod(self._size[a] for a in dim)) < size:
                axis = rest.pop()
                missing, odd = divmod(size, have)
                if odd:
                    raise Unsupported(f"a dimension of {size} cuts through an axis")
                if self._size[axis] > missing:
                    outer, axis = self._split_axis(axis, missing)
                    rest.append(outer)
                dim.insert(0, axis)
            if have != size:
                raise Unsupported(f"a dimension of {size} cuts through an axis")
            grouped.insert(0, tuple(dim))
        return tuple(grouped)

    def broadcast(self, *values: Dims) -> Dims:
        """The dimensions of a result whose operands are broadcast against each other."""
        rank = max(len(dims) for dims in values)
        result: list[Dim] = []
        for position in range(-rank, 0):
            dim: Dim = ()
            for dims in values:
                if len(dims) >= -position and dims[position]:
                    if dim:
                        self.unify(dim, dims[position])
                    dim = dims[position]
            result.append(dim)
        return tuple(result)
