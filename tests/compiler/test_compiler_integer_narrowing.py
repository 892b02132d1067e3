"""Positions are computed in int32 where nobody needs more of them."""

import pytest
import torch

from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.regions.region import Step

X = torch.zeros(30, 70)


def dtypes(program, *args):
    """The dtypes of all whole numbers that are computed in a program's regions."""
    with torch.no_grad():
        regions, _ = plan_regions(capture(program, args, {}).graph)
    assert regions
    steps = (step for region, _ in regions for step in region.steps if isinstance(step, Step))
    return {step.dtype for step in steps if step.dtype.startswith("int")}


def places(x):
    return torch.arange(x.shape[-1])


def far(x):
    rows = torch.arange(x.shape[0])[:, None]
    return torch.where(rows * 2**28 + places(x) > 2**32, x, 0.0)


@pytest.mark.parametrize(
    ("program", "dtype"),
    [
        (lambda x: torch.where(places(x) >= torch.arange(30)[:, None] * 3 - 5, x, 0.0), "int32"),
        (lambda x: x * (places(x) % 7) + places(x) // 2, "int32"),
        (lambda x: x + torch.where(x > 0, places(x), -places(x)), "int32"),
        (far, "int64"),
        (lambda x: places(x) + (x > 0), "int64"),
        (lambda x: torch.where(x > 0, places(x), 0).sum(-1), "int64"),
    ],
    ids=["compared", "divided", "chosen", "too far", "returned", "added up"],
)
def test_whole_numbers_are_as_wide_as_they_have_to_be(program, dtype):
    assert dtypes(program, X) == {dtype}


def test_a_place_that_is_compared_with_a_given_one_is_as_wide_as_that():
    given = torch.zeros(30, 1, dtype=torch.int64)
    assert dtypes(lambda x, at: torch.where(places(x) == at, x, 0.0), X, given) == {"int64"}


def test_a_place_in_a_row_is_compared_in_int32_whatever_the_number_is():
    given = torch.zeros(30, 1, dtype=torch.int64)
    with torch.no_grad():
        graph = capture(lambda x, at: torch.where(places(x) == at, x, 0.0).sum(-1), (X, given), {}).graph
    (((region, _),), _) = plan_regions(graph)
    dtype = {entry.value: entry.dtype for entry in (*region.loads, *region.steps)}
    (compared,) = (step for step in region.steps if step.op == "eq" and any("narrow" in arg for arg in step.args))
    assert [dtype[arg] for arg in compared.args] == ["int32", "int32"]
