"""Divides and products: every element of every tile, and where the tile of another mode begins."""

import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernelwright.layouts import (
    ComposedLayout,
    Layout,
    LayoutError,
    Swizzle,
    blocked_product,
    compatible,
    complement,
    composition,
    cosize,
    depth,
    flat_divide,
    flat_product,
    logical_divide,
    logical_product,
    make_layout,
    raked_product,
    rank,
    size,
    tiled_divide,
    tiled_product,
    zipped_divide,
    zipped_product,
)

sys.path.insert(0, str(Path(__file__).parent))
from strategies import (
    beyond,
    could_be_composed,
    every,
    examples,
    injective,
    interleaved,
    layouts,
    leaves_gaps,
    lengths,
    offsets,
    pairs,
    tiled,
)

DIVIDES = logical_divide, zipped_divide, tiled_divide, flat_divide
PRODUCTS = logical_product, zipped_product, tiled_product, flat_product
TILE_9X32 = Layout((9, (4, 8)), (59, (13, 1)))
TILER_3X8 = Layout(3, 3), Layout((2, 4), (1, 8))
BLOCK = Layout((2, 5), (5, 1))


def tried(operation, *args):
    try:
        return operation(*args)
    except LayoutError:
        return None


def divided(layout, tiler):
    """How the division ends, after a look at every element of every tile."""
    found = tried(logical_divide, layout, tiler)
    if found is None:
        alone, rest = interleaved(tiler), tried(complement, tiler, size(layout))
        assert alone or leaves_gaps(tiler) or not could_be_composed(layout, make_layout(tiler, rest))
        return "the tiler interleaves" if alone else "no layout"
    rest = complement(tiler, size(layout))
    assert len(found) == 2 and compatible(tiler.shape, found[0].shape) and size(found[1]) == size(rest)
    wanted = [beyond(layout, begin + at) for begin in offsets(rest) for at in offsets(tiler)]
    assert offsets(found) == wanted
    assert zipped_divide(layout, tiler) == found
    return "tiles"


@lengths(300)
def test_a_divide_has_every_element_of_every_tile_or_there_is_no_such_layout(count):
    ends = Counter()
    drawn = pairs(50, 200) | st.tuples(layouts(200), layouts(20))
    every(count, drawn)(lambda pair: ends.update([divided(*pair)]))
    assert min(ends[end] for end in ("tiles", "no layout", "the tiler interleaves")) > count / 200, ends


def unzipped(layout, tiler, operation):
    """(tiles, rests) of a layout and its tiler, mode by mode."""
    if tiler is None:
        return Layout(1, 0), layout
    if not isinstance(tiler, tuple):
        return tuple(operation(layout, tiler))
    parts = [unzipped(mode, part, operation) for mode, part in zip(layout, tiler, strict=False)]
    tiles, rests = zip(*parts, strict=True)
    return make_layout(tiles), make_layout([*rests, *list(layout)[len(tiler) :]])


def by_mode(layout, tiler, operation):
    """`operation` mode by mode."""
    if not isinstance(tiler, tuple):
        return operation(layout, tiler)
    parts = [by_mode(mode, part, operation) for mode, part in zip(layout, tiler, strict=False)]
    return make_layout([*parts, *list(layout)[len(tiler) :]])


@pytest.mark.parametrize("deeds", [DIVIDES, PRODUCTS], ids=["divide", "product"])
@pytest.mark.parametrize("begin", [None, 3], ids=["layout", "swizzled"])
def test_tiles_and_rests_are_zipped_spread_and_flattened(deeds, begin):
    logical, zipped, spread, flat_deed = deeds
    made = Counter()

    def swizzled(layout):
        return layout if begin is None else ComposedLayout(Swizzle(1, 0, 2), begin, layout)

    def holds(pair):
        layout, tiler = pair
        wanted = tried(by_mode, layout, tiler, logical)
        made[wanted is not None] += 1
        if wanted is None:
            assert [tried(operation, swizzled(layout), tiler) for operation in deeds] == [None] * 4
            return
        tiles, rests = unzipped(layout, tiler, logical)
        assert logical(swizzled(layout), tiler) == swizzled(wanted)
        assert zipped(swizzled(layout), tiler) == swizzled(make_layout(tiles, rests))
        assert spread(swizzled(layout), tiler) == swizzled(make_layout(tiles, *rests))
        assert flat_deed(swizzled(layout), tiler) == swizzled(make_layout(*tiles, *rests))

    every(150, tiled())(holds)
    assert min(made[True], made[False]) > 5, made


