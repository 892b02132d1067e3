"""A series that is computed in one batch is rejected, whatever its inputs and outputs are."""

import pytest

import kernelwright as kw

pytestmark = pytest.mark.slow

PROBLEM = """
import torch
class {name}(torch.nn.Module):
    def forward(self, x): return {body}
def get_inputs(): return [{inputs}]
"""
BATCH = """
import sys
import torch
def series(x):
    frame = sys._getframe(1)
    while frame:
        given = frame.f_locals.get("given")
        if given and len(given) > 1:
            return [one[0][0] for one in given]
        frame = frame.f_back
    return [x]
class ModelNew(torch.nn.Module):
    kept = {{}}
    def forward(self, x):
        calls = series(x)
        if calls[0].data_ptr() == x.data_ptr():
            self.kept = {{x.data_ptr(): {body} for x in calls}}
        return self.kept[x.data_ptr()]
"""
ROWS, LABELS = "torch.randn(64, 64)", "torch.randint(0, 100, (4096,))"


@pytest.mark.parametrize(
    ("body", "inputs", "correct"),
    [
        ("x.mul_(2).add_(1)", ROWS, "x.mul_(2.0).add_(1.0)"),
        ("torch.bincount(x, minlength=100)", LABELS, "torch.nn.functional.one_hot(x, 100).sum(0)"),
        ("x.square().sum().item()", ROWS, "torch.dot(x.flatten(), x.flatten()).item()"),
    ],
    ids=["in place", "integers", "a number"],
)
def test_a_batch_of_all_calls(file, body, inputs, correct):
    problem = file("problem.py", PROBLEM.format(name="Model", body=body, inputs=inputs))
    candidate = file("correct.py", PROBLEM.format(name="ModelNew", body=correct, inputs=inputs))
    assert kw.verify(problem, candidate, sets=2).accepted
    batch = kw.verify(problem, file("batch.py", BATCH.format(body=body)), sets=2)
    assert not batch.accepted
    assert "in a timed call" in batch.reason.detail
