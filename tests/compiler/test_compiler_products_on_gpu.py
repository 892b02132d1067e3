"""`kw optimize` on a GPU runs products as the library's kernel, where it is faster and its file is accepted."""

import runpy

import pytest
import torch

from kernelwright.compiler.library.products import CAPABILITY, GEMM
from kernelwright.compiler.pipeline import optimize_file

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
BUDGET_S = 45.0
LINEAR_GELU = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2048, 2048)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(2048, 2048)]


def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def needs_the_gpu_of_the_kernel():
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != CAPABILITY:
        pytest.skip("the product kernel is for Hopper")


def test_a_linear_layer_with_gelu_in_fp32_is_one_emulated_product(tmp_path):
    path = tmp_path / "linear_gelu.py"
    path.write_text(LINEAR_GELU)
    found = optimize_file(str(path), device="cuda", budget_s=BUDGET_S)
    assert found.verdict.accepted, found.verdict.reason
    assert found.engine == "kernels", found.notes
    (region,) = found.regions
    assert region.winner == "library kernelwright.kernels.gemm, precision fp32_emulated", region.attempts
    assert f"{GEMM}(" in found.source
    made = runpy.run_path(found.output_file)
    torch.manual_seed(0)
    original, optimized = made["Model"]().cuda(), made["ModelNew"]().cuda()
    optimized.load_state_dict(original.state_dict())
    x = torch.randn(2048, 2048, device="cuda")
    with torch.no_grad():
        exact = original.double()(x.double())
        error, torch_error = ((one.double() - exact).abs().max() for one in (optimized(x), original.float()(x)))
    assert error <= 2 * torch_error
