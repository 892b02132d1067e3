"""FP32 matrices as two FP16 terms, by emulation."""

from dataclasses import replace

import pytest
import torch

from kernelwright.kernels.matmul.split_layout import FIND_LARGEST, SPLIT, THREADS, Layout
from kernelwright.kernels.matmul.split_operands import SOURCE, OperandTerms, pack_split
from kernelwright.toolchain.emulator.launcher import EmulatedKernel

BY_ROWS, BY_COLUMNS = (Layout.BLOCK_ROWS, Layout.WARP_ROWS), (Layout.COLUMNS, Layout.COLUMN_TILES)
LAYOUTS = (*BY_ROWS, *BY_COLUMNS)


def terms_of(rows, layout, offset=0):
    terms = OperandTerms.of(rows, offset, 132)
    assert terms.is_transposed == (layout in BY_COLUMNS)
    return replace(terms, layout=layout, chunks=1 + 2 * (layout == Layout.COLUMN_TILES))


def split(*operands):
    """High and low terms and inverse scales in FP64 of one or two (batch, rows, K) with their layouts."""
    first = terms_of(*operands[0])
    second = terms_of(*operands[-1], first.end)
    workspace = torch.full((second.end,), 0xFF, dtype=torch.uint8)  # NaN
    base = workspace.data_ptr()
    packed = pack_split(first, second, operands[0][0].data_ptr(), operands[-1][0].data_ptr(), base)
    for entry in (FIND_LARGEST, SPLIT):
        EmulatedKernel(SOURCE.read_text(), entry, path=str(SOURCE))(first.blocks + second.blocks, THREADS, [packed])
    found = []
    for terms in (first, second)[: len(operands)]:
        inverse = workspace.view(torch.float32)[terms.inverse_scale // 4 :][: terms.shape[0] * terms.shape[1]]
        found.append((*(one.double() for one in terms.views(workspace)), inverse.reshape(terms.shape[:2]).double()))
    return found


def assert_holds(rows, terms):
    high, low, inverse = terms
    error = ((high + low / 2048) * inverse[..., None] - rows.double()).abs()
    largest = rows.double().abs().amax(-1, keepdim=True)
    assert (error <= 2.0**-22 * rows.double().abs() + 2.0**-50 * largest).all()


def draw(layout, batch, count, k):
    """Rows of many magnitudes with gaps between lines."""
    memory = torch.empty(batch, k, count + 3 + k % 2).mT if layout in BY_COLUMNS else torch.empty(batch, count, k + 2)
    rows = torch.randn(batch, count, k) * torch.exp2(torch.randint(-20, 20, (batch, count, 1)).float())
    return memory[:, :count, :k].copy_(rows)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 37, 101), (1, 8, 600), (1, 130, 7)])
def test_two_terms_hold_an_element_to_22_bits(layout, shape):
    if layout in BY_COLUMNS and shape == (1, 1, 1):
        shape = (1, 1, 2)
    rows = draw(layout, *shape)
    (terms,) = split((rows, layout))
    assert_holds(rows, terms)


@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_one_launch_splits_both_operands(left, right):
    a, b = draw(left, 2, 19, 70), draw(right, 2, 45, 70)
    for rows, terms in zip((a, b), split((a, left), (b, right)), strict=True):
        assert_holds(rows, terms)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_that_terms_cannot_hold_are_marked_and_zero(layout):
    memory = torch.randn(1, 12, 20).mT if layout in BY_COLUMNS else torch.randn(1, 20, 12)
    memory[0, 2, 3], memory[0, 4, 5] = torch.inf, torch.nan
    memory[0, 6] *= 1e-30
    memory[0, 8] *= 2.0**70
    memory[0, 10] = 0.0
    ((high, low, inverse),) = split((memory, layout))
    assert inverse.isnan().nonzero().tolist() == [[0, 2], [0, 4], [0, 6], [0, 8]]
    for row in (2, 4, 6, 8, 10):
        assert not high[0, row].any() and not low[0, row].any()


@pytest.mark.parametrize("layout", BY_ROWS)
@pytest.mark.parametrize("gap", [0, 2])
def test_terms_for_a_product_that_splits_the_other_operand(layout, gap):
    """K is in the order in which a thread of mma holds eight consecutive elements; the other one has scales of 1."""
    rows = draw(layout, 1, 21, 96)
    rows = rows.contiguous() if gap == 0 else rows
    terms, other = replace(OperandTerms.of(rows, 0, 132, for_registers=True), layout=layout), torch.randn(1, 300, 96)
    none = OperandTerms.none(other, terms.end)
    workspace = torch.full((none.end,), 0xFF, dtype=torch.uint8)
    packed = pack_split(terms, none, rows.data_ptr(), other.data_ptr(), workspace.data_ptr())
    EmulatedKernel(SOURCE.read_text(), "split_operands", path=str(SOURCE))(
        terms.blocks + none.blocks, THREADS, [packed]
    )
    floats = workspace.view(torch.float32)
    assert (floats[none.inverse_scale // 4 :][:300] == 1).all()
    high, low = (one.double() for one in terms.views(workspace))
    k = torch.arange(96)
    thread, step, pair, element = k % 32 // 8, k % 8 // 4, k % 4 // 2, k % 2
    position = k // 32 * 32 + 16 * step + 8 * pair + 2 * thread + element
    inverse = floats[terms.inverse_scale // 4 :][:21].double()[:, None]
    error = ((high + low)[0][:, position] * inverse - rows[0].double()).abs()
    largest = rows[0].double().abs().amax(-1, keepdim=True)
    assert (error <= 2.0**-22 * rows[0].double().abs() + 2.0**-39 * largest).all()


def test_the_layout_follows_from_the_strides_and_the_size():
    assert OperandTerms.of(torch.empty(1, 4, 2048), 0, 132).layout == Layout.WARP_ROWS
    assert OperandTerms.of(torch.empty(1, 4, 2052), 0, 132).layout == Layout.BLOCK_ROWS
    assert OperandTerms.of(torch.empty(1, 16, 8192).mT, 0, 132).layout == Layout.COLUMNS
    tiled = OperandTerms.of(torch.empty(1, 4096, 4096).mT, 0, 132)
    assert tiled.layout == Layout.COLUMN_TILES and tiled.chunks * 32 >= 4 * 132
