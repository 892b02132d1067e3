"""Bytes that views touch, against a plain set of byte numbers."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.work.regions import MOST_STRIDED, Region, RegionSet, region_of

SIZE = 64


def byte_set(view: torch.Tensor) -> set[int]:
    """Every byte of the storage that a view of int16 can reach."""
    places = torch.arange(SIZE).as_strided(view.shape, view.stride(), view.storage_offset()).flatten().tolist()
    return {2 * place + i for place in places for i in (0, 1)}


@st.composite
def dense_views(draw):
    start = draw(st.integers(0, SIZE - 1))
    return torch.empty(SIZE, dtype=torch.int16)[start : draw(st.integers(start, SIZE))]


@st.composite
def strided_views(draw):
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    stride = tuple(draw(st.integers(0, 5)) for _ in shape)
    return torch.empty(SIZE, dtype=torch.int16).as_strided(shape, stride, draw(st.integers(0, 8)))


def region(view):
    return region_of(tuple(view.shape), view.stride(), view.storage_offset(), 2, 2 * SIZE)


@given(strided_views())
@settings(max_examples=200, deadline=None)
def test_region_holds_every_byte_and_never_more_than_it_spans(view):
    seen, real = region(view), byte_set(view)
    assert seen.start == min(real)
    assert seen.end == max(real) + 1
    assert len(real) <= seen.touched <= seen.end - seen.start


@given(st.lists(dense_views(), max_size=8), dense_views())
@settings(max_examples=200, deadline=None)
def test_union_of_dense_views_is_exact(views, other):
    union = RegionSet(map(region, views))
    real = set().union(*map(byte_set, views))
    assert union.touched == len(real)
    missing = RegionSet(union.missing(region(other)))
    assert missing.touched == len(byte_set(other) - real)
    assert union.covers(region(other)) == (byte_set(other) <= real)


@given(st.lists(st.one_of(dense_views(), strided_views()), min_size=1, max_size=8))
@settings(max_examples=200, deadline=None)
def test_union_is_bounded_by_its_hull_and_its_parts_do_not_share(views):
    union = RegionSet(map(region, views))
    real = set().union(*map(byte_set, views))
    assert union.touched <= max(real, default=-1) + 1 - min(real, default=0)
    assert sum(part.touched for part in union.parts()) == union.touched


def test_interleaved_slices_make_a_whole():
    x = torch.empty(SIZE, dtype=torch.int16)
    assert RegionSet([region(x[::2]), region(x[1::2])]).touched == 2 * SIZE - 2 + 2
    assert RegionSet([region(x[::2]), region(x[::2])]).touched == SIZE


def test_picks_from_one_table_add_up_to_the_table():
    table = region(torch.empty(SIZE, dtype=torch.int16))
    pick = table.picked(40)
    assert RegionSet([pick, pick]).touched == 80
    assert RegionSet([pick, pick, table.picked(30)]).touched == 110
    assert RegionSet([pick] * 10).touched == 2 * SIZE
    assert RegionSet([pick, table]).touched == RegionSet([table, pick]).touched == 2 * SIZE
    assert table.picked(4 * SIZE) == table


def test_picks_from_a_strided_table_add_up_to_its_own_bytes():
    column = region(torch.empty(SIZE, dtype=torch.int16)[::4])
    assert RegionSet([column.picked(20)] * 2).touched == column.touched
    assert RegionSet([column.picked(20), column]).touched == column.touched
    assert not RegionSet([column.picked(20)]).covers(column.picked(20))


def test_many_strided_regions_stay_bounded():
    union = RegionSet(Region(8 * i, 8 * i + 8, 4) for i in range(10 * MOST_STRIDED))
    assert len(union.parts()) <= MOST_STRIDED + 1
    assert union.touched <= 80 * MOST_STRIDED
