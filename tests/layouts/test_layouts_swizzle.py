"""Swizzles permute offsets, and composed layouts are swizzle(begin + layout(c)) under every operation."""

import copy
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.layouts import (
    ComposedLayout,
    Layout,
    LayoutError,
    Swizzle,
    blocked_product,
    coalesce,
    composition,
    cosize,
    logical_divide,
    logical_product,
    raked_product,
    size,
    slice_and_offset,
)

sys.path.insert(0, str(Path(__file__).parent))
from strategies import SWIZZLES, coordinates, examples, layouts, offsets, pairs

POINTS = 0, 1, 2, 7, 8, 9, 15, 16, 63, 64, 255, 256


@st.composite
def composed_layouts(draw, most=200):
    return ComposedLayout(draw(SWIZZLES), draw(st.integers(0, 70)), draw(layouts(most)))


@pytest.mark.parametrize(
    ("swizzle", "wanted"),
    [
        (Swizzle(0, 4, 0), list(POINTS)),
        (Swizzle(2, 3, -3), [0, 1, 2, 7, 72, 73, 79, 144, 255, 64, 63, 256]),
        (Swizzle(1, 0, 1), [0, 1, 3, 6, 8, 9, 14, 16, 62, 64, 254, 256]),
        (Swizzle(3, 2, 3), [0, 1, 2, 7, 8, 9, 15, 16, 59, 72, 227, 256]),
        (Swizzle(2, 1, -2), [0, 1, 10, 31, 8, 9, 23, 16, 39, 64, 231, 256]),
    ],
    ids=str,
)
def test_the_patterns_of_pycutes_tests(swizzle, wanted):
    assert [swizzle(at) for at in POINTS] == wanted


@examples(80)
@given(SWIZZLES)
def test_a_swizzle_is_a_permutation_and_its_own_inverse(swizzle):
    domain = range(1 << swizzle.base + swizzle.bits + abs(swizzle.shift))
    found = [swizzle(at) for at in domain]
    assert sorted(found) == list(domain) and [swizzle(at) for at in found] == list(domain)
    assert swizzle(np.array(domain)).tolist() == found


@examples(80)
@given(SWIZZLES, st.integers(0, 2**40))
def test_a_swizzle_turns_each_bit_by_the_one_its_shift_away(swizzle, offset):
    wanted = offset
    for bit in range(swizzle.base, swizzle.base + swizzle.bits):
        turned, turning = (bit, bit + swizzle.shift) if swizzle.shift >= 0 else (bit - swizzle.shift, bit)
        wanted ^= (offset >> turning & 1) << turned
    assert swizzle(offset) == wanted


@pytest.mark.parametrize(
    "fields",
    [(-1, 0, 1), (1, -1, 1), (2, 0, 1), (2, 0, -1), (1, 0, 0), (1.0, 0, 1), (1, "0", 1), (True, 0, 1), (3, 40, 30)],
)
def test_swizzles_that_cannot_be_are_refused(fields):
    with pytest.raises(LayoutError):
        Swizzle(*fields)


def test_swizzles_and_composed_layouts_are_values():
    swizzle = Swizzle(3, 4, 3)
    composed = ComposedLayout(swizzle, 16, Layout((8, 128), (128, 1)))
    for value in (swizzle, composed):
        assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value
        assert hash(copy.deepcopy(value)) == hash(value)
        assert eval(repr(value), {"Layout": Layout, "Swizzle": Swizzle, "ComposedLayout": ComposedLayout}) == value
    for name in ("bits", "name"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(swizzle, name, 1)
    assert str(swizzle) == "Sw<3,4,3>" and str(composed) == "Sw<3,4,3> o 16 o (8,128):(128,1)"


@examples(100)
@given(composed_layouts(100))
def test_a_composed_layout_is_the_swizzle_after_the_offset_after_the_layout(composed):
    wanted = [composed.swizzle(composed.base_offset + offset) for offset in offsets(composed.layout)]
    assert composed.offsets() == [composed(index) for index in range(size(composed))] == wanted
    assert [composed(crd) for crd in coordinates(composed.shape)] == wanted
    assert composed(np.arange(len(wanted))).tolist() == wanted
    assert composed.size() == size(composed) == len(wanted) and len(composed) == len(composed.layout)
    assert [mode.offsets()[0] for mode in composed] == [composed.swizzle(composed.base_offset)] * len(composed)


@examples(100)
@given(composed_layouts(60), st.data())
def test_a_slice_of_a_composed_layout_begins_at_the_offset_of_the_closed_modes(composed, data):
    if len(composed) == 1:
        assert composed(None).offsets() == composed.offsets()
        return
    sizes = [size(mode) for mode in composed.layout]
    cut = tuple(data.draw(st.none() | st.integers(0, count - 1)) for count in sizes)
    if None not in cut:
        assert composed(*cut) == composed(cut)
        return
    wanted = [
        composed.swizzle(composed.base_offset + composed.layout(*crd))
        for crd in coordinates(tuple(sizes))
        if all(closed in (None, at) for closed, at in zip(cut, crd, strict=True))
    ]
    assert composed(*cut).offsets() == composed(cut).offsets() == wanted


@examples(100)
@given(SWIZZLES, pairs(20, 40))
def test_operations_on_a_composed_layout_are_those_on_its_layout(swizzle, pair):
    layout, tiler = pair
    composed = ComposedLayout(swizzle, 3, layout)
    for operation in (composition, logical_divide, logical_product, blocked_product, raked_product):
        try:
            wanted = operation(layout, tiler)
        except LayoutError:
            with pytest.raises(LayoutError):
                operation(composed, tiler)
        else:
            assert operation(composed, tiler) == ComposedLayout(swizzle, 3, wanted)
            assert operation(composed, tiler).offsets() == [swizzle(3 + offset) for offset in offsets(wanted)]
    assert coalesce(composed) == ComposedLayout(swizzle, 3, coalesce(layout))


@examples(80)
@given(SWIZZLES, layouts(100))
def test_a_swizzle_after_a_layout_is_a_composed_layout(swizzle, layout):
    found = composition(swizzle, layout)
    assert found == ComposedLayout(swizzle, 0, layout)
    assert found.offsets() == [swizzle(offset) for offset in offsets(layout)]


@examples(80)
@given(composed_layouts())
def test_the_cosize_of_a_composed_layout_is_one_more_than_its_largest_offset(composed):
    assert cosize(composed) == max(composed.offsets()) + 1


def test_a_composed_layout_is_sliced_with_its_offset():
    composed = ComposedLayout(Swizzle(1, 0, 2), 4, Layout((4, 8), (8, 1)))
    assert composed(2, None) == ComposedLayout(Swizzle(1, 0, 2), 20, Layout((8,), (1,)))
    assert composed(None, 3) == ComposedLayout(Swizzle(1, 0, 2), 7, Layout((4,), (8,)))
    assert slice_and_offset((2, None), composed.layout) == (Layout((8,), (1,)), 16)


@pytest.mark.parametrize("coordinate", [(), (1, 2, 3), (-1, 0), (0, (0, 0))])
def test_coordinates_that_do_not_fit_a_composed_layout_are_refused(coordinate):
    with pytest.raises(LayoutError):
        ComposedLayout(Swizzle(1, 0, 2), 4, Layout((4, 8)))(coordinate)
