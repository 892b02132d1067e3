"""The algebra, element by element: each operation does what it says, or raises and there is no such layout."""

import sys
from collections import Counter
from itertools import pairwise
from math import inf, prod
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernelwright.layouts import (
    ComposedLayout,
    Layout,
    LayoutError,
    Swizzle,
    coalesce,
    compatible,
    complement,
    composition,
    cosize,
    crd2idx,
    depth,
    downcast,
    filter,
    left_inverse,
    logical_divide,
    logical_product,
    make_layout,
    max_common_layout,
    max_common_vector,
    nullspace,
    right_inverse,
    size,
)

sys.path.insert(0, str(Path(__file__).parent))
from strategies import (
    beyond,
    coordinates,
    could_be_composed,
    drawn,
    every,
    examples,
    fewest,
    flat,
    injective,
    interleaved,
    layout_of,
    layouts,
    leaves_gaps,
    lengths,
    modes,
    offsets,
    pairs,
    shape_of,
    sorted_modes,
    stride_of,
    tiled,
)


@examples(200)
@given(layouts())
def test_coalesce_gives_the_same_function_with_the_fewest_modes(layout):
    found = coalesce(layout)
    assert depth(found) <= 1 and offsets(found) == offsets(layout)
    assert sum(shape > 1 for shape, _ in modes(found)) == fewest(offsets(layout))
    assert found == Layout(1, 0) or all(shape > 1 for shape, _ in modes(found))
    assert isinstance(found.shape, int) or len(found) > 1


def coalesced_by(layout, profile):
    """The layout with `coalesce` where the profile has an integer."""
    if not isinstance(profile, tuple):
        return coalesce(layout)
    parts = [coalesced_by(mode, part) for mode, part in zip(layout, profile, strict=False)]
    return make_layout([*parts, *list(layout)[len(profile) :]])


@examples(100)
@given(layouts(300), st.data())
def test_coalesce_by_mode_keeps_the_modes_of_the_profile(layout, data):
    def profiles(shape):
        inner = [profiles(part) for part in shape] if isinstance(shape, tuple) else []
        deeper = st.integers(1, len(inner)).flatmap(lambda count: st.tuples(*inner[:count])) if inner else st.nothing()
        return st.just(1) | deeper

    profile = data.draw(profiles(layout.shape))
    found = coalesce(layout, profile)
    assert found == coalesced_by(layout, profile)
    assert offsets(found) == offsets(layout)
    if isinstance(profile, tuple):
        assert [offsets(mode) for mode in found] == [offsets(mode) for mode in layout]


@examples(200)
@given(layouts())
def test_filter_has_every_offset_once_where_zeros_repeat_them(layout):
    found = filter(layout)
    assert set(offsets(found)) == set(offsets(layout)) and coalesce(found) == found
    assert size(found) == prod(shape for shape, stride in modes(layout) if stride)
    assert found == Layout(1, 0) or all(shape > 1 and stride > 0 for shape, stride in modes(found))
    assert list(filter(make_layout(layout, layout), (1, 1))) == [found, found]


def composed(a, b):
    """How the composition ends, after a look at every element."""
    wanted = [beyond(a, offset) for offset in offsets(b)]
    try:
        found = composition(a, b)
    except LayoutError:
        assert not could_be_composed(a, b)
        return "no layout"
    assert compatible(b.shape, found.shape)
    assert [found(crd) for crd in coordinates(b.shape)] == offsets(found) == wanted
    return "a layout"


