"""Programs whose closures hold parts of the module: they run with changed parameters and in FP64 as any other."""

import torch
from torch import nn

from kernelwright.problems import Problem
from kernelwright.problems.state import replaced_values
from kernelwright.verification import verify


class Closure(nn.Module):
    """As minGPT's block: a lambda holds submodules, which a copy of the module would not replace."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"up": nn.Linear(16, 32), "down": nn.Linear(32, 16)})
        parts = self.parts
        self.run = lambda x: parts["down"](torch.tanh(parts["up"](x)))

    def forward(self, x):
        return x + self.run(x)


def test_closures_see_other_values_and_the_old_ones_afterwards():
    module, x = Closure(), torch.randn(4, 16)
    before, weight = module(x), module.parts["up"].weight
    with replaced_values(module, lambda value: value.double() * 2):
        assert module(x.double()).dtype is torch.float64
    assert module.parts["up"].weight is weight and torch.equal(module(x), before)


def test_a_program_with_closures_has_an_fp64_golden_and_other_parameters():
    torch.manual_seed(0)
    problem = Problem.from_module(Closure(), torch.randn(4, 16))
    verdict = verify(problem, problem.program)
    assert verdict.accepted and verdict.golden == "FP64", verdict.reason


class Remembering(nn.Module):
    """As KernelBench's recurrent cell: it keeps its last state in a plain attribute."""

    def __init__(self):
        super().__init__()
        self.cell, self.hidden = nn.Linear(16, 8), torch.zeros(4, 8)

    def forward(self, x, initial):
        self.hidden.copy_(initial)
        self.hidden = torch.tanh(self.cell(torch.cat([x, self.hidden], 1)))
        return self.hidden * 2


def test_a_state_in_an_attribute_does_not_stay_in_fp64():
    torch.manual_seed(0)
    problem = Problem.from_module(Remembering(), torch.randn(4, 8), torch.randn(4, 8))
    verdict = verify(problem, problem.program)
    assert verdict.accepted and verdict.golden == "FP64", verdict.reason
    assert problem.program.hidden.dtype is torch.float32