def names_all(tiler, layout):
    if isinstance(tiler, tuple):
        return len(tiler) == len(layout) and all(map(names_all, tiler, layout))
    return tiler is not None


@examples(200)
@given(tiled())
def test_the_tile_of_a_divide_is_the_composition_where_the_tiler_names_every_mode(pair):
    layout, tiler = pair
    found = tried(zipped_divide, layout, tiler)
    if found is not None and names_all(tiler, layout):
        assert found[0] == composition(layout, tiler)


def multiplied(layout, tiler):
    """How the product ends, after a look at every element of every repetition."""
    found, alone, gaps = tried(logical_product, layout, tiler), interleaved(layout), leaves_gaps(layout)
    if found is None:
        assert alone or gaps or not could_be_composed(complement(layout, size(layout) * cosize(tiler)), tiler)
        return "the layout interleaves" if alone else "no layout"
    assert len(found) == 2 and found[0] == layout and compatible(tiler.shape, found[1].shape)
    if not gaps:
        rest = complement(layout, size(layout) * cosize(tiler))
        assert offsets(found[1]) == [beyond(rest, at) for at in offsets(tiler)]
    return "repetitions"


@lengths(300)
def test_a_product_has_every_repetition_or_there_is_no_such_layout(count):
    ends = Counter()
    every(count, st.tuples(layouts(40), layouts(40)))(lambda pair: ends.update([multiplied(*pair)]))
    assert min(ends[end] for end in ("repetitions", "no layout", "the layout interleaves")) > count / 50, ends


@examples(250)
@given(layouts(40), layouts(40))
@example(Layout((2, 2, 2), (1, 3, 11)), Layout(2))
def test_every_repetition_of_a_product_lies_where_no_other_does(layout, tiler):
    found = tried(logical_product, layout, tiler)
    if found is not None and injective(tiler):
        sums = [first + second for first in set(offsets(layout)) for second in offsets(found[1])]
        assert len(set(sums)) == len(sums)


@examples(130)
@given(layouts(16), layouts(16))
def test_blocked_and_raked_products_number_blocks_and_what_is_in_them(block, tiler):
    modes = max(len(block), len(tiler))
    padded = [make_layout(*one, *[Layout(1, 0)] * (modes - len(one))) for one in (block, tiler)]
    repeated = tried(logical_product, *padded)
    blocked, raked = tried(blocked_product, block, tiler), tried(raked_product, block, tiler)
    if repeated is None:
        assert blocked is None and raked is None
        return
    inner, outer = ([size(mode) for mode in one] for one in padded)
    assert (
        [size(mode) for mode in blocked]
        == [size(mode) for mode in raked]
        == [a * b for a, b in zip(inner, outer, strict=True)]
    )
    assert rank(blocked) == rank(raked) == modes and max(depth(mode) for mode in [*blocked, *raked]) <= 1
    for index in range(size(blocked)):
        at, within, among = index, [], []
        for a, b in zip(inner, outer, strict=True):
            within, among, at = [*within, at % a], [*among, at // a % b], at // (a * b)
        offset = repeated(tuple(within), tuple(among))
        assert blocked(index) == offset
        assert raked(*(b + c * a for a, b, c in zip(outer, among, within, strict=True))) == offset


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (logical_divide(Layout((4, 2, 3), (2, 1, 8)), Layout(4, 2)), "((2,2),(2,3)):((4,1),(2,8))"),
        (logical_divide(TILE_9X32, TILER_3X8), "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))"),
        (zipped_divide(TILE_9X32, TILER_3X8), "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))"),
        (tiled_divide(TILE_9X32, TILER_3X8), "((3,(2,4)),3,(2,2)):((177,(13,2)),59,(26,1))"),
        (flat_divide(TILE_9X32, TILER_3X8), "(3,(2,4),3,(2,2)):(177,(13,2),59,(26,1))"),
        (zipped_divide(TILE_9X32, TILER_3X8)[0], "(3,(2,4)):(177,(13,2))"),
        (composition(TILE_9X32, TILER_3X8), "(3,(2,4)):(177,(13,2))"),
        (logical_product(Layout((2, 2), (4, 1)), Layout(6)), "((2,2),(2,3)):((4,1),(2,8))"),
        (logical_product(Layout((2, 2), (4, 1)), Layout((4, 2), (2, 1))), "((2,2),(4,2)):((4,1),(8,2))"),
        (logical_product(BLOCK, (Layout(3, 5), Layout(4, 6))), "((2,3),(5,4)):((5,10),(1,30))"),
        (blocked_product(BLOCK, Layout((3, 4))), "(6,(5,4)):(5,(1,30))"),
        (raked_product(BLOCK, Layout((3, 4))), "((3,2),(4,5)):((10,5),(30,1))"),
        (logical_product(BLOCK, 4), "((2,5),4):((5,1),10)"),
        (zipped_divide(Layout((8, 24)), (4, 8)), "((4,8),(2,3)):((1,8),(4,64))"),
        (zipped_divide(Layout((8, 24)), (4, 8))((None, None), (1, 2)), "(4,8):(1,8)"),
        (zipped_divide(Layout((8, 24)), (4, 8))(5, (None, None)), "(2,3):(4,64)"),
    ],
    ids=str,
)
def test_the_published_examples_as_cute_prints_them(found, wanted):
    assert str(found) == wanted