@lengths(800)
def test_a_composition_is_the_function_or_there_is_no_such_layout(count):
    ends = Counter()
    every(count, pairs(100))(lambda pair: ends.update([composed(*pair)]))
    assert min(ends["a layout"], ends["no layout"]) > count / 10, ends


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Layout(1, 0), Layout(1, 0)),
        (Layout(1, 0), Layout(1, 1)),
        (Layout(1, 1), Layout(1, 0)),
        (Layout(1, 1), Layout(1, 1)),
        (Layout(4), Layout(4)),
        (Layout(4, 2), Layout(4)),
        (Layout(4), Layout(4, 2)),
        (Layout(4, 0), Layout(4)),
        (Layout(4), Layout(4, 0)),
        (Layout(1, 0), Layout(4)),
        (Layout(4), Layout(1, 0)),
        (Layout(4, 2), Layout(2, 2)),
        (Layout(12), Layout((4, 3))),
        (Layout(12, 2), Layout((4, 3), (3, 1))),
        (Layout(12), Layout((2, 3), (2, 4))),
        (Layout((4, 3)), Layout(12)),
        (Layout((4, 3)), Layout(6, 2)),
        (Layout((4, 3)), Layout((6, 2), (2, 1))),
        (Layout((4, 3), (3, 1)), Layout((4, 3))),
        (Layout((4, 3), (3, 1)), Layout(12)),
        (Layout((4, 3), (3, 1)), Layout(6, 2)),
        (Layout((4, 3), (3, 1)), Layout((6, 2), (2, 1))),
        (Layout((8, 8)), Layout(((2, 2, 2), (2, 2, 2)), ((1, 16, 4), (8, 2, 32)))),
        (Layout((8, 8), (8, 1)), Layout(((2, 2, 2), (2, 2, 2)), ((1, 16, 4), (8, 2, 32)))),
        (Layout(((2, 2, 2), (2, 2, 2)), ((1, 16, 4), (8, 2, 32))), Layout(8, 4)),
        (Layout((4, 2), (1, 16)), Layout((4, 2), (2, 1))),
        (Layout((2, 2), (2, 1)), Layout((2, 2), (2, 1))),
        (Layout((4, 8, 2)), Layout((2, 2, 2), (2, 8, 1))),
        (Layout((4, 8, 2), (2, 8, 1)), Layout((2, 2, 2), (1, 8, 2))),
        (Layout((4, 8, 2), (2, 8, 1)), Layout((4, 2, 2), (2, 8, 1))),
        (Layout((4, 6, 8), (1, 4, 7)), Layout(6)),
        (Layout((4, 6, 8, 10), (2, 3, 5, 7)), Layout(6, 12)),
        (Layout((2, 1), (3, 7)), Layout(4, 1)),
        (Layout((6, 1), (1, 0)), Layout(12, 1)),
    ],
    ids=str,
)
def test_compositions_of_pycutes_tests_and_of_modes_of_size_1(a, b):
    assert composed(a, b) == "a layout"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Layout((6, 2), (1, 7)), Layout((3, 2), (2, 3))),
        (Layout((4, 6, 8, 10), (2, 3, 5, 7)), Layout(6, 16)),
        (Layout((2, 1), (3, 7)), Layout(5, 1)),
        (Layout((2, 3), (1, 7)), Layout(3, 1)),
        (Layout((4, 3), (1, 7)), Layout(3, 2)),
        (Layout((4, 3), (1, 7)), Layout((3, 3), (1, 1))),
    ],
    ids=str,
)
def test_compositions_that_no_layout_is(a, b):
    assert composed(a, b) == "no layout"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Layout((4, 6, 8, 10), (2, 3, 5, 7)), Layout(6, 12)),
        (Layout((3, 4), (5, 1)), Layout(2, 2)),
        (Layout((4, 6, 8, 10), (2, 3, 5, 7)), Layout(6, 8)),
        (Layout((2, 2), (1, 1)), Layout(6, 3)),
    ],
    ids=str,
)
def test_compositions_beside_the_divisibility_conditions_are_found(a, b):
    assert composed(a, b) == "a layout"


def composed_by(layout, tiler):
    """`composition` mode by mode."""
    if not isinstance(tiler, tuple):
        return composition(layout, tiler)
    parts = [composed_by(mode, part) for mode, part in zip(layout, tiler, strict=False)]
    return make_layout([*parts, *list(layout)[len(tiler) :]])


