import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.kernels.matmul.epilogue import PLAIN
from kernelwright.kernels.matmul.fallback import multiply_with_torch
from kernelwright.kernels.matmul.reference import gemm as exact_gemm


class CalledOperators(TorchDispatchMode):
    """Names of the operators that torch dispatches."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "swiglu"])
@pytest.mark.parametrize("out_dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_a_product_with_all_that_follows_is_that_of_fp64(activation, out_dtype, batch):
    a, b = torch.randn(*batch, 5, 40), torch.randn(*batch, 40, 8)
    bias, scale_a, scale_b = torch.randn(8), torch.rand(*batch, 5, 1), torch.rand(1, 8)
    shape = (*batch, 5, 4 if activation == "swiglu" else 8)
    residual = None if activation == "swiglu" else torch.randn(shape, dtype=out_dtype)
    options = {"bias": bias, "residual": residual, "scale_a": scale_a, "scale_b": scale_b}
    options |= {"activation": activation, "alpha": 0.5, "beta": -2.0}
    want = exact_gemm(a, b, **{name: one for name, one in options.items() if one is not None})
    out = residual if residual is not None else torch.full(shape, torch.nan, dtype=out_dtype)
    got = multiply_with_torch(a, b, PLAIN._replace(**options), "fp32", out)
    assert got is out
    tolerance = 1e-5 if out_dtype == torch.float32 else 1e-2
    torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)


def test_an_fp32_product_is_written_once():
    a, b, out = torch.randn(5, 8), torch.randn(8, 7), torch.full((5, 7), torch.nan)
    with CalledOperators() as called:
        multiply_with_torch(a, b, PLAIN, "fp32", out)
    assert called.names == ["mm"]
    torch.testing.assert_close(out, a @ b)