def test_the_published_tiles_begin_where_the_figure_says():
    tiles = zipped_divide(TILE_9X32, TILER_3X8)
    assert [size(mode) for mode in tiles] == [24, 12]
    assert (tiles(0, 3), tiles(0, 7), tiles(0, (1, 2))) == (26, 60, 60)


def test_blocks_and_rakes_of_the_published_product_hold_the_same_elements():
    blocked, raked = blocked_product(BLOCK, Layout((3, 4))), raked_product(BLOCK, Layout((3, 4)))
    assert [size(mode) for mode in blocked] == [size(mode) for mode in raked] == [6, 20]
    assert [[blocked(m, n) for n in range(5)] for m in range(2)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert [[raked(m, n) for n in (0, 4, 8, 12, 16)] for m in (0, 3)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert sorted(offsets(blocked)) == sorted(offsets(raked)) == list(range(120))


@pytest.mark.parametrize("operation", [*DIVIDES, *PRODUCTS])
def test_an_integer_is_the_layout_of_that_size_and_a_tuple_goes_by_mode(operation):
    assert operation(BLOCK, 2) == operation(BLOCK, Layout(2))
    assert operation(BLOCK, (2, 5)) == operation(BLOCK, (Layout(2), Layout(5)))
    assert operation(BLOCK, (2,)) == operation(BLOCK, (Layout(2),))


@pytest.mark.parametrize("operation", [logical_divide, logical_product])
def test_none_leaves_a_layout_and_a_mode(operation):
    assert operation(BLOCK, None) is BLOCK
    assert operation(BLOCK, (None, 5))[0] == BLOCK[0]


@pytest.mark.parametrize(
    ("layout", "tiler"),
    [
        (Layout(1, 0), Layout(1, 0)),
        (Layout(1, 1), Layout(1, 0)),
        (Layout(1, 0), Layout(1, 1)),
        (Layout(3, 1), Layout(4, 0)),
        (Layout(3, 0), Layout(4, 1)),
        (Layout(3, 0), Layout(4, 0)),
        (Layout(3, 2), Layout(4, 1)),
        (Layout(3), Layout((2, 4))),
        (Layout((2, 5), (5, 1)), Layout(4)),
        (Layout((4, 8), (1, 4)), Layout(16)),
        (Layout(((2, 2), (2, 2)), ((1, 4), (8, 32))), Layout(4)),
    ],
    ids=str,
)
def test_products_of_pycutes_tests(layout, tiler):
    assert multiplied(layout, tiler) == "repetitions"
    assert size(logical_product(layout, tiler)[1]) == size(tiler)


def test_a_tile_that_does_not_divide_is_rounded_up():
    assert str(logical_divide(Layout(10, 3), 4)) == "(4,3):(3,12)"
    assert str(zipped_divide(Layout((10, 7)), (4, 7))) == "((4,7),(3,1)):((1,10),(4,0))"


@pytest.mark.parametrize("operation", [*DIVIDES, *PRODUCTS])
@pytest.mark.parametrize("tiler", [(2, 2, 2), 0, -2, 2.0, "2", (2, 0), (2, 2.0), Layout((2, 2), (2, 3))])
def test_tilers_that_do_not_fit_are_refused(operation, tiler):
    layout = tiler if isinstance(tiler, Layout) and operation in PRODUCTS else Layout((8, 8))
    with pytest.raises(LayoutError):
        operation(layout, tiler)


def test_a_tiler_of_stride_0_repeats_each_element():
    assert str(logical_divide(Layout(8), Layout(4, 0))) == "(4,8):(0,1)"
