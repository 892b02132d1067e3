"""`Layout` as a function from coordinates to offsets, held against the model and against CuTe's documentation."""

import copy
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.layouts import (
    Layout,
    LayoutError,
    append,
    as_layout,
    congruent,
    cosize,
    depth,
    flatten,
    group,
    is_layout,
    make_layout,
    prepend,
    replace,
    select,
    size,
    slice_and_offset,
    suffix_product,
    take,
)

sys.path.insert(0, str(Path(__file__).parent))
from strategies import beyond, coordinates, examples, flat, layouts, modes, offsets, table

ONE, TWO = Layout(3, 1), Layout(4, 3)
FOUR = Layout((2, 3, 5, 7))
H24 = Layout((2, (2, 2)), (4, (2, 1)))
TENSOR = Layout(((3, 2), (2, 5, 2)), ((4, 1), (2, 13, 100)))


@examples(130)
@given(layouts(300))
def test_every_kind_of_coordinate_gives_the_offset_of_the_model(layout):
    for index, (crd, offset) in enumerate(table(layout).items()):
        assert layout(index) == layout(crd) == offset
        assert flatten(layout)(*flat(crd)) == offset
        if len(layout) > 1:
            assert layout(*crd) == offset


@examples(130)
@given(layouts())
def test_a_coordinate_of_one_integer_for_each_mode(layout):
    sizes = tuple(size(mode) for mode in layout)
    assert [layout(*crd) for crd in coordinates(sizes)] == offsets(layout)


@examples(80)
@given(layouts())
def test_arrays_give_arrays(layout):
    wanted = offsets(layout)
    assert layout(np.arange(len(wanted))).tolist() == wanted
    columns = [np.array(column) for column in zip(*map(flat, coordinates(layout.shape)), strict=True)]
    assert (flatten(layout)(*columns) + np.zeros(len(wanted), int)).tolist() == wanted


@examples(200)
@given(layouts())
def test_offsets_size_and_cosize(layout):
    wanted = offsets(layout)
    assert layout.offsets() == wanted
    assert layout.size() == size(layout) == size(layout.shape) == len(wanted)
    assert layout.cosize() == cosize(layout) == max(wanted) + 1
    assert len(layout) == len(list(layout)) == (len(layout.shape) if isinstance(layout.shape, tuple) else 1)


@examples(80)
@given(layouts(), st.integers(0, 5000))
def test_an_index_beyond_the_size_goes_on_in_the_last_mode(layout, index):
    assert layout(index) == beyond(layout, index)


@st.composite
def cuts(draw, shape):
    """A coordinate of a shape with some of its modes left open."""
    kind = draw(st.sampled_from(("open", "index", "deeper") if isinstance(shape, tuple) else ("open", "index")))
    if kind == "deeper":
        return tuple(draw(cuts(part)) for part in shape)
    return None if kind == "open" else draw(st.integers(0, len(coordinates(shape)) - 1))


def lies_in(crd, cut, shape):
    if isinstance(cut, tuple):
        return all(map(lies_in, crd, cut, shape))
    return cut is None or crd == coordinates(shape)[cut]


@examples(130)
@given(layouts(60).flatmap(lambda layout: st.tuples(st.just(layout), cuts(layout.shape))))
def test_a_slice_and_its_offset_are_the_elements_of_the_open_modes(drawn):
    layout, cut = drawn
    wanted = [offset for crd, offset in table(layout).items() if lies_in(crd, cut, layout.shape)]
    if None in flat(cut):
        assert [layout.offset(cut) + more for more in offsets(layout(cut))] == wanted
        assert slice_and_offset(cut, layout) == (layout(cut), layout.offset(cut))
    else:
        assert [layout(cut)] == [layout.offset(cut)] == wanted


@examples(80)
@given(layouts())
def test_flatten_keeps_the_modes_and_the_function(layout):
    found = flatten(layout)
    assert depth(found) <= 1 and modes(found) == modes(layout) and offsets(found) == offsets(layout)


