"""`why` on real programs: what it leaves alone, and code in which torch sees nothing."""

import importlib
import random

import pytest
import torch

import kernelwright
from kernelwright.core.errors import ProblemError, UsageError
from kernelwright.diagnosis import why_files

PROBLEM = """
import torch
def smooth(x):
    return torch.tanh(x) * 2
def smooth_inputs():
    return [torch.randn(512, 512)]
"""
IN_NUMPY = """
import numpy, torch
def smooth(x):
    return torch.from_numpy(numpy.tanh(x.numpy()) * 2)
"""
IN_TORCH = """
import torch
def smooth(x):
    return torch.tanh(x).mul_(2)
"""


@pytest.fixture
def files(tmp_path):
    for name, text in (("smooth", PROBLEM), ("in_numpy", IN_NUMPY), ("in_torch", IN_TORCH)):
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


@pytest.mark.slow
def test_code_that_torch_cannot_see_is_read_as_the_work_of_the_problem(files):
    found = why_files([f"{files}/smooth.py:smooth", f"{files}/in_numpy.py:smooth"])
    (row,) = found.operators
    assert row.bytes == 2 * 4 * 512 * 512
    assert found.floors.fused_us > 0


@pytest.mark.slow
def test_a_candidate_of_torch_operators_is_read_by_them(files):
    found = why_files([f"{files}/smooth.py:smooth", f"{files}/in_torch.py:smooth"])
    assert [row.name for row in found.operators] == ["tanh", "mul_"]


def test_code_that_torch_cannot_see_has_a_floor_on_a_machine_that_is_not_there(files):
    found = why_files([f"{files}/smooth.py:smooth", f"{files}/in_numpy.py:smooth"], spec="h200")
    assert found.predicted and found.floors.fused_us > 0


def test_what_torch_would_compile_is_not_predicted(files):
    with pytest.raises(UsageError, match="known only on the machine itself"):
        why_files([f"{files}/smooth.py:smooth"], spec="h200", compiled=True)


@pytest.mark.slow
def test_a_live_module_and_the_random_state_are_left_as_they_were():
    norm = torch.nn.BatchNorm1d(8).train()
    before, state = {name: value.clone() for name, value in norm.state_dict().items()}, random.getstate()
    kernelwright.why(norm, torch.randn(64, 8))
    kernelwright.bench(kernelwright.Problem.from_module(norm, torch.randn(64, 8)), lambda x: x)
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())
    assert random.getstate() == state


@pytest.mark.parametrize("compiled", [False, True])
def test_who_raises_is_told_before_memory_is_measured(compiled, monkeypatch):
    for name in ("why", "compiled"):
        module = importlib.import_module(f"kernelwright.diagnosis.{name}")
        monkeypatch.setattr(module, "refresh_memory", lambda known: pytest.fail("memory was measured"))

    def raises(x):
        raise ValueError("no")

    with pytest.raises(ProblemError, match="no"):
        kernelwright.why(raises, torch.ones(3), compiled=compiled)
