"""Poolings and paddings in regions: which kernels there are, and random ones as C++ against torch."""

import random
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tiers import fast_first

sys.path.insert(0, str(Path(__file__).parent))
from pools import EVEN, IMAGE, ODD, PROGRAMS, normal
from test_compiler_cpp import captured, execute

from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.regions.region import Reduction

MAXIMUM = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
BEFORE = (lambda x: x, lambda x: x.relu() + 1, lambda x: x * x[:, :1], lambda x: x.sigmoid(), lambda x: x.softmax(1))
AFTER = (lambda y: y, lambda y: y * 2 - 1, lambda y: y.sum(1), lambda y: y.softmax(-1), lambda y: y.relu().amax((0, 1)))


def random_program(seed):
    """A pooling with random windows, of a tensor that is padded, computed or in another order, and what reads it."""
    rng = random.Random(seed)
    rank = rng.randint(1, 3)
    sizes = [rng.randint(1, 4 if rank < 3 else 3) for _ in range(rank)]
    options = {
        "stride": [rng.randint(1, 4) for _ in range(rank)],
        "padding": [rng.randint(0, size // 2) for size in sizes],
        "ceil_mode": rng.random() < 0.3,
    }
    if is_maximum := rng.random() < 0.5:
        options["dilation"] = [rng.randint(1, 3) for _ in range(rank)]
    else:
        options["count_include_pad"] = rng.random() < 0.5
    pad = [rng.randint(-1, 2) for _ in range(2 * rng.randint(0, rank))]
    before, after, value = rng.choice(BEFORE), rng.choice(AFTER), rng.choice([0.0, 0.1, float("-inf")])
    x = normal(2, 3, *[rng.randint(10, 23) for _ in range(rank)], seed=seed)
    x = x.to(rng.choice([torch.float32, torch.float64] + [torch.bfloat16] * (rank < 3)))  # torch has no such averages
    if rng.random() < 0.3:
        x = x.transpose(1, -1).contiguous().transpose(1, -1)
    pool = (MAXIMUM if is_maximum else AVERAGE)[rank]
    value = value if is_maximum or value == 0.1 else 0.0
    return (lambda x: after(pool(before(F.pad(x, pad, value=value) if pad else x), sizes, **options))), x


@pytest.mark.parametrize("seed", fast_first(12, range(60)))
def test_random_windows(seed):
    program, x = random_program(seed)
    graph = captured(program, x).graph
    regions, refused = plan_regions(graph)
    assert not any("pool" in op_name(node.target) for node in refused), refused
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if x.dtype == torch.bfloat16 else {}
    for pick in (0, 1):
        (got,) = execute(graph, regions, [x], pick)
        torch.testing.assert_close(got, program(x), equal_nan=True, **tolerance)


FUSED = ["pool_max_relu", "pool_max_sum", "pool_mean_affine", "pool_mean_tiles", "pool_padded", "padded_twice"]


@pytest.mark.parametrize("name", FUSED)
def test_one_region_has_all(name):
    program, *args = PROGRAMS[name]
    regions, refused = plan_regions(captured(program, *args).graph)
    assert len(regions) == 1 and not refused


def test_what_others_read_is_computed_once():
    regions, _ = plan_regions(captured(lambda x: ((y := x.exp()), F.max_pool2d(y, 2)), IMAGE).graph)
    assert sum(step.op == "exp" for region, _ in regions for step in region.steps) == 1


def test_a_special_function_is_not_computed_again_for_windows_that_overlap():
    regions, _ = plan_regions(captured(lambda x: F.avg_pool2d(x.exp(), 3, 1), IMAGE).graph)
    assert sum(step.op == "exp" for region, _ in regions for step in region.steps) == 1
    ((region, _),), _ = plan_regions(captured(lambda x: F.avg_pool2d(x.exp(), 2), IMAGE).graph)
    assert sum(step.op == "exp" for step in region.steps) == 4


def test_windows_read_each_element_once_as_far_as_bytes_are_counted():
    ((region, _),), _ = plan_regions(captured(lambda x: F.max_pool2d(x, 3, 1, 1), IMAGE).graph)
    assert region.bytes_moved == (IMAGE.nbytes, IMAGE.nbytes)
    ((region, _),), _ = plan_regions(captured(lambda x: F.max_pool2d(x, 2, 4), EVEN).graph)
    assert region.bytes_moved == (EVEN.nbytes // 4, EVEN.nbytes // 16)


def test_large_windows_are_rows():
    ((region, _),), _ = plan_regions(captured(lambda x: F.avg_pool2d(x, 8), EVEN).graph)
    assert region.row_size == 64 and any(isinstance(step, Reduction) for step in region.steps)
    assert not any(load.windows for load in region.loads)


LEFT = {
    "indices": lambda x: F.max_pool2d(x, 2, return_indices=True),
    "windows of two sizes": lambda x: F.adaptive_avg_pool2d(x, 5),
    "random windows": lambda x: F.fractional_max_pool2d(x, 2, output_size=7),
}


@pytest.mark.parametrize("why", LEFT)
def test_torch_keeps(why):
    _, refused = plan_regions(captured(LEFT[why], ODD).graph)
    assert any("pool" in op_name(node.target) for node in refused)


def test_a_padded_tensor_is_not_stored():
    graph = captured(lambda x: F.pad(x, (1, 1, 2, 0), value=3.0)[:, :, 1:].relu(), IMAGE).graph
    ((region, _),), refused = plan_regions(graph)
    assert region.reads == ["x"] and not refused