@examples(80)
@given(layouts(), st.data())
def test_modes_are_grouped_taken_selected_replaced_and_put_on_either_side(layout, data):
    layout = layout if isinstance(layout.shape, tuple) else make_layout(layout)
    parts = list(zip(layout.shape, layout.stride, strict=True))
    begin = data.draw(st.integers(0, len(parts) - 1))
    end = data.draw(st.integers(begin + 1, len(parts)))
    other = data.draw(layouts(20))

    def of(kept):
        return Layout(*map(tuple, zip(*kept, strict=True)))

    grouped = tuple(map(tuple, zip(*parts[begin:end], strict=True)))
    assert group(layout, begin, end) == of([*parts[:begin], grouped, *parts[end:]])
    assert offsets(group(layout, begin, end)) == offsets(layout)
    assert take(layout, begin, end) == of(parts[begin:end])
    assert select(layout, end - 1, begin) == of([parts[end - 1], parts[begin]])
    assert replace(layout, begin, other) == of([*parts[:begin], (other.shape, other.stride), *parts[begin + 1 :]])
    assert append(layout, other, other) == of([*parts, *[(other.shape, other.stride)] * 2])
    assert prepend(layout, other) == of([(other.shape, other.stride), *parts])
    assert make_layout(*layout) == make_layout(list(layout)) == layout
    assert [(mode.shape, mode.stride) for mode in layout] == parts


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (Layout(8), "8:1"),
        (Layout((2, 4)), "(2,4):(1,2)"),
        (Layout((2, 4), (12, 1)), "(2,4):(12,1)"),
        (Layout((2, 4), suffix_product((2, 4))), "(2,4):(4,1)"),
        (H24, "(2,(2,2)):(4,(2,1))"),
        (Layout(H24.shape), "(2,(2,2)):(1,(2,4))"),
        (Layout(H24.shape, suffix_product(H24.shape)), "(2,(2,2)):(4,(2,1))"),
        (Layout((4, (3, 6))), "(4,(3,6)):(1,(4,12))"),
        (Layout((4, (3, 6)))[0], "4:1"),
        (Layout((4, (3, 6)))[1], "(3,6):(4,12)"),
        (Layout((4, (3, 6)))[1][0], "3:4"),
        (Layout((4, (3, 6)))[1][1], "6:12"),
        (FOUR, "(2,3,5,7):(1,2,6,30)"),
        (select(FOUR, 1, 3), "(3,7):(2,30)"),
        (select(FOUR, 0, 1, 3), "(2,3,7):(1,2,30)"),
        (select(FOUR, 2), "(5):(6)"),
        (take(FOUR, 1, 3), "(3,5):(2,6)"),
        (take(FOUR, 1, 4), "(3,5,7):(2,6,30)"),
        (make_layout(ONE, TWO), "(3,4):(1,3)"),
        (make_layout(TWO, ONE), "(4,3):(3,1)"),
        (make_layout(make_layout(ONE, TWO), make_layout(TWO, ONE)), "((3,4),(4,3)):((1,3),(3,1))"),
        (make_layout(ONE), "(3):(1)"),
        (make_layout(make_layout(ONE)), "((3)):((1))"),
        (make_layout(ONE, make_layout(ONE), ONE), "(3,(3),3):(1,(1),1)"),
        (append(ONE, TWO), "(3,4):(1,3)"),
        (prepend(ONE, TWO), "(4,3):(3,1)"),
        (append(append(ONE, TWO), append(ONE, TWO)), "(3,4,(3,4)):(1,3,(1,3))"),
        (replace(append(append(ONE, TWO), append(ONE, TWO)), 2, TWO), "(3,4,4):(1,3,3)"),
        (group(FOUR, 0, 2), "((2,3),5,7):((1,2),6,30)"),
        (group(group(FOUR, 0, 2), 1, 3), "((2,3),(5,7)):((1,2),(6,30))"),
        (flatten(group(FOUR, 0, 2)), "(2,3,5,7):(1,2,6,30)"),
        (flatten(group(group(FOUR, 0, 2), 1, 3)), "(2,3,5,7):(1,2,6,30)"),
        (TENSOR, "((3,2),(2,5,2)):((4,1),(2,13,100))"),
        (TENSOR(2, None), "((2,5,2)):((2,13,100))"),
        (TENSOR(None, 5), "((3,2)):((4,1))"),
        (TENSOR((None, None), 5), "(3,2):(4,1)"),
        (TENSOR((None, 1), (0, None, 1)), "(3,5):(4,13)"),
        (TENSOR((2, None), (None, 3, None)), "(2,2,2):(1,2,100)"),
        (TENSOR(None), "((3,2),(2,5,2)):((4,1),(2,13,100))"),
    ],
    ids=str,
)
def test_the_published_layouts_as_cute_prints_them(made, wanted):
    assert str(made) == wanted


