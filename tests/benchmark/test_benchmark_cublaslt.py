"""The fastest of cublasLt's heuristics: the same results as torch, for every layout and dtype."""

import ctypes

import pytest
import torch

from kernelwright.benchmark import cublaslt
from kernelwright.benchmark.cublaslt import BestHeuristic, Heuristic, LtProduct

gpu = pytest.mark.gpu


def test_the_structures_have_the_sizes_of_the_header():
    assert ctypes.sizeof(cublaslt.Algorithm) == 64
    assert ctypes.sizeof(Heuristic) == 96 and Heuristic.workspace_bytes.offset == 64


@gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("a_by_columns", [False, True])
@pytest.mark.parametrize("b_by_columns", [False, True])
def test_products_in_every_layout(dtype, a_by_columns, b_by_columns):
    a, b = torch.randn(192, 256, device="cuda").to(dtype), torch.randn(256, 320, device="cuda").to(dtype)
    a = a.T.contiguous().T if a_by_columns else a
    b = b.T.contiguous().T if b_by_columns else b
    best = BestHeuristic()
    for _ in range(2):
        torch.testing.assert_close(best(a, b), a @ b, rtol=2e-2, atol=2e-2)
    assert len(list(LtProduct(a, b, None, None).heuristics())) > 1
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = best(a, b)
    result.zero_()
    graph.replay()
    torch.testing.assert_close(result, a @ b, rtol=2e-2, atol=2e-2)


@gpu
@pytest.mark.parametrize("by_row", [False, True])
def test_fp8_with_scales(by_row):
    a, b = (torch.randn(rows, 512, device="cuda").to(torch.float8_e4m3fn) for rows in (256, 384))
    scales = [torch.rand(size, device="cuda") + 0.5 for size in (((256, 1), (1, 384)) if by_row else ((), ()))]
    want = torch._scaled_mm(a, b.T, *scales, out_dtype=torch.bfloat16)
    torch.testing.assert_close(BestHeuristic()(a, b.T, *scales), want, rtol=2e-2, atol=0.1)
