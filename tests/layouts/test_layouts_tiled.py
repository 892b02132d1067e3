"""Atoms over warps and values: CuTe's own Volta example, and every element of a tile held exactly once."""

import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.layouts import (
    Layout,
    LayoutError,
    MmaAtom,
    TiledCopy,
    TiledMma,
    element_owners,
    get_atom,
    size,
    wgmma_atom,
)

sys.path.insert(0, str(Path(__file__).parent))
from strategies import examples, offsets

NT = Layout(((4, 2), 4), ((8, 4), 1))
HELD_C = Layout(((2, 2, 2), (2, 2, 2)), ((1, 16, 4), (8, 2, 32)))
VOLTA = MmaAtom("SM70_8x8x4_F32F16F16F32_NT", (8, 8, 4), ("f16", "f16", "f32"), NT, NT, HELD_C, Layout((4, 2), (1, 16)))
ONE = TiledMma(VOLTA)
FOUR = TiledMma(VOLTA, Layout((2, 2), (2, 1)))
LARGE = TiledMma(VOLTA, Layout((2, 2), (2, 1)), (Layout(32), Layout(32), Layout(4)))
PERMUTED = TiledMma(VOLTA, Layout((2, 2), (2, 1)), (Layout((4, 4, 2), (1, 8, 4)), Layout(32), Layout(4)))


