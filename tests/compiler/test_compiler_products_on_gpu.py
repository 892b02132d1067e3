"""`kw optimize` on a GPU runs products as the library's kernel, where it is faster and its file is accepted."""

import runpy

import pytest
import torch

from kernelwright.compiler.library.products import CAPABILITY, GEMM
from kernelwright.compiler.pipeline import optimize_file

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
BUDGET_S = 45.0
SOURCE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(SIZE, SIZE)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(SIZE, SIZE)]


def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def needs_the_gpu_of_the_kernel():
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != CAPABILITY:
        pytest.skip("the product kernel is for Hopper")


@pytest.mark.parametrize("size", [2048, 4096])
def test_a_linear_layer_with_gelu_in_fp32_is_an_emulated_product(tmp_path, size):
    path = tmp_path / "linear_gelu.py"
    path.write_text(SOURCE.replace("SIZE", str(size)))
    found = optimize_file(str(path), device="cuda", budget_s=BUDGET_S)
    assert found.verdict.accepted, found.verdict.reason
    assert found.engine == "kernels", found.notes
    (region,) = found.regions
    library = [one for one in region.attempts if one.config.get("library")]
    assert library and all(one.time_us is not None for one in library), "tried, whether or not it is the fastest"
    config = {one.name: one.config for one in region.attempts}[region.winner]
    assert bool(config.get("library")) == (f"{GEMM}(" in found.source)
    assert config.get("precision") == "fp32_emulated" or config.get("operands") == "split", region.attempts
    made = runpy.run_path(found.output_file)
    torch.manual_seed(0)
    original, optimized = made["Model"]().cuda(), made["ModelNew"]().cuda()
    optimized.load_state_dict(original.state_dict())
    x = torch.randn(size, size, device="cuda")
    with torch.no_grad():
        results = optimized(x), original(x)
        exact = original.double()(x.double())
    error, torch_error = ((one.double() - exact).abs().max() for one in results)
    assert error <= 2 * torch_error
