"""Equal regions are found, and only those; the plan counts them."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import FirstChoice, KernelsFirst, kernels_called, module_of, quick, text_of

from kernelwright.compiler.in_memory import optimize_problem
from kernelwright.compiler.planning import anonymous_text, plan_problem, plan_program
from kernelwright.core.errors import ProblemError
from kernelwright.problems import Problem

X, WEIGHT = torch.randn(9, 40), torch.randn(40, 40)


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with quick():
        yield


def plan(program, *args):
    return plan_program(program, args, {})


def block(x, factor=2.0):
    return torch.relu(x * factor + 1.0)


def test_equal_blocks_are_one_kernel():
    found = plan(lambda x, w: block(block(block(block(x) @ w) @ w) @ w), X, WEIGHT)
    names = [part.region.name for part in found.regions]
    assert len(names) == 4
    originals = set(names) - set(found.same_as)
    assert found.same_as[names[2]] == found.same_as.get(names[1], names[1])
    assert found.same_as[names[3]] == found.same_as[names[2]]
    assert sum(map(found.count, originals)) == 4


def test_a_block_is_equal_to_the_first_one_too():
    found = plan(lambda x, w: block(block(x) @ w), X, WEIGHT)
    assert found.same_as == {"region_1": "region_0"}
    assert found.count("region_0") == 2


def test_other_operators_make_another_kernel():
    assert not plan(lambda x, w: torch.cos(torch.sin(x) @ w), X, WEIGHT).same_as


DIFFERENT = {
    "shape": lambda x, w: block(block(block(x) @ w)[:4] @ w),
    "dtype": lambda x, w: block((block(block(x) @ w) @ w).double()),
    "number": lambda x, w: block(block(block(x) @ w) @ w, 3.0),
    "strides": lambda x, w: block(block(block(x) @ w) @ w).sum() + block((block(x) @ w).t()),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_blocks_that_differ_are_kernels_of_their_own(what):
    found = plan(DIFFERENT[what], X, WEIGHT)
    last = found.regions[-1]
    assert last.region.name not in found.same_as
    texts = [anonymous_text(part) for part in found.regions]
    assert texts.count(texts[-1]) == 1


def test_blocks_that_read_one_tensor_twice_or_two_are_different():
    found = plan(lambda x, y, w: (x * x + 1, torch.relu(x * y + 1) @ w, torch.relu(y * y + 1) @ w), X, X + 1, WEIGHT)
    texts = [anonymous_text(part) for part in found.regions]
    assert len(set(texts)) == len(texts)


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(40) for _ in range(3))
        self.linears = nn.ModuleList(nn.Linear(40, 40) for _ in range(3))

    def forward(self, x):
        for norm, linear in zip(self.norms, self.linears, strict=True):
            x = linear(norm(x))
        return x


def test_repetitions_have_weights_of_their_own():
    found = plan(Blocks(), X)
    assert len(found.regions) == 3
    *_, second, third = found.regions
    assert found.same_as[third.region.name] == found.same_as.get(second.region.name, second.region.name)
    assert second.region.reads != third.region.reads


REPEATED = """import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(40), nn.Linear(40, 40)
        nn.init.normal_(self.norm.weight)

    def forward(self, x):
        return self.linear(torch.relu(self.norm(x) * 2))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block(), Block())

    def forward(self, x):
        return self.blocks(x)


def get_inputs():
    return [torch.randn(9, 40)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("train", [False, True])
def test_a_file_calls_the_kernel_of_a_repeated_region_for_each(tmp_path, train):
    path = tmp_path / "problem.py"
    path.write_text(REPEATED)
    made = module_of(text_of(path, train=train))
    torch.manual_seed(0)
    old, new, x = made.Model(), made.ModelNew(), torch.randn(9, 40)
    new.load_state_dict(old.state_dict())
    with torch.no_grad(), kernels_called(new) as called:
        torch.testing.assert_close(new(x), old(x))
    first, second, third = called
    assert (second == third) is not train
    if train:
        assert len({first, second, third}) == 3
        new(x).sum().backward()
        old(x).sum().backward()
        for one, other in zip(new.parameters(), old.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)


def test_a_repeated_region_is_tuned_once_and_counted():
    with torch.no_grad():
        made = optimize_problem(Problem.from_callable(Blocks(), X), FirstChoice(), 1, KernelsFirst)
    record = made.optimization
    assert record.verdict.accepted, record.verdict.reason
    assert sum(region.num_occurrences for region in record.regions) == 3
    assert len(record.regions) < 3


def test_operators_that_no_region_takes_are_counted():
    found = plan(lambda x, w: block(x) @ w @ w, X, WEIGHT)
    assert {(left.operator, left.count) for left in found.fallbacks} == {("aten.matmul.default", 2)}


def test_what_cannot_be_captured_has_no_plan():
    problem = Problem.from_callable(lambda x: x * 2 if x.sum() > 0 else x, X)
    with pytest.raises(ProblemError, match="data-dependent control flow"):
        plan_problem(problem, "cpu")
