"""Integer tuples: the values that CuTe's documentation and pycute's own tests give, and coordinates there and back."""

import sys
from pathlib import Path

import pytest
from hypothesis import given

from kernelwright.layouts import (
    Integer,
    Layout,
    LayoutError,
    ceil_div,
    compatible,
    congruent,
    crd2idx,
    depth,
    flatten,
    idx2crd,
    inner_product,
    is_int,
    is_tuple,
    prefix_product,
    product,
    rank,
    shape_div,
    slice_,
    suffix_product,
)

sys.path.insert(0, str(Path(__file__).parent))
from strategies import coordinates, dot, examples, flat, shapes


@pytest.mark.parametrize(("value", "wanted"), [(2, 2), ((3, 2), 6), (((2, 3), 4), 24), (product(((2, 3), 4)), 24)])
def test_product(value, wanted):
    assert product(value) == wanted


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [(2, 3, 6), ((1, 2), (3, 2), 7), (((2, 3), 4), ((2, 1), 2), 15), (((2, 3), 4), ((0, 1), 5), 23)],
)
def test_inner_product(a, b, wanted):
    assert inner_product(a, b) == wanted


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        ((3, 4), 6, (1, 2)),
        ((3, 4), 12, (1, 1)),
        ((3, 4), 36, (1, 1)),
        (((3, 4), 6), 36, ((1, 1), 2)),
        ((6, (3, 4)), 36, (1, (1, 2))),
        ((6, 2), 2, (3, 2)),
        ((6, 2), 3, (2, 2)),
        ((6, 2), 6, (1, 2)),
        ((6, 2), 12, (1, 1)),
        ((3, 6, 2, 8), 3, (1, 6, 2, 8)),
        ((3, 6, 2, 8), 6, (1, 3, 2, 8)),
        ((3, 6, 2, 8), 9, (1, 2, 2, 8)),
        ((3, 6, 2, 8), 72, (1, 1, 1, 4)),
        ((6, (3, 4)), (3, (3, 2)), (2, (1, 2))),
        (12, (2, 3), 2),
    ],
)
def test_shape_div(a, b, wanted):
    assert shape_div(a, b) == wanted


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        (2, 1),
        ((3, 2), (1, 3)),
        ((3, 2, 4), (1, 3, 6)),
        (((2, 3), 4), ((1, 2), 6)),
        (((2, 3), (2, 1, 2), (5, 2, 1)), ((1, 2), (6, 12, 12), (24, 120, 240))),
    ],
)
def test_prefix_product(shape, wanted):
    assert prefix_product(shape) == wanted


@pytest.mark.parametrize(
    ("shape", "wanted"), [(2, 1), ((2, 4), (4, 1)), ((2, (2, 2)), (4, (2, 1))), ((3, 4, 5), (20, 5, 1))]
)
def test_suffix_product(shape, wanted):
    assert suffix_product(shape) == wanted


@pytest.mark.parametrize(
    ("kind", "value", "integer"), [(int, 1, True), (float, 1.0, False), (str, "hi", False), (bool, False, False)]
)
def test_what_an_integer_is(kind, value, integer):
    assert issubclass(kind, Integer) == isinstance(value, Integer) == is_int(value) == integer


@pytest.mark.parametrize(
    ("value", "ranks", "depths", "leaves"),
    [
        (6, 1, 0, 6),
        ((2,), 1, 1, (2,)),
        ((4, 3), 2, 1, (4, 3)),
        ((3, (6, 2), 8), 3, 2, (3, 6, 2, 8)),
        ((42, (1, 3), 17), 3, 2, (42, 1, 3, 17)),
        ((((5,),),), 1, 3, (5,)),
    ],
)
def test_rank_depth_and_flatten(value, ranks, depths, leaves):
    assert (rank(value), depth(value), flatten(value)) == (ranks, depths, leaves)
    assert (rank(Layout(value)), depth(Layout(value)), flatten(Layout(value)).shape) == (ranks, depths, leaves)
    assert is_tuple(value) == (depths > 0)


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (24, 32, False),
        (24, (4, 6), True),
        ((4, 6), ((2, 2), 6), True),
        (((2, 2), 6), ((2, 2), (3, 2)), True),
        (24, ((2, 2), (3, 2)), True),
        (24, ((2, 3), 4), True),
        (((2, 3), 4), ((2, 2), (3, 2)), False),
        (((2, 2), (3, 2)), ((2, 3), 4), False),
        (24, (24,), True),
        ((24,), 24, False),
        ((24,), (4, 6), False),
        ((4, 6), 24, False),
    ],
)
def test_the_published_list_of_compatible_shapes(a, b, wanted):
    assert compatible(a, b) == wanted
    assert compatible(Layout(a), Layout(b)) == wanted


