"""Axes become one only where memory says so, and what is computed stays the same."""

import sys
from pathlib import Path

import pytest
import torch

from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.regions.axis_merging import merge_axes
from kernelwright.compiler.regions.partition import plan_regions

sys.path.insert(0, str(Path(__file__).parent))
from programs import normal


def region_of(program, *args):
    with torch.no_grad():
        ((region, _),), _ = plan_regions(capture(program, args, {}).graph)
    return merge_axes(region)


@pytest.mark.parametrize(
    ("program", "args", "outer", "row"),
    [
        (lambda x, y: x + y, (normal(3, 5, 7), normal(3, 5, 7)), [105], []),
        (lambda x, y: x + y, (normal(3, 5, 7), normal(7)), [15, 7], []),
        (lambda x, y: x + y, (normal(3, 5, 7), normal(5, 3, 7).transpose(0, 1)), [3, 5, 7], []),
        (lambda x: x.softmax(-1), (normal(3, 5, 7),), [15], [7]),
        (lambda x: x.sum((1, 2)), (normal(3, 5, 7),), [3], [35]),
        (lambda x: x + torch.arange(5)[:, None], (normal(3, 5, 7),), [3, 5, 7], []),
    ],
)
def test_axes_that_memory_runs_through_as_one(program, args, outer, row):
    region = region_of(program, *args)
    assert [axis.size for axis in region.outer] == outer
    assert [axis.size for axis in region.row] == row
