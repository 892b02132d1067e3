import pytest

from kernelwright.layouts import Layout, LayoutError, Swizzle, find_swizzle, recast
from kernelwright.layouts.swizzling import enumerate_swizzles


@pytest.mark.parametrize(
    ("tile", "element_bytes", "swizzle"),
    [
        (Layout((64, 64), (64, 1)), 2, Swizzle(3, 3, 3)),  # the 128-byte swizzle
        (Layout((64, 32), (32, 1)), 2, Swizzle(2, 3, 3)),  # the 64-byte one
        (Layout((64, 16), (16, 1)), 2, Swizzle(1, 3, 3)),  # the 32-byte one
        (Layout((64, 64), (1, 64)), 2, Swizzle(3, 3, 3)),  # columns instead of rows
        (Layout((32, 32), (32, 1)), 4, Swizzle(3, 2, 3)),
        (Layout((32, 128), (128, 1)), 1, Swizzle(3, 4, 3)),
        (Layout((64, 8), (8, 1)), 2, Swizzle(0, 0, 0)),  # rows of 16 bytes collide nowhere
    ],
)
def test_the_standard_swizzles_are_found_again(tile, element_bytes, swizzle):
    found = find_swizzle(tile, element_bytes)
    assert found.swizzle == swizzle
    assert all(one.is_conflict_free for one in found.conflicts_after.values())
    assert str(found.layout) == f"{swizzle} o 0 o {tile}"


def test_in_bytes_it_is_the_one_that_the_hardware_has():
    found = find_swizzle(Layout((64, 64), (64, 1)), 2)
    assert recast(found.swizzle, 16, 8) == Swizzle(3, 4, 3)


def test_no_smaller_one_works_and_all_of_them_were_tried():
    tile = Layout((64, 64), (64, 1))
    found = find_swizzle(tile, 2)
    fewer = {swizzle for swizzle in enumerate_swizzles(64 * 64) if swizzle.bits < found.swizzle.bits}
    assert len(found.smaller_swizzles) + found.num_inapplicable == len(fewer)
    assert set(found.smaller_swizzles) <= fewer
    assert all(ways > 1 for ways in found.smaller_swizzles.values())
    assert found.conflicts_before["read"].ways == 8


def test_every_swizzle_within_the_tile_is_a_candidate():
    everything = set(enumerate_swizzles(2**6))
    assert len(everything) == len(list(enumerate_swizzles(2**6)))
    expected = {
        Swizzle(bits, base, sign * shift)
        for bits in range(1, 4)
        for shift in range(bits, 7)
        for base in range(7)
        if base + bits + shift <= 6
        for sign in (1, -1)
    }
    assert everything == expected | {Swizzle(0, 0, 0)}


def test_a_transposing_kernel_needs_all_five_bits():
    found = find_swizzle(Layout((32, 32), (32, 1)), 4, "column")
    assert found.swizzle == Swizzle(5, 0, 5)
    assert found.conflicts_before["read"].ways == 32
    assert found.conflicts_after["write"].access_bytes == 4, "written in wider pieces no swizzle frees the columns"


def test_an_access_of_ones_own():
    tile = Layout((8, 64), (64, 1))
    rows = Layout(((8, 8), 8), ((1, 64), 8))
    found = find_swizzle(tile, 2, rows)
    assert found.swizzle == Swizzle(3, 3, 3)
    assert find_swizzle(tile, 2, {"only": rows}).conflicts_before.keys() == {"only"}


@pytest.mark.parametrize(
    ("tile", "access", "message"),
    [
        (Layout(64), "ldmatrix", "not a tile"),
        (Layout((8, 64), (64, 1)), "rows", "ldmatrix, column"),
        (Layout((8, 64), (64, 1)), Layout((32, 64), (64, 1)), "reaches element"),
        (
            Layout((32, 32), (32, 1)),
            {"row": Layout(32, 32), "column": Layout(32), "diagonal": Layout(32, 33)},
            "were tried",
        ),
        (Layout((12, 64), (64, 1)), "ldmatrix", "cannot read"),
        (Layout((8, 12), (12, 1)), "ldmatrix", "cannot read"),
        (Layout((8, 64), (65, 1)), "ldmatrix", "cannot read"),
        (Layout((1024, 1024), (1024, 1)), "ldmatrix", "65,536"),
        (Layout((8, 8)), {}, "mapping is empty"),
    ],
)
def test_what_has_no_answer_says_so(tile, access, message):
    with pytest.raises(LayoutError, match=message):
        find_swizzle(tile, 2 if tile[0] == Layout(8, 64) or "ldmatrix" in str(access) else 4, access)


@pytest.mark.parametrize(
    ("tile", "element_bytes"),
    [
        (Layout(((8, 8), 64), ((64, 512), 1)), 2),
        (Layout((8, (8, 8)), (64, (1, 8))), 2),
        (Layout((8, 32), (48, 1)), 2),
        (Layout((32, 16), (16, 1)), 4),
        (Layout((16, 8), (8, 1)), 8),
        (Layout((8, 256), (256, 1)), 1),
    ],
)
def test_a_swizzled_tile_stays_where_it_was_and_eight_lines_lie_in_different_banks(tile, element_bytes):
    found = find_swizzle(tile, element_bytes)
    offsets = found.layout.offsets()
    assert len(set(offsets)) == len(offsets)
    assert max(offsets) < tile.cosize()
    columns = tile[1].size()
    for line in range(0, tile[0].size(), 8):
        for column in range(0, columns, 16 // element_bytes):
            starts = [found.layout(line + at, column) * element_bytes for at in range(8)]
            assert len({start // 16 % 8 for start in starts}) == 8, "16 bytes of 8 lines fill all 32 banks"


def test_a_swizzle_that_would_lead_out_of_a_padded_tile_is_not_taken():
    tile = Layout((3, 20), (28, 1))
    found = find_swizzle(tile, 2, {"rows": Layout(3), "columns": Layout((20, 1), (3, 0))})
    assert max(found.layout.offsets()) < tile.cosize()
