"""FP32 matrices as two FP16 terms, by emulation."""

import pytest
import torch

from kernelwright.kernels.matmul.split_operands import COLUMN_THREADS, ROW_THREADS, SOURCE
from kernelwright.toolchain.emulator.launcher import EmulatedKernel


def split(name, rows):
    """High and low terms and inverse scales of (batch, rows, K), by one of the kernels."""
    kernel = EmulatedKernel(SOURCE.read_text(), name, path=str(SOURCE))
    batch, count, k = rows.shape
    by_columns = name.startswith("split_columns")
    outer, inner = (k, count) if by_columns else (count, k)
    pitch = -(-inner // 8) * 8
    high, low = (torch.full((batch, outer, pitch), torch.nan, dtype=torch.float16) for _ in range(2))
    inverse = torch.full((batch, count), -1.0)
    grid = (-(-count // int(name.rpartition("_")[2])) * batch,) if by_columns else (batch * count,)
    strides = [rows.stride(2 if by_columns else 1), rows.stride(0)]
    threads = COLUMN_THREADS if by_columns else ROW_THREADS
    kernel(grid, threads, [rows, high, low, inverse, *strides, count, k, pitch])
    terms = [term[..., :inner].double() for term in (high, low)]
    return *(term.mT if by_columns else term for term in terms), inverse.double()


@pytest.mark.parametrize("name", ["split_rows", "split_columns_32", "split_columns_8"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 37, 101), (1, 8, 600), (1, 130, 7)])
def test_two_terms_hold_an_element_to_22_bits(name, shape):
    batch, count, k = shape
    gaps = torch.randn(batch, k, count + 3).mT if "columns" in name else torch.randn(batch, count, k + 2)
    rows = gaps[:, :count, :k] * torch.exp2(torch.randint(-20, 20, (batch, count, 1)).float())
    high, low, inverse = split(name, gaps[:, :count, :k].copy_(rows))
    error = ((high + low / 2048) * inverse[..., None] - rows.double()).abs()
    largest = rows.double().abs().amax(-1, keepdim=True)
    assert (error <= 2.0**-22 * rows.double().abs() + 2.0**-50 * largest).all()


@pytest.mark.parametrize("name", ["split_rows", "split_columns_32", "split_columns_8"])
def test_rows_that_terms_cannot_hold_are_marked_and_zero(name):
    memory = torch.randn(1, 20, 12) if name == "split_rows" else torch.randn(1, 12, 20).mT
    memory[0, 2, 3], memory[0, 4, 5] = torch.inf, torch.nan
    memory[0, 6] *= 1e-30
    memory[0, 8] *= 2.0**70
    memory[0, 10] = 0.0
    high, low, inverse = split(name, memory)
    assert inverse.isnan().nonzero().tolist() == [[0, 2], [0, 4], [0, 6], [0, 8]]
    for row in (2, 4, 6, 8, 10):
        assert not high[0, row].any() and not low[0, row].any()