@pytest.mark.parametrize(
    ("a", "b", "wanted"), [(1, 2, True), (1, (1,), False), ((1, (2, 3)), (4, (5, 6)), True), ((1, 2), (1, 2, 3), False)]
)
def test_congruent_is_the_same_form(a, b, wanted):
    assert congruent(a, b) == wanted


@pytest.mark.parametrize("crd", [16, (1, 5), (1, (1, 2))])
def test_the_published_coordinate_in_each_of_its_forms(crd):
    assert idx2crd(crd, (3, (2, 3))) == (1, (1, 2))
    assert crd2idx(crd, (3, (2, 3)), (3, (12, 1))) == 17
    assert crd2idx(crd, (3, (2, 3))) == 16


def test_the_published_table_of_coordinates():
    natural = [(0, (0, 0)), (1, (0, 0)), (2, (0, 0)), (0, (1, 0)), (1, (1, 0)), (2, (1, 0))]
    assert [idx2crd(index, (3, (2, 3))) for index in range(6)] == natural
    assert idx2crd((0, 3), (3, (2, 3))) == idx2crd(9, (3, (2, 3))) == (0, (1, 1))
    assert idx2crd((2, 5), (3, (2, 3))) == idx2crd(17, (3, (2, 3))) == (2, (1, 2))


@examples(100)
@given(shapes(200))
def test_coordinates_go_there_and_back(shape):
    natural = coordinates(shape)
    assert [idx2crd(index, shape) for index in range(len(natural))] == natural
    assert [crd2idx(crd, shape) for crd in natural] == list(range(len(natural)))
    assert [idx2crd(crd, shape) for crd in natural] == natural


@examples(130)
@given(shapes())
def test_compact_strides_number_coordinates_one_by_one(shape):
    columns, rows = prefix_product(shape), suffix_product(shape)
    assert congruent(columns, shape) and congruent(rows, shape)
    assert [dot(crd, columns) for crd in coordinates(shape)] == list(range(product(shape)))
    assert sorted(dot(crd, rows) for crd in coordinates(shape)) == list(range(product(shape)))
    assert flat(rows)[-1] == 1


@examples(130)
@given(shapes())
def test_a_shape_is_compatible_with_all_that_refine_it(shape):
    assert compatible(shape, shape) and compatible(product(shape), shape)
    if isinstance(shape, tuple):
        assert compatible(tuple(map(product, shape)), shape)
        assert not compatible(shape, product(shape))


@pytest.mark.parametrize(
    ("crd", "value", "wanted"),
    [
        (None, (4, 8), (4, 8)),
        (3, 4, ()),
        ((None, 2), (4, 8), (4,)),
        ((None, None), (4, (2, 3)), (4, (2, 3))),
        (((None, 1), 0), ((3, 2), 5), (3,)),
        (((None, 1), (0, None)), ((3, 2), (5, (6, 7))), (3, (6, 7))),
    ],
)
def test_slices_of_a_tuple(crd, value, wanted):
    assert slice_(crd, value) == wanted


def test_ceil_div_rounds_up():
    assert [ceil_div(a, 4) for a in (0, 1, 4, 5, 8)] == [0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: inner_product((1, 2), (1, 2, 3)),
        lambda: inner_product((1, 2), 3),
        lambda: inner_product(3, (1, 2)),
        lambda: shape_div(6, 4),
        lambda: shape_div((6, 4), (2, 2, 2)),
        lambda: crd2idx((1, 2), 8),
        lambda: crd2idx((1, 2, 0), (4, 2)),
        lambda: crd2idx((1,), (4, 2)),
        lambda: crd2idx((1, (0, 0)), (4, 2)),
        lambda: idx2crd((1, 2), 8),
        lambda: idx2crd((1, 2, 0), (4, 2)),
        lambda: slice_((None, 2), 4),
        lambda: slice_((None, 2, 1), (4, 8)),
    ],
)
def test_forms_that_do_not_fit_are_refused(wrong):
    with pytest.raises(LayoutError):
        wrong()