@examples(200)
@given(tiled())
def test_a_composition_with_a_tiler_is_made_mode_by_mode(drawn_pair):
    layout, tiler = drawn_pair
    try:
        wanted = composed_by(layout, tiler)
    except LayoutError:
        with pytest.raises(LayoutError):
            composition(layout, tiler)
    else:
        assert composition(layout, tiler) == wanted


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (coalesce(Layout((2, (1, 6)), (1, (6, 2)))), "12:1"),
        (coalesce(Layout((2, (1, 6)), (1, (6, 2))), (1, 1)), "(2,6):(1,2)"),
        (composition(Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1))), "((2,2),3):((24,2),8)"),
        (composition(Layout((6, 2), (8, 2)), Layout(4, 3)), "(2,2):(24,2)"),
        (composition(Layout((6, 2), (8, 2)), Layout(3, 1)), "3:8"),
        (composition(Layout(20, 2), Layout((5, 4), (4, 1))), "(5,4):(8,2)"),
        (composition(Layout(20, 2), Layout(5, 4)), "5:8"),
        (composition(Layout(20, 2), Layout(4, 1)), "4:2"),
        (composition(Layout((10, 2), (16, 4)), Layout((5, 4), (1, 5))), "(5,(2,2)):(16,(80,4))"),
        (composition(Layout((12, (4, 8)), (59, (13, 1))), (Layout(3, 4), Layout(8, 2))), "(3,(2,4)):(236,(26,1))"),
        (composition(Layout((12, (4, 8)), (59, (13, 1))), (3, 8)), "(3,(4,2)):(59,(13,1))"),
        (composition(Layout((3, 6, 2, 8), (1, 10, 100, 1000)), Layout(16, 9)), "(2,2,4):(30,100,1000)"),
        (complement(Layout(4, 1), 24), "6:4"),
        (complement(Layout(6, 4), 24), "4:1"),
        (complement(Layout((4, 6), (1, 4)), 24), "1:0"),
        (complement(Layout(4, 2), 24), "(2,3):(1,8)"),
        (complement(Layout((2, 4), (1, 6)), 24), "3:2"),
        (complement(Layout((2, 2), (1, 6)), 24), "(3,2):(2,12)"),
        (complement(Layout(4, 1), (4, 7)), "7:4"),
        (complement(Layout(64), (32, 4, 4)), "8:64"),
        (complement(Layout((2, 2), (4, 1)), 24), "(2,3):(2,8)"),
    ],
    ids=str,
)
def test_the_published_examples_as_cute_prints_them(found, wanted):
    assert str(found) == wanted


@pytest.mark.parametrize(
    ("shape", "stride", "divisor", "wanted"),
    [
        ((6, 2), (10, 1), 2, ((3, 2), (20, 1))),
        ((6, 2), (10, 1), 3, ((2, 2), (30, 1))),
        ((6, 2), (10, 1), 6, ((1, 2), (60, 1))),
        ((6, 2), (10, 1), 12, ((1, 1), (60, 2))),
        ((3, 6, 2, 8), (1, 10, 100, 1000), 3, ((1, 6, 2, 8), (3, 10, 100, 1000))),
        ((3, 6, 2, 8), (1, 10, 100, 1000), 6, ((1, 3, 2, 8), (6, 20, 100, 1000))),
        ((3, 6, 2, 8), (1, 10, 100, 1000), 9, ((1, 2, 2, 8), (9, 30, 100, 1000))),
        ((3, 6, 2, 8), (1, 10, 100, 1000), 72, ((1, 1, 1, 4), (72, 240, 400, 2000))),
    ],
)
def test_the_published_list_of_shapes_divided(shape, stride, divisor, wanted):
    assert composition(Layout(shape, stride), Layout(prod(shape) // divisor, divisor)) == coalesce(Layout(*wanted))


@pytest.mark.parametrize(
    ("shape", "stride", "kept", "wanted"),
    [
        ((6, 2), (10, 1), 2, (2, 1)),
        ((6, 2), (10, 1), 3, (3, 1)),
        ((6, 2), (10, 1), 6, (6, 1)),
        ((6, 2), (10, 1), 12, (6, 2)),
        ((3, 6, 2, 8), (1, 10, 100, 1000), 6, (3, 2, 1, 1)),
        ((3, 6, 2, 8), (1, 10, 100, 1000), 9, (3, 3, 1, 1)),
        ((1, 2, 2, 8), (1, 10, 100, 1000), 2, (1, 2, 1, 1)),
        ((1, 2, 2, 8), (1, 10, 100, 1000), 16, (1, 2, 2, 4)),
    ],
)
def test_the_published_list_of_shapes_cut_off(shape, stride, kept, wanted):
    assert composition(Layout(shape, stride), Layout(kept)) == coalesce(Layout(wanted, stride))


def test_the_published_thread_value_layout_of_a_row_major_tile():
    tensor, threads_and_values = Layout((4, 8), (8, 1)), Layout(((2, 4), (2, 2)), ((8, 1), (4, 16)))
    assert composed(tensor, threads_and_values) == "a layout"
    found = composition(tensor, threads_and_values)
    assert [size(mode) for mode in found] == [8, 4] and size(found(3, None)) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: composition(Layout((4, 2)), (2, 2, 2)),
        lambda: composition(Layout(8), (2, 2)),
        lambda: composition(Layout(8), 0),
        lambda: composition(Layout(8), "4"),
        lambda: composition(Layout(8), 2.0),
        lambda: composition(Layout(8), Swizzle(1, 0, 1)),
        lambda: composition(Swizzle(1, 0, 1), Swizzle(1, 0, 1)),
        lambda: composition(Layout(8), ComposedLayout(Swizzle(1, 0, 1), 0, Layout(8))),
        lambda: coalesce(Layout(8), (1, 1)),
        lambda: filter(Layout(8), (1, 1)),
    ],
)
def test_tilers_and_operands_that_do_not_fit_are_refused(wrong):
    with pytest.raises(LayoutError):
        wrong()