@pytest.mark.parametrize(
    ("layout", "rows"),
    [
        (Layout((2, 4)), [[0, 2, 4, 6], [1, 3, 5, 7]]),
        (Layout((2, 4), (12, 1)), [[0, 1, 2, 3], [12, 13, 14, 15]]),
        (Layout((2, (2, 2))), [[0, 2, 4, 6], [1, 3, 5, 7]]),
        (H24, [[0, 2, 1, 3], [4, 6, 5, 7]]),
        (Layout((4, 2), (1, 4)), [[0, 4], [1, 5], [2, 6], [3, 7]]),
        (Layout((4, 2), (2, 1)), [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (Layout(((2, 2), 2), ((4, 1), 2)), [[0, 2], [4, 6], [1, 3], [5, 7]]),
        (
            Layout((3, (2, 3)), (3, (12, 1))),
            [[0, 12, 1, 13, 2, 14], [3, 15, 4, 16, 5, 17], [6, 18, 7, 19, 8, 20]],
        ),
    ],
    ids=str,
)
def test_the_published_tables_of_matrices(layout, rows):
    assert [[layout(m, n) for n in range(size(layout[1]))] for m in range(size(layout[0]))] == rows


@pytest.mark.parametrize(
    ("layout", "wanted"),
    [
        (Layout((2, 4)), [0, 1, 2, 3, 4, 5, 6, 7]),
        (Layout((2, 4), (12, 1)), [0, 12, 1, 13, 2, 14, 3, 15]),
        (Layout((2, (2, 2))), [0, 1, 2, 3, 4, 5, 6, 7]),
        (H24, [0, 4, 2, 6, 1, 5, 3, 7]),
        (Layout(8, 2), [0, 2, 4, 6, 8, 10, 12, 14]),
        (Layout(((4, 2),), ((2, 1),)), [0, 2, 4, 6, 1, 3, 5, 7]),
        (Layout(((4, 2),), ((1, 4),)), [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
    ids=str,
)
def test_the_published_tables_of_vectors(layout, wanted):
    assert layout.offsets() == [layout(index) for index in range(8)] == wanted


def test_equal_layouts_have_equal_hashes_and_forms_count():
    assert Layout((4, 2)) == Layout((4, 2), (1, 4)) and hash(Layout((4, 2))) == hash(Layout((4, 2), (1, 4)))
    others = [Layout(8), Layout((8,)), Layout((4, 2), (2, 1)), Layout((4, (2,))), (4, 2), "(4,2):(1,4)"]
    assert all(Layout((4, 2)) != other for other in others)
    assert len({Layout(8), Layout((8,)), Layout(8, 1)}) == 2


@examples(80)
@given(layouts())
def test_layouts_are_copied_pickled_and_read_back_from_their_repr(layout):
    assert pickle.loads(pickle.dumps(layout)) == copy.deepcopy(layout) == copy.copy(layout) == layout
    assert eval(repr(layout), {"Layout": Layout}) == layout
    assert congruent(layout.shape, layout.stride)


def test_a_layout_is_never_changed():
    layout = Layout((4, 2))
    for change in (
        lambda: setattr(layout, "shape", 8),
        lambda: setattr(layout, "stride", (2, 1)),
        lambda: setattr(layout, "name", "tile"),
        lambda: delattr(layout, "shape"),
    ):
        with pytest.raises(AttributeError, match="immutable"):
            change()
    assert layout == Layout((4, 2), (1, 4))


def test_as_layout_and_is_layout():
    assert as_layout((4, 2)) == Layout((4, 2)) and as_layout(8) == Layout(8)
    assert as_layout(H24) is H24
    assert is_layout(H24) and not is_layout((4, 2)) and not is_layout(8)


@pytest.mark.parametrize("shape", [4.0, "4", True, None, [4, 2], (), (4, ()), (4, 2.0), (4, (True, 2)), np.float64(4)])
def test_what_is_no_shape_is_refused(shape):
    with pytest.raises(LayoutError):
        Layout(shape)
    with pytest.raises(LayoutError):
        as_layout(shape)


@pytest.mark.parametrize("stride", [1.0, "1", False, [1], (), (1, 2.0), (1, ())])
def test_what_is_no_stride_is_refused(stride):
    with pytest.raises(LayoutError):
        Layout((4, 2), stride)
    with pytest.raises(LayoutError):
        Layout(4, stride)


@pytest.mark.parametrize(
    ("shape", "stride", "message"),
    [
        (0, None, "shape 0: must be 1 or more"),
        ((4, (2, 0)), None, "shape 0: must be 1 or more"),
        (-4, None, "shape -4: must be 1 or more"),
        ((4, 2), (1, -4), "stride -4: must be 0 or more"),
        ((4, 2), (1, 4, 8), "are not congruent"),
        ((4, (2, 3)), (1, 4), "are not congruent"),
        ((4, 2), 1, "are not congruent"),
        (4, (1,), "are not congruent"),
    ],
)
def test_extents_strides_and_forms_that_cannot_be(shape, stride, message):
    with pytest.raises(LayoutError, match=message):
        Layout(shape, stride)


@pytest.mark.parametrize(
    ("shape", "stride"),
    [(2**63, None), ((2**32, 2**31), None), ((2**32, 2**31), (0, 0)), (2, 2**63), ((2, 3), (2**62, 2**61))],
)
def test_sizes_and_offsets_of_2_to_the_63_are_refused(shape, stride):
    with pytest.raises(LayoutError, match="2\\^63"):
        Layout(shape, stride)


def test_the_largest_size_and_offset():
    assert Layout(2**63 - 1).size() == 2**63 - 1
    assert Layout(2, 2**63 - 1)(1) == 2**63 - 1


@pytest.mark.parametrize(
    "coordinate", [(), (1,), (1, 2, 0), (1, (0, 0, 0)), ((0, 0), 1), (None, 1, 0), ((None, 0), 1), (None, (0,))]
)
def test_coordinates_of_another_form_are_refused(coordinate):
    with pytest.raises(LayoutError, match="does not fit"):
        H24(coordinate)


@pytest.mark.parametrize("coordinate", [-1, (-1, 0), (0, -1), (0, (0, -1))])
def test_negative_coordinates_are_refused(coordinate):
    with pytest.raises(LayoutError, match="-1 is negative"):
        H24(coordinate)


def test_a_negative_coordinate_beside_an_open_mode_is_refused():
    with pytest.raises(LayoutError, match="-1 is negative"):
        H24(-1, None)


@pytest.mark.parametrize("index", [np.int64(-1), np.array([0, -1])])
def test_negative_indices_of_numpy_are_refused(index):
    with pytest.raises(LayoutError, match="negative"):
        H24(index)


@pytest.mark.parametrize("coordinate", [1.5, "1", [0, 1]])
def test_coordinates_that_are_no_integers_are_refused(coordinate):
    with pytest.raises(LayoutError):
        Layout(4, 2)(coordinate)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: take(FOUR, 1, 1),
        lambda: group(FOUR, 1, 1),
        lambda: make_layout(),
        lambda: make_layout([]),
        lambda: select(FOUR),
    ],
)
def test_layouts_without_modes_are_refused(wrong):
    with pytest.raises(LayoutError):
        wrong()


@pytest.mark.parametrize(
    "wrong", [lambda: FOUR[4], lambda: ONE[1], lambda: select(FOUR, 4), lambda: replace(FOUR, 4, ONE)]
)
def test_modes_that_are_not_there_are_refused(wrong):
    with pytest.raises((IndexError, LayoutError)):
        wrong()


def test_layouts_put_together_stay_below_2_to_the_63():
    with pytest.raises(LayoutError, match="2\\^63"):
        make_layout(Layout(2**62), Layout(2**62))
