"""Inputs of other shapes beside a problem's own."""

import pytest
import torch

from kernelwright.core.errors import ProblemError
from kernelwright.problems import Problem, load_problem
from kernelwright.problems.held_out import held_out_inputs

PLAIN = "import torch\ndef problem(x): return x\ndef get_inputs(): return [torch.randn(4)]\n"


@pytest.fixture
def declaring(tmp_path, monkeypatch):
    """Writes a problem that declares shapes, and loads it."""

    def write(declared, name="problem.py", target="problem.py"):
        (tmp_path / name).write_text(PLAIN + declared)
        monkeypatch.chdir(tmp_path)
        return load_problem(target)

    return write


def test_declared_inputs_are_read_as_the_problems_own(declaring):
    declared = "def get_held_out_inputs(): return [[torch.randn(7)], {'x': torch.randn(9)}, torch.randn(0)]\n"
    found = held_out_inputs(declaring(declared))
    assert [(len(args), sorted(kwargs)) for args, kwargs in found] == [(1, []), (0, ["x"]), (1, [])]
    assert found[0][0][0].shape == (7,)


def test_they_are_found_by_every_kind_of_target(declaring):
    declared = "def get_held_out_inputs(): return [[torch.randn(2)]]\n"
    assert len(held_out_inputs(declaring(declared, target="problem.py:problem"))) == 1
    assert len(held_out_inputs(declaring(declared, "held_out_here.py", "held_out_here:problem"))) == 1


def test_where_nothing_is_declared_there_is_nothing(declaring):
    assert held_out_inputs(declaring("")) == []
    assert held_out_inputs(Problem.from_callable(torch.relu, torch.randn(3))) == []


def test_what_is_no_list_is_refused(declaring):
    with pytest.raises(ProblemError, match="returned a int, not a list"):
        held_out_inputs(declaring("def get_held_out_inputs(): return 5\n"))
    with pytest.raises(ProblemError, match="ZeroDivisionError") as fault:
        held_out_inputs(declaring("def get_held_out_inputs(): return 1 / 0\n"))
    assert fault.value.where.endswith("problem.py:4")