def test_a_tiler_after_a_swizzle_which_has_no_modes_is_refused():
    with pytest.raises(LayoutError):
        composition(Swizzle(1, 0, 1), (2, 2))


def test_a_refused_composition_names_the_coordinate_that_shows_it():
    with pytest.raises(LayoutError, match=r"\(6,2\):\(1,7\) o \(3,2\):\(2,3\) .*; at \(2,1\)"):
        composition(Layout((6, 2), (1, 7)), Layout((3, 2), (2, 3)))


COTARGETS = st.integers(1, 400)


def complemented(layout, cotarget):
    """How the complement ends, after a look at every pair of elements."""
    if interleaved(layout):
        with pytest.raises(LayoutError, match="overlap or interleave"):
            complement(layout, cotarget)
        return "interleaved"
    try:
        rest = offsets(complement(layout, cotarget))
    except LayoutError as fault:
        assert "does not fill" in fault.message
        assert leaves_gaps(layout), "only gaps that are no multiples can be missed"
        return "misses"
    assert rest == sorted(set(rest)) and rest[0] == 0
    sums = [first + second for first in set(offsets(layout)) for second in rest]
    assert len(set(sums)) == len(sums)
    return "complement"


@lengths(400)
def test_a_complement_repeats_the_layout_without_overlap_unless_its_modes_interleave(count):
    ends = Counter()
    every(count, st.tuples(layouts(200), COTARGETS))(lambda drawn_pair: ends.update([complemented(*drawn_pair)]))
    assert min(ends["complement"], ends["interleaved"]) > count / 30, ends


@examples(200)
@given(layouts(200), COTARGETS)
def test_a_layout_and_its_complement_reach_the_cotarget(layout, cotarget):
    try:
        assert cosize(make_layout(layout, complement(layout, cotarget))) >= cotarget
    except LayoutError:
        assert interleaved(layout) or leaves_gaps(layout)


def test_a_complement_that_would_not_reach_is_refused():
    with pytest.raises(LayoutError, match="ends below 5, not 6"):
        complement(Layout((2, 2), (1, 3)), 6)
    assert str(complement(Layout((2, 2), (1, 3)), 5)) == "1:0"


