"""Which files are problems, and which candidates are theirs."""

import pytest

from kernelwright.core.errors import NotFoundError
from kernelwright.problems.suites import find_pairs

MODEL = "class Model:\n    pass\n\n\ndef get_inputs():\n    return []\n"


@pytest.fixture
def place(tmp_path):
    def write(path, text=""):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    write.folder = tmp_path
    return write


def matched(place, candidates="mine"):
    found = find_pairs(str(place.folder / "suite"), str(place.folder / candidates) if candidates else None)
    return [(pair.problem, pair.candidate) for pair in found.pairs]


@pytest.mark.parametrize(
    "name",
    [
        "level1/19_ReLU.py",
        "level1/19_ReLU.cpp",
        "level1/19_ReLU_v2.cu",
        "level1/19_ReLU/one.py",
        "19_ReLU.py",
        "sonnet/19_ReLU.py",
        "level_1_problem_19_sample_0_kernel.py",
    ],
)
def test_a_candidate_is_called_like_its_problem(place, name):
    place("suite/level1/19_ReLU.py", MODEL)
    place("suite/level2/19_Gemm.py", MODEL)
    place("mine/" + name)
    assert matched(place) == [("level1/19_ReLU", name)]


def test_a_name_that_two_problems_have_needs_its_folder(place):
    for level in ("level1", "level2"):
        place(f"suite/{level}/1_Same.py", MODEL)
    place("mine/1_Same.py")
    place("mine/level2/1_Same.py")
    assert matched(place) == [("level2/1_Same", "level2/1_Same.py")]
    found = find_pairs(str(place.folder / "suite"), str(place.folder / "mine"))
    assert found.candidates_without_problem == ("1_Same.py",)
    assert found.problems_without_candidate == ("level1/1_Same",)


def test_the_longest_name_wins_and_numbers_are_in_their_order(place):
    for name in ("10_Max", "2_Sum", "2_Sum_of_squares"):
        place(f"suite/{name}.py", MODEL)
        place(f"mine/{name}_fast.py")
    assert [pair[0] for pair in matched(place)] == ["2_Sum", "2_Sum_of_squares", "10_Max"]


def test_a_function_of_the_files_name_is_a_problem_too_and_helpers_are_none(place):
    place("suite/rows.py", "def rows(x):\n    return x\n\n\ndef rows_inputs():\n    return []\n")
    place("suite/helpers.py", "def f():\n    pass\n")
    place("suite/_private.py", MODEL)
    place("suite/broken.py", "def (")
    place("mine/rows.py")
    found = find_pairs(str(place.folder / "suite"), str(place.folder / "mine"))
    assert [pair.problem for pair in found.pairs] == ["rows"]
    assert found.unreadable_files == ("broken.py",)


def test_without_a_folder_of_candidates_a_file_holds_its_own(place):
    place("suite/one.py", MODEL + "\n\nclass ModelNew:\n    pass\n")
    place("suite/two.py", MODEL)
    assert matched(place, None) == [("one", "one.py")]


def test_candidates_may_lie_among_the_problems(place):
    place("suite/rows.py", MODEL)
    place("suite/rows.cpp")
    assert matched(place, "suite") == [("rows", "rows.cpp")]
    place("suite/mine/rows.py", MODEL)
    assert matched(place, "suite/mine") == [("rows", "rows.py")]


def test_where_nothing_is_found_it_is_said(place):
    place("suite/helpers.py", "x = 1\n")
    with pytest.raises(NotFoundError, match="no problem among 1 Python file"):
        find_pairs(str(place.folder / "suite"))
    place("suite/rows.py", MODEL)
    with pytest.raises(NotFoundError, match="no file defines ModelNew"):
        find_pairs(str(place.folder / "suite"))
    with pytest.raises(NotFoundError, match="no folder"):
        find_pairs(str(place.folder / "elsewhere"))
