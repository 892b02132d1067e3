"""What is near the reference need not be judged, and nothing else is near."""

import math

import pytest
import torch

from kernelwright.verification.accuracy.prescreen import prescreen_distance
from kernelwright.verification.execution import ObservedCall
from kernelwright.verification.outcome import run_program


def apart(reference, candidate, inputs):
    """The distance of what the candidate returns; inputs stay as they are."""
    result = candidate(*inputs)
    leaves = {f"[{at}]": one for at, one in enumerate(result)} if isinstance(result, tuple) else {"": result}
    return prescreen_distance(
        ObservedCall("", leaves, {}), (list(inputs), {}), run_program(reference, None, (list(inputs), {}))
    )


def gelu(x):
    return torch.nn.functional.gelu(x)


def noise(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_other_ways_of_computing_the_same_are_near(dtype):
    x = noise(512, 1024, dtype=dtype)
    assert apart(gelu, lambda x: gelu(x.double()).to(dtype), [x]) <= 1
    assert apart(lambda x: x.softmax(-1), lambda x: x.double().softmax(-1).to(dtype), [x]) <= 1


@pytest.mark.parametrize(
    "candidate",
    [
        lambda a, b: (a.half() @ b.half()).float(),
        lambda a, b: (a @ b).bfloat16().float(),
        lambda a, b: (a @ b).index_fill(0, torch.tensor([7]), 0),
        lambda a, b: (a @ b).flatten().index_add(0, torch.tensor([999]), torch.tensor([1.0])).view(64, 64),
        lambda a, b: (a @ b).flatten().index_fill(0, torch.tensor([999]), math.nan).view(64, 64),
        lambda a, b: (a @ b)[:63],
        lambda a, b: (a @ b).double(),
        lambda a, b: (a @ b, a),
    ],
)  # fmt: skip
def test_shortcuts_are_far(candidate):
    assert apart(torch.matmul, candidate, [noise(64, 512), noise(512, 64)]) > 1


@pytest.mark.parametrize("row", [0, 31])
def test_a_row_is_measured_by_its_own_scale(row):
    x = noise(32, 64) * torch.exp2(-torch.arange(32.0))[:, None]
    assert apart(lambda x: x * 3, lambda x: (x.double() * 3).float(), [x]) <= 1
    assert apart(lambda x: x * 3, lambda x: (x * 3).index_fill(0, torch.tensor([row]), 0), [x]) > 1
    assert (
        apart(lambda x: x * 3, lambda x: (x * 3).index_copy(0, torch.tensor([row]), 3.01 * x[row : row + 1]), [x]) > 1
    )


def test_numbers_and_integers_are_near_only_where_they_are_the_same():
    def both(x):
        return x.argmax(-1), len(x), x.sum()

    x = noise(16, 8)
    assert apart(both, both, [x]) == 0
    assert apart(both, lambda x: (x.argmax(-1), len(x) + 1, x.sum()), [x]) > 1
    assert apart(both, lambda x: (x.argmin(-1), len(x), x.sum()), [x]) > 1


def test_what_is_changed_is_asked_as_what_is_returned():
    def add(x):
        x += 1

    given = ([noise(64)], {})
    outcome = run_program(add, None, given)

    def seen(**more):
        return prescreen_distance(ObservedCall("NoneType", {"": None}, {}, **more), given, outcome)

    assert seen(mutated_inputs={0: given[0][0] + 1}) == 0
    assert seen() > 1, "nothing was changed"
    assert seen(mutated_inputs={0: given[0][0] + 1, 1: noise(3)}) > 1
    assert seen(mutated_inputs={0: given[0][0] + 1}, changed_state={"calls": noise(1)}) > 1
    assert seen(mutated_inputs={0: given[0][0] + 1}, out_of_bounds_inputs=[0]) > 1
    assert seen(mutated_inputs={0: given[0][0] + 1}, complete_on_return=False) > 1


def test_where_the_reference_raises_nothing_is_near():
    assert prescreen_distance(ObservedCall("", {"": noise(3)}, {}), ([], {}), None) > 1
