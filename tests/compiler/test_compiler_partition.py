"""Partition into regions: what is computed where it is read, so that a large intermediate value is not stored."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from test_compiler_cpp import captured, execute

from kernelwright.compiler.capture.target_device import capturing_for
from kernelwright.compiler.regions.partition import plan_regions

IMAGE = torch.randn(4, 6, 16, 20, generator=torch.Generator().manual_seed(0))
LARGE = IMAGE.numel()


def norm_of_channels(x):
    return (x - x.mean((0, 2, 3), True)) * torch.rsqrt(x.var((0, 2, 3), correction=0, keepdim=True) + 1e-5)


def norm_of_rows(x):
    return (x - x.mean(-1, True)) / (x.std(-1, keepdim=True) + 0.1)


MOVED = {
    "a norm before a pooling": lambda x: F.avg_pool2d(norm_of_channels(x).relu(), 2),
    "a norm of the batch": lambda x: F.max_pool2d(F.batch_norm(x, None, None, training=True) * 2, 2),
    "what is read twice": lambda x: ((y := norm_of_rows(x)).sum(2), y.amax(1)),
    "a norm of rows before sums over columns": lambda x: norm_of_rows(x).sum(2),
}


def stored_elements(regions):
    return max(torch.Size(store.shape).numel() for region, _ in regions for store in region.stores)


@pytest.mark.parametrize("why", MOVED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_a_norm_is_computed_where_it_is_read(why, dtype):
    x = IMAGE.to(dtype)
    graph = captured(MOVED[why], x).graph
    regions, refused = plan_regions(graph)
    assert not refused
    assert stored_elements(regions) < LARGE
    expected = MOVED[why](x.double())
    expected = [expected] if torch.is_tensor(expected) else expected
    tolerance = {torch.bfloat16: 5e-2, torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    for got, want in zip(execute(graph, regions, [x], 0), expected, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)


def test_statistics_of_a_norm_are_stored_once_for_those_that_read_it():
    program = nn.Sequential(nn.BatchNorm2d(6), nn.ReLU(), nn.AvgPool2d(2))
    with capturing_for("cuda"):
        regions, _ = plan_regions(captured(program, IMAGE).graph)
    assert sum(region.bytes_moved[0] >= IMAGE.nbytes for region, _ in regions) == 2
    assert stored_elements(regions) == LARGE // 4


STAY = {
    "a result": lambda x: ((y := norm_of_channels(x)), F.avg_pool2d(y, 2)),
    "special functions": lambda x: F.avg_pool2d(norm_of_channels(x).sin(), 2),
    "what torch reads": lambda x: torch.cdist((y := norm_of_channels(x)), y[:1]) + F.avg_pool2d(y, 2).sum(),
}


@pytest.mark.parametrize("why", STAY)
def test_others_are_stored(why):
    regions, _ = plan_regions(captured(STAY[why], IMAGE).graph)
    assert stored_elements(regions) == LARGE
