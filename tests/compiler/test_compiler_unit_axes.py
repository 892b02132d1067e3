"""Reductions over dimensions of one are steps of whatever they stand in, with torch's own zeros and NaNs."""

import sys
from pathlib import Path

import pytest
import torch
from tiers import fast_where

sys.path.insert(0, str(Path(__file__).parent))
from test_compiler_cpp import captured, execute

from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.regions.region import Reduction, Scan

inf, nan = float("inf"), float("nan")
X = torch.tensor([0.0, -0.0, 3.5, -2.0, inf, -inf, nan, 1e15, 1e-42]).repeat(5).reshape(45, 1)
WHOLE = torch.arange(-20, 25).reshape(45, 1)
PROGRAMS = {
    "sum": lambda x: x.sum(-1) * 2,
    "mean": lambda x: x.mean(-1) * 2,
    "centred": lambda x: x - x.mean(-1, keepdim=True),
    "prod": lambda x: x.prod(-1) * 2,
    "amax": lambda x: x.amax(-1) * 2,
    "amin": lambda x: x.amin(-1, keepdim=True) * 2,
    "largest": lambda x: x.max(-1),
    "place": lambda x: (x.argmax(-1), x * 2),
    "any": lambda x: (x.any(-1), x.all(-1, keepdim=True)),
    "norm": lambda x: x.norm(dim=-1),
    "var": lambda x: x.var(-1, correction=0),
    "var_of_too_few": lambda x: x.var(-1),
    "std": lambda x: torch.std_mean(x, -1, correction=0),
    "softmax": lambda x: (torch.softmax(x, -1), torch.log_softmax(x, -1)),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (1,)),
    "logsumexp": lambda x: x.logsumexp(-1),
    "cumsum": lambda x: x.cumsum(-1) * 2,
    "cumprod": lambda x: x.cumprod(-1) * 2,
    "gather": lambda x: x.gather(-1, torch.zeros_like(x, dtype=torch.int64)) * 2,
    "two": lambda x: x.reshape(9, 1, 5, 1).sum((1, 3)) * 2,
    "beside_a_row": lambda x: torch.softmax(x.reshape(9, 1, 5), -1) * x.reshape(9, 1, 5).sum(1, keepdim=True),
}
OF_WHOLE_NUMBERS = ("sum", "prod", "amax", "largest", "place", "any", "cumsum")

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom")


def same(got, right, signs=True):
    assert (got.shape, got.dtype) == (right.shape, right.dtype)
    torch.testing.assert_close(got, right, equal_nan=True)
    if right.is_floating_point() and signs:
        zero = right == 0
        assert torch.equal(got[zero].signbit(), right[zero].signbit())


@pytest.mark.parametrize(
    ("name", "x"),
    fast_where(range(0, 99, 2), [*((name, X) for name in PROGRAMS), *((name, WHOLE) for name in OF_WHOLE_NUMBERS)]),
    ids=[*PROGRAMS, *(f"{name}_of_whole" for name in OF_WHOLE_NUMBERS)],
)
def test_they_are_what_torch_says(name, x):
    graph = captured(PROGRAMS[name], x).graph
    regions, refused = plan_regions(graph)
    assert not [node for node in refused if "view" not in str(node.target) and "squeeze" not in str(node.target)]
    wanted = PROGRAMS[name](x)
    for got, right in zip(
        execute(graph, regions, (x,), 0), wanted if isinstance(wanted, tuple) else (wanted,), strict=True
    ):
        same(got, right, signs=name != "layer_norm")  # which torch computes as a times x plus b


@pytest.mark.parametrize("name", fast_where(range(1, 99, 2), sorted(set(PROGRAMS) - {"beside_a_row"})))
def test_nothing_is_reduced(name):
    for region, _ in plan_regions(captured(PROGRAMS[name], X).graph)[0]:
        assert not region.row and not any(isinstance(step, Reduction | Scan) for step in region.steps)


@pytest.mark.parametrize("correction", [2, 3])
def test_a_variance_of_too_few_values_is_infinite_or_not_a_number(correction):
    x = torch.tensor([[1.0, 2.0], [2.0, 2.0], [nan, 1.0]])
    program = lambda x: x.var(-1, correction=correction) * 2  # noqa: E731
    graph = captured(program, x).graph
    regions, refused = plan_regions(graph)
    assert not refused
    same(execute(graph, regions, (x,), 0)[0], program(x))
