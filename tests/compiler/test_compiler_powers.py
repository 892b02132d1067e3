"""Known powers against float64, on a GPU."""

import pytest
import torch

from kernelwright.compiler.backends import TRITON
from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.kernel_source import RegionKernel
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.triton.configs import generate_configs

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

MOST = 2 * 2**-24
"""Relative; CUDA's `pow` errs by 1.3 of these where the exponent is a float."""
ODD = (0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-40, -2.0, 1.0, 3e38)


def kernel_of(program, x):
    with torch.no_grad():
        ((region, _),), _ = plan_regions(capture(program, (torch.empty_like(x, device="meta"),), {}).graph)
    return getattr(TRITON.load(TRITON.emit_module([RegionKernel(region, generate_configs(region)[0])])), region.name)


@pytest.mark.parametrize("exponent", [1 / 2.4, 2.2, -0.75, 3.5, 1e-3])
def test_known_powers_err_by_less_than_two_roundings(exponent):
    reach = 120 / max(1, abs(exponent))
    x = torch.exp2((torch.rand(2**24, device="cuda") * 2 - 1) * reach)
    got = kernel_of(lambda x: x**exponent, x)(x)
    right = x.double() ** exponent
    assert ((got - right) / right).abs().max().item() < MOST


def test_what_is_no_ordinary_number_is_left_to_cuda():
    x = torch.tensor(ODD * 1000, device="cuda")
    torch.testing.assert_close(kernel_of(lambda x: x**0.4, x)(x), x**0.4, equal_nan=True)
