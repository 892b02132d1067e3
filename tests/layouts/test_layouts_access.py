import pytest

from kernelwright.layouts import ComposedLayout, Layout, LayoutError, Swizzle, bank_conflicts, coalescing


@pytest.mark.parametrize(
    ("layout", "element_bytes", "ways", "wavefronts", "access_bytes"),
    [
        (Layout(32), 4, 1, 1, 4),  # one word a bank
        (Layout(32, 0), 4, 1, 1, 4),  # one word for all
        (Layout(32, 2), 4, 2, 2, 4),  # even banks twice
        (Layout(32, 32), 4, 32, 32, 4),  # a column of a 32-wide tile
        (Layout(32, 33), 4, 1, 1, 4),  # and of a padded one
        (Layout(32), 2, 1, 1, 2),  # two threads share a word
        (Layout(32, 64), 2, 32, 32, 2),
        (Layout((32, 4), (4, 1)), 4, 1, 4, 16),  # a quarter of a warp at a time
        (Layout((32, 2), (2, 1)), 4, 1, 2, 8),  # half a warp at a time
        (Layout((32, 8), (64, 1)), 2, 8, 32, 16),  # rows of 128 bytes, eight at a time
        (Layout((32, 8), (72, 1)), 2, 1, 4, 16),  # the same with 16 bytes of padding
        (Layout((64, 1), (1, 0)), 4, 1, 2, 4),  # two warps
        (Layout((20, 4), (4, 1)), 4, 1, 3, 16),  # a warp that is not full
        (Layout(((2, 16), 2), ((0, 2), 1)), 4, 1, 1, 8),  # neighbours that share 8 bytes are one
        (Layout(((2, 2, 8), 2), ((2, 0, 4), 1)), 4, 1, 1, 8),  # so are those two apart
        (Layout(((16, 2), 2), ((2, 0), 1)), 4, 1, 2, 8),  # halves of a warp are not
        (Layout(((2, 16), 4), ((0, 4), 1)), 4, 1, 2, 16),
        (Layout((32, 2), (1, 32)), 4, 1, 2, 4),  # two values that do not touch: two instructions
        (ComposedLayout(Swizzle(3, 3, 3), 0, Layout((32, 8), (64, 1))), 2, 1, 4, 16),
    ],
)
def test_passes_over_the_banks(layout, element_bytes, ways, wavefronts, access_bytes):
    found = bank_conflicts(layout, element_bytes)
    assert (found.ways, found.wavefronts, found.access_bytes) == (ways, wavefronts, access_bytes)
    assert found.is_conflict_free == (ways == 1)
    assert found.ideal_wavefronts <= found.wavefronts


def test_too_many_elements_are_not_looked_at():
    for question in (bank_conflicts, coalescing):
        with pytest.raises(LayoutError, match="too many"):
            question(Layout((100_000, 100_000)))


def test_threads_of_a_later_warp_are_named_by_their_number():
    first_is_free_and_second_is_not = Layout(((36, 2),), ((1, 64),))
    assert bank_conflicts(first_is_free_and_second_is_not, 4).conflicting_threads == (32, 36)


def test_the_threads_that_meet_are_named():
    assert bank_conflicts(Layout(32, 16), 4).conflicting_threads == tuple(range(0, 32, 2))


def test_a_vector_must_be_whole_for_every_thread():
    assert bank_conflicts(Layout((32, 4), (5, 1)), 4).access_bytes == 4  # not aligned
    assert bank_conflicts(Layout((32, 3), (3, 1)), 4).access_bytes == 4  # no power of 2
    assert bank_conflicts(Layout((32, 8), (8, 1)), 4).access_bytes == 16  # no more than 16 bytes


@pytest.mark.parametrize(
    ("layout", "element_bytes", "requests", "sectors", "lines"),
    [
        (Layout(32), 4, 1, 4, 1),
        (Layout(32, 2), 4, 1, 8, 2),
        (Layout(32, 32), 4, 1, 32, 32),
        (Layout(32, 0), 4, 1, 1, 1),
        (Layout(32), 1, 1, 1, 1),
        (Layout((32, 4), (4, 1)), 4, 1, 16, 4),
        (Layout((32, 2), (1, 32)), 4, 2, 8, 2),
        (Layout((64, 1), (1, 0)), 8, 2, 16, 4),
    ],
)
def test_sectors_of_a_request(layout, element_bytes, requests, sectors, lines):
    found = coalescing(layout, element_bytes)
    assert (found.requests, found.sectors, found.cache_lines) == (requests, sectors, lines)


def test_the_share_of_the_bytes_that_somebody_wanted():
    assert coalescing(Layout(32), 4).efficiency == 1
    assert coalescing(Layout(32, 8), 4).efficiency == 1 / 8
    assert coalescing(Layout(32, 0), 4).efficiency == 4 / 32
    assert coalescing(Layout(5), 4).efficiency == 20 / 32
    assert coalescing(Layout(32, 2), 4).sectors_per_request == 8


def test_fewer_threads_than_the_layout_has():
    assert bank_conflicts(Layout(32, 32), 4, threads=8).ways == 8
    assert coalescing(Layout(32, 32), 4, threads=8).sectors == 8


@pytest.mark.parametrize("threads", [0, 33, -1, 1.5, True])
def test_threads_that_are_not_there_are_refused(threads):
    with pytest.raises(LayoutError, match="threads"):
        bank_conflicts(Layout(32), 4, threads)


@pytest.mark.parametrize("element_bytes", [0, 3, 32, "4", None])
def test_an_element_of_another_size_is_refused(element_bytes):
    for question in (bank_conflicts, coalescing):
        with pytest.raises(LayoutError, match="1, 2, 4, 8 or 16"):
            question(Layout(32), element_bytes)
