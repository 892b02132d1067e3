"""Axes: broadcasting joins them, a reshape splits them, and what cannot be said is refused."""

import pytest

from kernelwright.compiler.regions.axes import Axes, Unsupported


def sizes(axes, dims):
    return [[axes.size(axis) for axis in axes.leaves(dim)] for dim in dims]


def test_broadcasting_makes_axes_one():
    axes = Axes()
    matrix, row = axes.new_dims((3, 4)), axes.new_dims((1, 4))
    both = axes.broadcast(matrix, row)
    assert sizes(axes, both) == [[3], [4]]
    assert axes.leaves(matrix[1]) == axes.leaves(row[1])


def test_a_reshape_splits_and_merges():
    axes = Axes()
    (whole,) = axes.new_dims((24,))
    dims = axes.reshape((whole,), (2, 12))
    assert sizes(axes, dims) == [[2], [12]]
    again = axes.reshape(dims, (4, 6))
    assert sizes(axes, again) == [[2, 2], [6]]
    assert sizes(axes, axes.reshape(again, (24,))) == [[2, 2, 6]]


def test_dimensions_that_were_split_differently_meet_in_their_common_parts():
    axes = Axes()
    one, other = axes.reshape(axes.new_dims((24,)), (4, 6)), axes.reshape(axes.new_dims((24,)), (2, 12))
    axes.unify((*one[0], *one[1]), (*other[0], *other[1]))
    assert sizes(axes, [(*one[0], *one[1])]) == [[2, 2, 6]]
    assert axes.leaves((*one[0], *one[1])) == axes.leaves((*other[0], *other[1]))


@pytest.mark.parametrize("shape", [(4, 5), (5, 4)])
def test_a_cut_through_an_axis_is_refused(shape):
    axes = Axes()
    dims = axes.reshape(axes.new_dims((20,)), (2, 10))
    with pytest.raises(Unsupported):
        axes.unify((*dims[0], *dims[1]), tuple(a for d in axes.reshape(axes.new_dims((20,)), shape) for a in d))
        axes.reshape(dims, (5, 4))


def test_a_copy_is_not_touched():
    axes = Axes()
    (dim,) = axes.new_dims((6,))
    axes.copy().reshape((dim,), (2, 3))
    assert axes.leaves(dim) == dim
