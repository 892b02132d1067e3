"""Programs captured on a CPU for a GPU accumulate as torch does on a GPU."""

import pytest
import torch
import torch.nn.functional as F

from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.capture.target_device import capturing_for
from kernelwright.compiler.regions.partition import plan_regions

PROGRAMS = {
    "variance": lambda x: x / x.std(1, keepdim=True),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True) * 2,
    "slices of a cumsum": lambda x: x.cumsum(1)[:, 4:] - x.cumsum(1)[:, :-4],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_only_programs_for_a_cpu_accumulate_in_fp64(name):
    def describe():
        graph = capture(PROGRAMS[name], (torch.randn(4, 12),), {}).graph
        return str([str(region) for region, _ in plan_regions(graph)[0]])

    assert "float64" in describe()
    with capturing_for("cuda"):
        assert "float64" not in describe()
    assert "float64" in describe()
