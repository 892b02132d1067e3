"""What says the same of the same values stands once in a region; what only looks alike stays apart."""

import pytest
import torch

from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.regions.cse import eliminate_common_subexpressions
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.regions.region import Load, Reduction, Region, Step, Store


def region_of(program, *args):
    with torch.no_grad():
        ((region, _),), _ = plan_regions(capture(program, args, {}).graph)
    return region


def test_a_mean_is_taken_once_however_often_it_is_written():
    region = region_of(
        lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True) + x.mean(1)[:, None],
        torch.ones(7, 40, device="meta"),  # as on a GPU: on a CPU a deviation has a mean in FP64
    )
    sums = [step for step in region.steps if isinstance(step, Reduction)]
    assert [step.op for step in sums] == ["mean", "sum"]


def test_values_that_go_to_several_places_are_computed_once():
    region = region_of(lambda x, y: (torch.tanh(x + y), torch.tanh(x + y) * 2), torch.ones(7, 40), torch.ones(7, 40))
    assert [step.op for step in region.steps] == ["add", "tanh", "mul"]
    assert len({store.value for store in region.stores}) == 2


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), (1, True), (2, 2.0)])
def test_numbers_that_are_equal_and_not_the_same_stay_apart(one, other):
    steps = [Step(value=name, op="mul", args=("x", arg), dtype="float32") for name, arg in (("a", one), ("b", other))]
    place = {"shape": (1,), "shape_strides": (1,), "strides": {}, "dtype": "float32"}
    region = Region(
        name="r",
        outer=(),
        row=(),
        loads=tuple(Load(value=name, buffer="x", dtype="float32", strides={}) for name in ("x", "again")),
        steps=(*steps, Step(value="c", op="mul", args=("again", one), dtype="float32")),
        stores=tuple(Store(value=name, buffer=f"to_{name}", **place) for name in "abc"),
    )
    found = eliminate_common_subexpressions(region)
    assert [load.value for load in found.loads] == ["x"]
    assert [step.value for step in found.steps] == ["a", "b"]
    assert [store.value for store in found.stores] == ["a", "b", "a"]
