"""The same memory in wider and narrower elements: the same bits, and every group of elements in one place."""

import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.layouts import ComposedLayout, Layout, LayoutError, Swizzle, congruent, downcast, recast, size, upcast

sys.path.insert(0, str(Path(__file__).parent))
from strategies import SWIZZLES, coordinates, dot, every, examples, flat, layouts, modes, offsets

TILE = ComposedLayout(Swizzle(3, 4, 3), 16, Layout((8, 128), (128, 1)))
COUNTS = st.sampled_from((2, 4, 8, 3, 6, 1))


def whole(layout, count):
    """How many elements of each mode a wide one takes, None where some would straddle."""
    taken = []
    for shape, stride in modes(layout):
        fit = 1 if stride % count == 0 else count // stride
        if stride % count and (count % stride or (shape % fit and fit % shape)):
            return None
        taken.append(min(fit, shape))
    within = sum((take - 1) * stride for take, (_, stride) in zip(taken, modes(layout), strict=True))
    return taken if within < count else None


def widened(layout, count):
    """How the upcast ends, after a look at the group of every element."""
    taken = whole(layout, count)
    if taken is None:
        with pytest.raises(LayoutError, match="upcast"):
            upcast(layout, count)
        return "straddles"
    found = upcast(layout, count)
    assert congruent(found.shape, layout.shape)
    for crd, offset in zip(map(flat, coordinates(layout.shape)), offsets(layout), strict=True):
        group = tuple(at // take for at, take in zip(crd, taken, strict=True))
        assert dot(group, tuple(flat(found.stride))) == offset // count
    assert flat(found.shape) == [shape // take for (shape, _), take in zip(modes(layout), taken, strict=True)]
    return "whole"


def test_an_upcast_puts_every_group_of_elements_in_one_wide_one():
    ends = Counter()
    every(300, st.tuples(layouts(120), COUNTS))(lambda pair: ends.update([widened(*pair)]))
    assert min(ends["whole"], ends["straddles"]) > 50, ends


@examples(130)
@given(layouts(100), COUNTS)
def test_a_downcast_numbers_the_parts_of_every_element(layout, count):
    if count > 1 and [stride for _, stride in modes(layout)].count(1) != 1:
        with pytest.raises(LayoutError, match="modes of stride 1"):
            downcast(layout, count)
        return
    found = downcast(layout, count)
    for crd, offset in zip(map(flat, coordinates(layout.shape)), offsets(layout), strict=True):
        for part in range(count):
            fine = [
                at * count + part if stride == 1 else at for at, stride in zip(crd, flat(layout.stride), strict=True)
            ]
            assert count == 1 or dot(tuple(fine), tuple(flat(found.stride))) == offset * count + part
    assert size(found) == size(layout) * count and upcast(found, count) == layout


def recovered(layout, old, new):
    """How the recast ends, after a look at every bit."""
    try:
        found = recast(layout, old, new)
    except LayoutError:
        return "straddles"

    def bits(one, width):
        return {offset * width + bit for offset in offsets(one) for bit in range(width)}

    assert bits(layout, old) <= bits(found, new)
    if size(found) * new > size(layout) * old:
        return "padded"
    assert bits(layout, old) == bits(found, new)
    return "the same bits"


def test_a_recast_covers_the_same_bits_and_no_more_but_for_the_rest_of_an_element():
    widths, ends = st.sampled_from((8, 16, 32, 4, 24, 64)), Counter()
    every(300, st.tuples(layouts(100), widths, widths))(lambda case: ends.update([recovered(*case)]))
    assert min(ends["the same bits"], ends["straddles"]) > 30 and ends["padded"], ends


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (upcast(Layout((4, 8), (8, 1)), 2), "(4,4):(4,1)"),
        (downcast(Layout((4, 4), (4, 1)), 2), "(4,8):(8,1)"),
        (recast(Layout((4, 8), (8, 1)), 16, 32), "(4,4):(4,1)"),
        (recast(Layout((4, 4), (4, 1)), 32, 16), "(4,8):(8,1)"),
        (recast(Layout((4, 8), (8, 1)), 16, 16), "(4,8):(8,1)"),
        (recast(Layout(8), 24, 16), "12:1"),
        (upcast(Layout(8, 2), 4), "4:1"),
        (upcast(Layout(8, 0), 4), "8:0"),
        (upcast(Layout((2, 2), (1, 2)), 4), "(1,1):(1,1)"),
        (upcast(Swizzle(3, 4, 3), 2), "Sw<3,3,3>"),
        (downcast(Swizzle(3, 3, 3), 2), "Sw<3,4,3>"),
        (recast(Swizzle(3, 4, 3), 8, 16), "Sw<3,3,3>"),
        (
            recast(ComposedLayout(Swizzle(3, 4, 3), 16, Layout((8, 128), (128, 1))), 8, 16),
            "Sw<3,3,3> o 8 o (8,64):(64,1)",
        ),
    ],
    ids=str,
)
def test_recasts(found, wanted):
    assert str(found) == wanted


@examples(60)
@given(SWIZZLES, st.sampled_from((1, 2, 4, 8)))
def test_a_recast_swizzle_turns_the_same_bits_of_memory(swizzle, count):
    assert upcast(downcast(swizzle, count), count) == swizzle
    narrow = downcast(swizzle, count)
    assert all(narrow(at) == swizzle(at // count) * count + at % count for at in range(1024))
    if count <= 1 << swizzle.base:
        assert all(upcast(swizzle, count)(at // count) == swizzle(at) // count for at in range(1024))
    else:
        with pytest.raises(LayoutError, match="inside an element"):
            upcast(swizzle, count)


@examples(130)
@given(SWIZZLES, st.integers(0, 64), layouts(100), st.sampled_from((1, 2, 4)))
def test_a_recast_composed_layout_moves_its_beginning_too(swizzle, begin, layout, count):
    composed = ComposedLayout(swizzle, begin, layout)
    taken = whole(layout, count)
    if taken is None or begin % count or count > 1 << swizzle.base:
        with pytest.raises(LayoutError, match="upcast"):
            upcast(composed, count)
        return
    found = upcast(composed, count)
    assert (found.swizzle, found.base_offset, found.layout) == (
        upcast(swizzle, count),
        begin // count,
        upcast(layout, count),
    )
    assert set(found.offsets()) == {offset // count for offset in composed.offsets()}


@pytest.mark.parametrize("cast", [upcast, downcast])
@pytest.mark.parametrize("count", [0, -2, 2.0, "2", True, None])
def test_what_is_no_number_of_elements_is_refused(cast, count):
    with pytest.raises(LayoutError, match="not a positive number of elements"):
        cast(Layout(8), count)
    with pytest.raises(LayoutError, match="not a positive number of elements"):
        recast(Layout(8), count, 8)
    with pytest.raises(LayoutError, match="not a positive number of elements"):
        recast(Layout(8), 8, count)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: upcast(Layout(9), 2),
        lambda: upcast(Layout(4, 3), 2),
        lambda: upcast(Layout((2, 2), (1, 1)), 2),
        lambda: downcast(Layout(4, 2), 2),
        lambda: downcast(Layout((2, 2), (1, 1)), 2),
        lambda: upcast(Swizzle(1, 4, 1), 3),
        lambda: downcast(Swizzle(1, 4, 1), 3),
        lambda: upcast((4, 8), 2),
        lambda: downcast("8:1", 2),
    ],
)
def test_elements_that_would_straddle_are_refused(wrong):
    with pytest.raises(LayoutError):
        wrong()