def places(tiled, operand, thread):
    """(row, column) of every value of one thread."""
    rows = tiled.shape[1 if operand == "B" else 0]
    columns = tiled.shape[1 if operand == "C" else 2]
    held, begin = tiled.partition(operand, Layout((rows, columns)), thread)
    return [((begin + offset) % rows, (begin + offset) // rows) for offset in held.offsets()]


def test_the_published_atom_is_made_of_quadpairs():
    assert VOLTA.threads.offsets() == [0, 1, 2, 3, 16, 17, 18, 19]
    assert [HELD_C(thread, 0) for thread in range(8)] == [0, 1, 16, 17, 4, 5, 20, 21]
    assert [HELD_C(0, value) for value in range(8)] == [0, 8, 2, 10, 32, 40, 34, 42]


@pytest.mark.parametrize("which", ["A", "B", "C"])
def test_the_published_atom_holds_every_element_once(which):
    held, shape = VOLTA.operand(which)
    assert sorted(offsets(held)) == list(range(shape[0] * shape[1]))
    assert len({one for row in element_owners(held, shape) for one in row}) == shape[0] * shape[1]


@pytest.mark.parametrize(
    ("tiled", "shape"),
    [(ONE, (8, 8, 4)), (FOUR, (16, 16, 4)), (LARGE, (32, 32, 4)), (PERMUTED, (32, 32, 4))],
    ids=["1x1", "2x2", "32x32x4", "permuted"],
)
def test_the_published_shapes_of_tiled_mmas(tiled, shape):
    assert tiled.shape == shape


@pytest.mark.parametrize(("place", "thread"), [*enumerate((0, 1, 2, 3, 16, 17, 18, 19))])
def test_one_published_atom_is_held_by_the_threads_of_its_quadpair(place, thread):
    wanted = [HELD_C(place, value) for value in range(8)]
    assert [row + 8 * column for row, column in places(ONE, "C", thread)] == wanted


def test_the_published_warps_of_2_by_2_atoms_use_all_32_threads():
    assert sorted(offsets(FOUR.threads)) == list(range(32))
    assert [places(FOUR, "C", thread)[0] for thread in (0, 4, 8, 12)] == [(0, 0), (0, 8), (8, 0), (8, 8)]
    assert [places(FOUR, "C", thread)[0] for thread in (16, 20, 24, 28)] == [(4, 0), (4, 8), (12, 0), (12, 8)]


def test_the_published_tile_of_32x32x4_repeats_over_values():
    assert [places(LARGE, "C", thread)[8] for thread in (0, 4, 8)] == [(16, 0), (16, 8), (24, 0)]
    assert len(places(LARGE, "C", 0)) == 32 and len(places(FOUR, "C", 0)) == 8


def test_the_published_places_of_the_values_of_a():
    wanted = [(0, 0), (1, 0), (2, 0), (3, 0), (16, 0), (17, 0), (18, 0), (19, 0)]
    assert places(LARGE, "A", 0) == wanted


def test_the_published_permutation_brings_the_values_of_a_together():
    assert places(PERMUTED, "A", 0) == [(row, 0) for row in range(8)]
    for thread in range(32):
        rows = [row for row, _ in places(PERMUTED, "A", thread)]
        assert rows == list(range(rows[0], rows[0] + 8))


def test_the_published_permutation_scatters_rows():
    old_to_new = [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27]
    old_to_new += [4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31]
    assert offsets(PERMUTED.permutation[0]) == old_to_new
    for thread in range(32):
        moved = [(old_to_new[row], column) for row, column in places(LARGE, "C", thread)]
        assert places(PERMUTED, "C", thread) == moved


def test_the_published_accumulators_of_a_warpgroup():
    assert str(wgmma_atom(8, "f16").c) == "((4,8,4),(2,2)):((128,1,16),(64,8))"
    assert str(wgmma_atom(128, "f16").c) == "((4,8,4),(2,2,16)):((128,1,16),(64,8,512))"


M16N8K16, F64 = get_atom("mma.m16n8k16.bf16"), get_atom("mma.m8n8k4.f64")
TILINGS = {
    "one warp": TiledMma(M16N8K16),
    "2x2": TiledMma(M16N8K16, Layout((2, 2, 1))),
    "2x2 along n": TiledMma(M16N8K16, Layout((2, 2), (2, 1))),
    "4x1": TiledMma(M16N8K16, Layout((4, 1, 1))),
    "1x4": TiledMma(M16N8K16, Layout((1, 4, 1))),
    "2x2 of 64x32x16": TiledMma(M16N8K16, Layout((2, 2, 1)), (Layout(64), Layout(32), None)),
    "2x2 dealt out": TiledMma(M16N8K16, Layout((2, 2, 1)), (Layout(32), Layout((8, 2, 2), (1, 16, 8)), Layout(16))),
    "f64": TiledMma(F64, Layout((2, 4, 1)), (None, Layout(64), Layout(8))),
    "volta 2x2": FOUR,
    "volta 32x32": LARGE,
    "volta permuted": PERMUTED,
    "wgmma": TiledMma(wgmma_atom(32)),
    "two wgmma": TiledMma(wgmma_atom(64, a_in_registers=True), Layout((2, 1, 1))),
}

OF_REGISTERS = {name: tiled for name, tiled in TILINGS.items() if tiled.atom.a and tiled.atom.b}


@pytest.mark.parametrize("tiled", TILINGS.values(), ids=TILINGS.keys())
def test_every_element_of_c_is_held_exactly_once(tiled):
    m, n, _ = tiled.shape
    held = tiled.thread_values("C")
    found = element_owners(held, (m, n))
    assert len(found) == m and all(len(row) == n for row in found)
    assert size(held) == m * n and size(held[0]) == size(tiled.threads)


@pytest.mark.parametrize("tiled", OF_REGISTERS.values(), ids=OF_REGISTERS.keys())
@pytest.mark.parametrize("operand", ["A", "B"])
def test_a_and_b_are_broadcast_over_the_warps_of_the_other_mode(tiled, operand):
    rows, columns, others = (tiled.shape[0], tiled.shape[2], 1) if operand == "A" else (*tiled.shape[1:], 0)
    held = tiled.thread_values(operand)
    count = size(tiled.atom_layout[others]) if others < len(tiled.atom_layout) else 1
    assert Counter(offsets(held)) == dict.fromkeys(range(rows * columns), count)
    lanes = size(tiled.atom.threads)
    numbers = [tiled.threads(lane, *warp) for lane in range(lanes) for warp in warps_of(tiled, others)]
    for begin in range(0, len(numbers), count):
        alike = {tuple(tiled.partition(operand, Layout((rows, columns)), at)) for at in numbers[begin : begin + count]}
        assert len(alike) == 1


def warps_of(tiled, others):
    """The warps, those that differ only along `others` next to one another."""
    counts = [size(mode) for mode in tiled.atom_layout] + [1] * (3 - len(tiled.atom_layout))
    found = [(m, n, k) for k in range(counts[2]) for n in range(counts[1]) for m in range(counts[0])]
    return sorted(found, key=lambda warp: (warp[1 - others], warp[2], warp[others]))


@pytest.mark.parametrize("tiled", TILINGS.values(), ids=TILINGS.keys())
@pytest.mark.parametrize("form", ["columns", "rows"])
def test_a_larger_tensor_is_covered_once_by_all_partitions(tiled, form):
    m, n = tiled.shape[0] * 2, tiled.shape[1] * 3
    tensor = Layout((m, n)) if form == "columns" else Layout((m, n), (n + 3, 1))
    whole = tiled.thread_values("C", tensor)
    assert sorted(whole.offsets()) == sorted(tensor.offsets())
    for thread in (0, size(tiled.threads) - 1):
        held, begin = tiled.partition("C", tensor, thread)
        assert [begin + offset for offset in held.offsets()] == whole.offsets()[thread :: size(tiled.threads)]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: TILINGS["2x2"].thread_values("C", Layout((48, 16))),
        lambda: TILINGS["2x2"].thread_values("D"),
        lambda: TiledMma(wgmma_atom(32)).thread_values("A"),
        lambda: TiledMma(wgmma_atom(32)).thread_values("B"),
        lambda: TiledMma(wgmma_atom(32), Layout((2, 1, 1))).thread_values("C", Layout((64, 32))),
        lambda: TiledMma(M16N8K16, permutation=(Layout(24), None, None)).thread_values("C"),
    ],
)
def test_tiles_that_do_not_divide_and_operands_that_nobody_holds_are_refused(wrong):
    with pytest.raises(LayoutError):
        wrong()