@examples(130)
@given(layouts(200), COTARGETS)
def test_a_complement_covers_everything_where_strides_are_multiples_of_what_is_before_them(layout, cotarget):
    covered = 1
    for stride, shape in sorted_modes(layout):
        if stride % covered:
            return
        covered = stride * shape
    found = complement(layout, cotarget)
    reached = {first + second for first in set(offsets(layout)) for second in offsets(found)}
    assert reached == set(range(-(-cotarget // covered) * covered))
    assert complement(make_layout(layout, found)) == Layout(1, 0)


@pytest.mark.parametrize(
    ("layout", "cotarget"),
    [
        *((Layout(1, stride), cotarget) for stride in (0, 1, 2) for cotarget in (1, 2, 5, 8)),
        *((Layout(4, stride), cotarget) for stride in (0, 1, 2, 4) for cotarget in (1, 2, 8, 16, 17, 19)),
        (Layout((2, 4), (1, 2)), 8),
        (Layout((2, 3), (1, 2)), 6),
        (Layout((2, 4), (1, 4)), 14),
        (Layout((2, 4), (1, 6)), 20),
        (Layout((2, 4, 8), (8, 1, 64)), 460),
        (Layout((2, 4, 8), (8, 1, 0)), 460),
        (Layout(((2, 2), (2, 2)), ((1, 4), (8, 32))), 46),
        (Layout(((2, 2), (2, 2)), ((1, 32), (8, 4))), 46),
        (Layout((2, (3, 4)), (3, (1, 6))), 24),
        (Layout((4, 6), (1, 6)), 34),
        (Layout((4, 10), (1, 10)), 94),
        (Layout((4, 2), (1, 10)), 14),
        (Layout((4, 2), (1, 16)), 20),
        (Layout((3, 6), (1, 9)), 48),
        (Layout((3, 6), (1, 10)), 53),
    ],
    ids=str,
)
def test_complements_of_the_tests_of_cute(layout, cotarget):
    assert complemented(layout, cotarget) == "complement"


@pytest.mark.parametrize(
    "layout", [Layout(((2, 2), (2, 2)), ((1, 8), (8, 4))), Layout((2, 2), (2, 3)), Layout((4, 3), (1, 2))], ids=str
)
def test_complements_that_cute_refuses(layout):
    assert complemented(layout, 19) == "interleaved"


@pytest.mark.parametrize("cotarget", [9.5, "24", (4, 2.5)])
def test_cotargets_that_are_no_shapes_are_refused(cotarget):
    with pytest.raises(LayoutError):
        complement(Layout(4), cotarget)


def inverted(layout):
    """Whether there is a left inverse, after a look at every element of the right and the left one."""
    right = right_inverse(layout)
    assert [beyond(layout, index) for index in offsets(right)] == list(range(size(right)))
    assert max(offsets(right)) < size(layout)
    try:
        left = left_inverse(layout)
    except LayoutError:
        ordered = [(1, 1), *sorted_modes(layout)]
        gaps = any(after % (stride * shape) for (stride, shape), (after, _) in pairwise(ordered))
        assert gaps or not injective(layout)
        return "none"
    assert [beyond(left, offset) for offset in offsets(layout)] == list(range(size(layout)))
    return "left inverse"


@lengths(400)
def test_inverses_invert_every_element(count):
    ends = Counter()
    every(count, layouts(300))(lambda layout: ends.update([inverted(layout)]))
    assert min(ends["left inverse"], ends["none"]) > count / 10, ends


@pytest.mark.parametrize(
    "layout",
    [
        Layout(1, 0),
        Layout((1, 1), (0, 0)),
        Layout(1, 1),
        Layout(4, 1),
        Layout(4, 2),
        Layout((8, 4), (1, 8)),
        Layout((8, 4), (4, 1)),
        Layout((2, 4, 6), (1, 2, 8)),
        Layout((2, 4, 6), (4, 1, 8)),
        Layout((4, 2), (1, 16)),
    ],
    ids=str,
)
def test_inverses_of_pycutes_tests(layout):
    assert inverted(layout) == "left inverse"


@pytest.mark.parametrize(
    ("layout", "right"),
    [
        (Layout((3, 7), (0, 0)), "1:0"),
        (Layout(4, 0), "1:0"),
        (Layout((2, 4), (0, 2)), "1:0"),
        (Layout((8, 4), (4, 1)), "(4,8):(8,1)"),
        (Layout(4, 2), "1:0"),
        (Layout((2, 2, 2), (2, 1, 1)), "(2,2):(2,1)"),
    ],
    ids=str,
)
def test_right_inverses(layout, right):
    assert str(right_inverse(layout)) == right


@examples(200)
@given(layouts())
@example(Layout((2, 2, 2), (2, 1, 1)))
def test_a_right_inverse_ends_only_where_no_mode_goes_on(layout):
    assert all(stride != size(right_inverse(layout)) for stride, _ in sorted_modes(layout))


@pytest.mark.parametrize(
    ("layout", "left"),
    [(Layout(4, 2), "(2,4):(0,1)"), (Layout((8, 4), (4, 1)), "(4,8):(8,1)"), (Layout((4, 2), (1, 6)), "(6,2):(1,4)")],
    ids=str,
)
def test_left_inverses_divide_by_the_strides(layout, left):
    assert str(left_inverse(layout)) == left


@examples(200)
@given(layouts())
def test_the_nullspace_is_every_coordinate_that_does_not_matter(layout):
    found = nullspace(layout)
    assert [layout(at) for at in offsets(found)] == [0] * size(found)
    assert injective(found) and max(offsets(found)) < size(layout)
    assert size(found) == size(layout) // size(filter(layout))


def alike_of(choices):
    """Two layouts of the same shape."""
    shape = shape_of(choices, 300)
    return Layout(shape, stride_of(shape, choices)), Layout(shape, stride_of(shape, choices))


def same_size_of(choices):
    """Two layouts of the same size, the second one cut up in another way."""
    shape = shape_of(choices, 300)
    leaves = choices.shuffled(flat(shape))
    return Layout(shape, stride_of(shape, choices)), Layout(tuple(leaves), stride_of(tuple(leaves), choices))


@lengths(300)
def test_the_max_common_layout_points_to_what_lies_in_both_in_the_same_order(count):
    lengths_found = Counter()

    def holds(drawn_pair):
        a, b = drawn_pair
        found = max_common_layout(a, b)
        assert [beyond(a, at) for at in offsets(found)] == [beyond(b, at) for at in offsets(found)]
        assert [beyond(b, at) for at in offsets(found)] == list(range(size(found)))
        assert max_common_vector(a, b) == size(found) and max(offsets(found)) < size(a)
        if injective(a) and injective(b):
            first, second = ({offset: at for at, offset in enumerate(offsets(one))} for one in (a, b))
            common = next(at for at in range(size(a) + 1) if at not in first or first[at] != second.get(at))
            assert size(found) == common
        lengths_found[size(found) > 1] += 1

    every(count, drawn(alike_of) | drawn(same_size_of))(holds)
    assert min(lengths_found.values()) > count / 20


def test_no_more_elements_are_common_than_the_smaller_layout_has():
    assert max_common_vector(Layout(4), Layout(8)) == 4
    assert max_common_vector(Layout(8), Layout(4)) == 4


@examples(50)
@given(drawn(layout_of, 60))
def test_the_model_knows_the_offsets_of_a_layout_and_those_of_none(layout):
    values = offsets(layout)
    assert fewest(values) < inf
    if len(values) > 2:
        assert fewest([*values[:-1], values[-1] + 1]) == inf


@pytest.mark.timeout(5)
def test_common_layouts_of_millions_of_elements_take_no_time():
    assert max_common_vector(Layout((7, 9000), (2, 1)), Layout(63000)) == 1
    assert max_common_layout(Layout(10**9, 2), Layout(10**9)) == Layout(1, 0)
    assert max_common_vector(Layout((2**20, 2**20)), Layout((2**20, 2**20))) == 2**40


def test_results_stay_below_2_to_the_63():
    for wrong in (
        lambda: composition(Layout(4, 2**61), Layout(16)),
        lambda: downcast(Layout(2**60), 2**10),
        lambda: logical_product(Layout(2**40), Layout(2**40)),
    ):
        with pytest.raises(LayoutError, match="2\\^63"):
            wrong()


def test_a_division_that_would_lose_elements_is_refused():
    with pytest.raises(LayoutError, match="gaps"):
        logical_divide(Layout(5), Layout((2, 2), (1, 3)))


def test_strides_that_do_not_divide_are_the_reason_and_not_repetition():
    with pytest.raises(LayoutError, match="no multiple of the stride 3"):
        left_inverse(Layout((2, 2), (3, 4)))
    with pytest.raises(LayoutError, match="one offset"):
        left_inverse(Layout((2, 2), (1, 1)))


@pytest.mark.parametrize("operation", [right_inverse, left_inverse, nullspace, lambda x: max_common_layout(x, x)])
def test_a_swizzled_layout_is_refused_by_name(operation):
    with pytest.raises(LayoutError, match="swizzle"):
        operation(ComposedLayout(Swizzle(1, 0, 1), 0, Layout(8)))


def test_shapes_stand_for_their_compact_layouts():
    assert coalesce((4, 2)) == Layout(8)
    assert right_inverse(8) == Layout(8)
    assert cosize(4) == 4
    assert make_layout((4, 2), (2, 1)) == Layout((4, 2), (2, 1))
    assert make_layout((4, 2)) == Layout((4, 2))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: size(None),
        lambda: crd2idx((1, 2), (3, 4), (1,)),
        lambda: make_layout(Layout(2), "x"),
        lambda: cosize("4"),
    ],
)
def test_what_is_no_layout_is_refused(wrong):
    with pytest.raises(LayoutError):
        wrong()


def test_narrow_arrays_do_not_wrap_around():
    import numpy

    assert Layout(8, 64)(numpy.arange(8, dtype="uint8")).tolist() == [64 * at for at in range(8)]
