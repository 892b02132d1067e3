"""Results that are the same for all finite arguments are found, and become constants only where that is wanted."""

import math
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))
from rewrite_checks import captured_with, check, count, normal, operators

DEGENERATE = {
    "softmax of one": lambda x: torch.softmax(x, 1),
    "its logarithm": lambda x: torch.log_softmax(x, 1),
    "minus its mean": lambda x: x - x.mean(1, keepdim=True),
    "minus its maximum": lambda x: F.gelu(x - x.amax(1, keepdim=True)) + 1,
    "minus the first result of max": lambda x: x - x.max(1, keepdim=True)[0].view(6, 1),
    "between equal bounds": lambda x: x.clamp(max=0.0).clamp(0.0, 1.0),
    "a minimum, clamped": lambda x: torch.minimum(x, torch.tensor(0.0)).clamp(0.0, 1.0).sum(0),
    "below the relu": lambda x: torch.relu(x.clamp(-3, -1)) * 2,
}


@pytest.mark.parametrize("which", DEGENERATE)
def test_results_that_do_not_depend_on_the_arguments(which):
    program, x = DEGENERATE[which], normal(6, 1)
    found = captured_with(program, [x], "degenerate")
    assert count(found, "degenerate") == 1
    assert not found.is_rewritten
    replaced = check(program, [x], "degenerate_constants")
    assert replaced.is_rewritten
    assert "new_full" in operators(replaced)
    assert not {"exp", "mean", "amax", "max", "relu"} & set(operators(replaced))
    assert program(x).equal(program(normal(6, 1, seed=1)))


OTHERS = {
    "softmax of several": lambda x: torch.softmax(x, 0),
    "x * 0": lambda x: x * 0,
    "x - x of others": lambda x: x - x.flip(0),
    "minus a broadcast mean": lambda x: x - x.mean(0, keepdim=True),
    "logsumexp of one": lambda x: torch.logsumexp(x, 1),
    "bounds apart": lambda x: x.clamp(0, 1),
    "sigmoid": lambda x: torch.sigmoid(x),
    "integers": lambda x: x.argmax(1),
    "no argument at all": lambda x: torch.ones(6),
}


@pytest.mark.parametrize("which", OTHERS)
def test_others_depend_on_them(which):
    assert count(captured_with(OTHERS[which], [normal(6, 1)], "degenerate", "degenerate_constants"), "degenerate") == 0


def test_one_result_of_several():
    program = lambda x: (torch.softmax(x, 1), x + 1)  # noqa: E731
    assert count(captured_with(program, [normal(6, 1)], "degenerate"), "degenerate") == 1
    check(program, [normal(6, 1)], "degenerate_constants")


def test_a_program_of_several_arguments_stays():
    program = lambda x, y: torch.softmax(x + y, 1)  # noqa: E731
    captured = captured_with(program, [normal(6, 1), normal(6, 1)], "degenerate", "degenerate_constants")
    assert (count(captured, "degenerate"), count(captured, "degenerate_constants")) == (1, 0)


def test_what_is_not_finite_is_why_they_stay_by_default():
    x = torch.full((6, 1), math.inf)
    assert torch.softmax(x, 1).isnan().all()