def test_a_tile_that_the_warps_do_not_divide_is_refused():
    with pytest.raises(LayoutError):
        TiledMma(M16N8K16, Layout((2, 2, 1)), (Layout(48), None, None)).thread_values("C")


def test_holder_names_what_is_held_twice_or_by_nobody():
    with pytest.raises(LayoutError, match="by another"):
        element_owners(Layout((4, 2), (1, 0)), (4, 2))
    with pytest.raises(LayoutError, match="no thread holds"):
        element_owners(Layout((4, 2)), (4, 3))
    assert element_owners(Layout((2, 2), (2, 1)), (2, 2)) == [[(0, 0), (1, 0)], [(0, 1), (1, 1)]]


@st.composite
def copies(draw):
    """Threads and values over (rows, columns), numbered along rows or columns."""
    extent = st.sampled_from((1, 2, 3, 4, 8))

    def numbered():
        rows, columns = draw(extent), draw(extent)
        return Layout((rows, columns), (1, rows) if draw(st.booleans()) else (columns, 1))

    return TiledCopy(numbered(), numbered())


@examples(80)
@given(copies())
def test_a_tiled_copy_covers_its_tile_once_where_its_arguments_say(copy):
    (rows, columns), (high, wide) = ([size(mode) for mode in one] for one in (copy.threads, copy.values))
    assert copy.shape == (rows * high, columns * wide)
    found = element_owners(copy.thread_values(), copy.shape)
    for row in range(copy.shape[0]):
        for column in range(copy.shape[1]):
            thread = copy.threads(row // high, column // wide)
            assert found[row][column] == (thread, copy.values(row % high, column % wide))


@examples(60)
@given(copies(), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2))
def test_the_partitions_of_a_tiled_copy_cover_a_tensor_once(copy, down, across, padding):
    shape = copy.shape[0] * down, copy.shape[1] * across
    tensor = Layout(shape, (shape[1] + padding, 1))
    whole = copy.thread_values(tensor)
    assert sorted(whole.offsets()) == sorted(tensor.offsets())
    last = size(copy.threads) - 1
    held, begin = copy.partition(tensor, last)
    assert [begin + offset for offset in held.offsets()] == whole.offsets()[last :: last + 1]


@pytest.mark.parametrize(
    ("threads", "values"),
    [(Layout((4, 8), (16, 1)), Layout(4)), (Layout((4, 8), (0, 1)), Layout(4)), (Layout(4), Layout(4, 2))],
)
def test_threads_and_values_that_do_not_number_a_tile_are_refused(threads, values):
    with pytest.raises(LayoutError):
        TiledCopy(threads, values).thread_values()
