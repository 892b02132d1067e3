"""Bytes that views touch, against a plain set of byte numbers."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.work.regions import MAX_STRIDED, ByteRange, ByteRangeSet, view_byte_range

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
    return view_byte_range(tuple(view.shape), view.stride(), view.storage_offset(), 2, 2 * SIZE)


@given(strided_views())
@settings(max_examples=200, deadline=None)
def test_region_holds_every_byte_and_never_more_than_it_spans(view):
    seen, real = region(view), byte_set(view)
    assert seen.start == min(real)
    assert seen.end == max(real) + 1
    assert len(real) <= seen.touched_bytes <= seen.end - seen.start


@given(st.lists(dense_views(), max_size=8), dense_views())
@settings(max_examples=200, deadline=None)
def test_union_of_dense_views_is_exact(views, other):
    union = ByteRangeSet(map(region, views))
    real = set().union(*map(byte_set, views))
    assert union.touched_bytes == len(real)
    missing = ByteRangeSet(union.missing(region(other)))
    assert missing.touched_bytes == len(byte_set(other) - real)
    assert union.covers(region(other)) == (byte_set(other) <= real)


@given(st.lists(st.one_of(dense_views(), strided_views()), min_size=1, max_size=8))
@settings(max_examples=200, deadline=None)
def test_union_is_bounded_by_its_hull_and_its_parts_do_not_share(views):
    union = ByteRangeSet(map(region, views))
    real = set().union(*map(byte_set, views))
    assert union.touched_bytes <= max(real, default=-1) + 1 - min(real, default=0)
    assert sum(part.touched_bytes for part in union.disjoint_ranges()) == union.touched_bytes


def test_interleaved_slices_make_a_whole():
    x = torch.empty(SIZE, dtype=torch.int16)
    assert ByteRangeSet([region(x[::2]), region(x[1::2])]).touched_bytes == 2 * SIZE - 2 + 2
    assert ByteRangeSet([region(x[::2]), region(x[::2])]).touched_bytes == SIZE


def test_picks_from_one_table_add_up_to_the_table():
    table = region(torch.empty(SIZE, dtype=torch.int16))
    pick = table.with_gathered(40)
    assert ByteRangeSet([pick, pick]).touched_bytes == 80
    assert ByteRangeSet([pick, pick, table.with_gathered(30)]).touched_bytes == 110
    assert ByteRangeSet([pick] * 10).touched_bytes == 2 * SIZE
    assert ByteRangeSet([pick, table]).touched_bytes == ByteRangeSet([table, pick]).touched_bytes == 2 * SIZE
    assert table.with_gathered(4 * SIZE) == table


def test_picks_from_a_strided_table_add_up_to_its_own_bytes():
    column = region(torch.empty(SIZE, dtype=torch.int16)[::4])
    assert ByteRangeSet([column.with_gathered(20)] * 2).touched_bytes == column.touched_bytes
    assert ByteRangeSet([column.with_gathered(20), column]).touched_bytes == column.touched_bytes
    assert not ByteRangeSet([column.with_gathered(20)]).covers(column.with_gathered(20))


def test_many_strided_regions_stay_bounded():
    union = ByteRangeSet(ByteRange(8 * i, 8 * i + 8, 4) for i in range(10 * MAX_STRIDED))
    assert len(union.disjoint_ranges()) <= MAX_STRIDED + 1
    assert union.touched_bytes <= 80 * MAX_STRIDED
