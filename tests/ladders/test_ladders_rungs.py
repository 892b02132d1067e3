"""Every rung says why it exists, they count from one, and a wrong name is answered with the right ones."""

import pytest

from kernelwright.core.errors import NotFoundError
from kernelwright.ladders import find_rung, ladder_names, read_rungs


@pytest.mark.parametrize("ladder", ladder_names())
def test_rungs_count_from_one_and_say_why_they_exist(ladder):
    there = read_rungs(ladder)
    assert [one.number for one in there] == list(range(1, len(there) + 1))
    for one in there:
        assert one.question.endswith("?")
        assert one.title
        assert one.hypothesis
        assert one.next


def test_a_rung_is_found_by_number_name_and_file():
    assert find_rung("gemm_fp32", "2") == find_rung("gemm_fp32", "coalesced") == find_rung("gemm_fp32", "02_coalesced")


@pytest.mark.parametrize(("ladder", "which", "says"), [("gem", "1", "gemm_fp32"), ("gemm_fp32", "99", "1 naive")])
def test_a_wrong_name_is_answered_with_those_that_are_there(ladder, which, says):
    with pytest.raises(NotFoundError) as caught:
        find_rung(ladder, which)
    assert says in caught.value.next
