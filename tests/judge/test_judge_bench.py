"""Who gets an arm in a bench, and under which name."""

import pytest
import torch

from kernelwright.judge.arms import BASELINE_NAMES, named
from kernelwright.judge.bench import bench
from kernelwright.problems import Problem


def program(x):
    return torch.relu(x + 1)


def wrong(x):
    return torch.relu(x + 1.01)


@pytest.fixture(scope="module")
def problem():
    return Problem.from_callable(program, torch.randn(2**12))


def test_nothing_is_timed_where_every_candidate_is_rejected(problem):
    found = bench(problem, wrong, wrong)
    assert (found.arms, found.comparisons) == ((), ())
    assert [verdict.reason.code for verdict in found.verdicts] == ["inaccurate", "inaccurate"]


def test_a_candidate_called_like_a_baseline_keeps_its_arm_and_is_verified_as_thoroughly_as_ever(problem):
    def eager(x):
        return (x + 1).clamp_min(0)

    found = bench(problem, eager, wrong, baselines=["eager"])
    assert {arm.name for arm in found.arms} == {"eager", "eager (1)"}
    assert [(c.a, c.b) for c in found.comparisons] == [("eager (1)", "eager")]
    assert found.verdicts[0].sets == 12


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["a/x.py"], ["candidate"]),
        (["x.py", "y.py"], ["x", "y"]),
        (["a/x.py", "b/x.py"], ["x (1)", "x (2)"]),
        (["x.py", "eager.py"], ["x", "eager (2)"]),
        (["x.py", "torch.compile.py"], ["x", "torch.compile (2)"]),
        (["x (2).py", "a/x.py", "b/x.py"], ["x (2)", "x (3)", "x (4)"]),
        (["a/x.py", "b/x.py", "x (2).py"], ["x (1)", "x (2)", "x (2) (3)"]),
    ],
)
def test_every_candidate_has_a_name_of_its_own(files, names):
    assert list(named(files)) == names
    assert not set(names) & set(BASELINE_NAMES.values())
