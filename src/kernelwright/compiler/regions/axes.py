"""Symbolic axes, which identify the dimensions of different tensors that share an index.

A dimension is a tuple of axes, outermost first; a dimension of size 1 has none. Broadcasting unifies axes, a reshape
splits them, and a transposition reorders them, so that index arithmetic is needed only when code is printed.
"""

from __future__ import annotations

from math import prod

Dim = tuple[int, ...]
Dims = tuple[Dim, ...]


class Unsupported(Exception):
    """A region or backend does not support a construct; the message is shown to the user."""


class Axes:
    """The axes of one region, which are unified or split as operators are added."""

    def __init__(self) -> None:
        self._size: list[int] = []
        self._unified: dict[int, int] = {}
        self._split_into: dict[int, Dim] = {}

    def copy(self) -> Axes:
        """Return an independent copy."""
        other = Axes()
        other._size, other._unified, other._split_into = list(self._size), dict(self._unified), dict(self._split_into)
        return other

    def new_dim(self, size: int) -> Dim:
        """Create a dimension; of size 1 it has no axis."""
        if size == 1:
            return ()
        self._size.append(size)
        return (len(self._size) - 1,)

    def new_dims(self, shape: tuple[int, ...]) -> Dims:
        """Create the dimensions of a shape."""
        return tuple(self.new_dim(size) for size in shape)

    def size(self, axis: int) -> int:
        """Return the size of an axis."""
        return self._size[axis]

    def leaves(self, dim: Dim) -> Dim:
        """Return the axes of a dimension after all unifications and splits so far."""
        leaves: list[int] = []
        for axis in dim:
            while axis in self._unified:
                axis = self._unified[axis]
            leaves += self.leaves(self._split_into[axis]) if axis in self._split_into else [axis]
        return tuple(leaves)

    def extent(self, dim: Dim) -> int:
        """Return the size of a dimension."""
        return prod(self._size[axis] for axis in self.leaves(dim))

    def unify(self, one: Dim, other: Dim) -> None:
        """Unify two dimensions of equal size.

        Raises:
            Unsupported: the sizes differ, or an axis of one does not split at the axis boundaries of the other.
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
        """Split an axis into an outer axis and an inner one of size `inner`."""
        if self._size[axis] % inner:
            raise Unsupported(f"an axis of size {self._size[axis]} is not divisible by {inner}")
        self._split_into[axis] = (*self.new_dim(self._size[axis] // inner), *self.new_dim(inner))
        return self._split_into[axis]

    def reshape(self, dims: Dims, shape: tuple[int, ...]) -> Dims:
        """Return the dimensions of a reshape to `shape`.

        Raises:
            Unsupported: a dimension of the new shape does not divide an axis.
        """
        rest = [axis for dim in dims for axis in self.leaves(dim)]
        grouped: list[Dim] = []
        for size in reversed(shape):
            dim: list[int] = []
            while (extent := prod(self._size[a] for a in dim)) < size:
                axis = rest.pop()
                missing, remainder = divmod(size, extent)
                if remainder:
                    raise Unsupported(f"a dimension of size {size} does not divide an axis")
                if self._size[axis] > missing:
                    outer, axis = self._split_axis(axis, missing)
                    rest.append(outer)
                dim.insert(0, axis)
            if extent != size:
                raise Unsupported(f"a dimension of size {size} does not divide an axis")
            grouped.insert(0, tuple(dim))
        return tuple(grouped)

    def broadcast(self, *values: Dims) -> Dims:
        """Return the dimensions of a result whose operands are broadcast, with their axes unified."""
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
