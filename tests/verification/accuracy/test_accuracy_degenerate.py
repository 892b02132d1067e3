"""Problems that prove little are called so; sound ones are not."""

import random

import pytest
import torch

import kernelwright as kw
from kernelwright.problems import Problem
from kernelwright.verification.accuracy.degenerate import find_degeneracies
from kernelwright.verification.reference import Reference


def found(program, *names):
    draws = {
        "x": lambda: torch.randn(32, 48),
        "y": lambda: torch.randn(32, 48),
        "few": lambda: torch.randn(3),
        "negative": lambda: -torch.rand(32, 48) - 1,
        "whole": lambda: random.randint(1, 9),
        "mask": lambda: torch.ones(32, 48, dtype=torch.bool),
    }
    problem = Problem(getattr(program, "__name__", "f"), program, lambda: ([draws[name]() for name in names], {}))
    return find_degeneracies(Reference(problem, "cpu", 7, perturb_parameters=False))


@pytest.mark.parametrize(
    ("program", "names", "words"),
    [
        (lambda x, y: x * 2, "xy", ("no output depends on input 1",)),
        (lambda x: torch.zeros(3), "x", ("its outputs are the same for all inputs", "zeros would be accepted")),
        (lambda x: torch.softmax(x, -1).sum(-1), "x", ("its own mean everywhere would be accepted",)),
        (lambda x: x * 2, ["few"], ("its inputs are only 3 numbers",)),
        (
            lambda: torch.arange(50).sin(),
            "",
            ("it has no input tensors and no state: one answer is right for every call",),
        ),
        (lambda x, mask: x * 2, ["x", "mask"], ("no output depends on input 1",)),
        (lambda x: torch.relu(x), ["negative"], ("its outputs are the same for all inputs", "zeros would be")),
    ],
)
def test_a_problem_that_proves_little_is_called_so(program, names, words):
    seen = found(program, *names)
    for part in words:
        assert any(part in one for one in seen), seen


@pytest.mark.parametrize(
    ("program", "names"),
    [
        (lambda x, y: x @ y.T, "xy"),
        (lambda x: torch.softmax(x, -1), "x"),
        (lambda x, mask: x * mask, ["x", "mask"]),
        (lambda x, y: x.add_(y), "xy"),
        (lambda x: x.argmax(-1), "x"),
        (lambda x: x.mean(), "x"),
        (lambda n: torch.arange(50) * n, ["whole"]),
    ],
)
def test_a_sound_one_is_not(program, names):
    assert found(program, *names) == ()


def test_a_verdict_tells(tmp_path):
    (tmp_path / "f.py").write_text(
        "import torch\ndef f(x, y): return x * 2\ndef get_inputs(): return [torch.randn(9, 9), torch.randn(9, 9)]\n"
    )
    (tmp_path / "g.py").write_text("def f(x, y): return x + x\n")
    seen = kw.verify(str(tmp_path / "f.py"), str(tmp_path / "g.py"), check_problem=True)
    assert seen.accepted
    assert seen.problem_warnings == ("no output depends on input 1",)
    assert "no output depends on input 1" in str(seen)


@pytest.mark.slow
def test_asking_changes_nothing_for_the_candidate(tmp_path):
    """The last input set before has other parameters, which must not stay."""
    text = (
        "import torch\nclass {}(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.linear = torch.nn.Linear(24, 24)\n    def forward(self, x): return self.linear(x)\n"
        "def get_inputs(): return [torch.randn(32, 24)]\n"
    )
    (tmp_path / "f.py").write_text(text.format("Model"))
    (tmp_path / "g.py").write_text(text.format("ModelNew"))
    seen = kw.verify(str(tmp_path / "f.py"), str(tmp_path / "g.py"), check_problem=True)
    assert seen.accepted, seen.reason
    assert seen.problem_warnings == ()
