"""One model measured in this process, without a compiler."""

import pytest
import torch

from kernelwright.evidence import backend_process
from kernelwright.evidence.backend_process import enlarge_batch, measure_form

MODEL = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.drop = torch.nn.Parameter(torch.arange(8.0)), torch.nn.Dropout(0.5)
        self.rows = []

    def forward(self, x, scale):
        assert not torch.is_grad_enabled()
        self.rows.append(len(x))
        return self.drop(x * self.table + scale)


def get_inputs():
    return [torch.randn(4, 8), torch.randn(8)]
"""


class Forms(dict):
    """What stands for a compiled program, by form; the program itself by default."""

    def __call__(self, program, form):
        self.program = program
        return self.get(form, program)


@pytest.fixture
def forms(monkeypatch):
    found = Forms()
    monkeypatch.setattr(backend_process, "_compile", found)
    monkeypatch.setattr(backend_process, "TIMING_BUDGET_S", 0.01)
    return found


@pytest.fixture
def path(tmp_path):
    (tmp_path / "tiny.py").write_text(MODEL)
    return str(tmp_path / "tiny.py")


def test_the_process_of_our_backend_times_all_forms(path, forms):
    found = measure_form(path, "large", "cpu", "kernelwright", 1)
    assert found.times.keys() == {"eager", "torch.compile", "kernelwright"}, found
    assert found.first_call_s > 0
    assert set(forms.program.rows) == {16}


def test_that_of_inductor_makes_the_first_call_alone(path, forms):
    found = measure_form(path, "small", "cpu", "torch.compile", 1)
    assert (found.times, found.mismatch) == ({}, "")
    assert forms.program.rows == [4, 4]


@pytest.mark.parametrize("form", ["torch.compile", "kernelwright"])
def test_wrong_results_are_not_timed(path, forms, form):
    forms[form] = lambda x, scale: x * 1.01 + scale
    found = measure_form(path, "small", "cpu", "kernelwright", 1)
    assert found.mismatch.startswith(f"{form}: ")
    assert found.times == {}


def test_only_what_has_the_batch_is_enlarged():
    inputs = ([torch.zeros(2, 3), torch.zeros(3), 5], {"steps": torch.arange(2), "scalar": torch.tensor(1.0)})
    args, kwargs = enlarge_batch(inputs, 4)
    assert [args[0].shape, args[1].shape, args[2]] == [(8, 3), (3,), 5]
    assert (kwargs["steps"].tolist(), kwargs["scalar"].shape) == ([0, 1] * 4, ())
