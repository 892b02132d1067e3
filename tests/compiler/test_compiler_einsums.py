"""Einsums of matrices become products; others stay."""

import sys
from pathlib import Path

import pytest
import torch
from torch import fx, nn

sys.path.insert(0, str(Path(__file__).parent))
from rewrite_checks import captured_with

from kernelwright.compiler.reference import bind_placeholders

PRODUCTS = {
    "ij,jk->ik": ((3, 4), (4, 5)), "ij,kj->ik": ((3, 4), (5, 4)), "ij,kj->ki": ((3, 4), (5, 4)),
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)), "bhqd,bhkd->bhqk": ((2, 3, 4, 5), (2, 3, 6, 5)),
    "bqhd,bkhd->bhqk": ((2, 4, 3, 5), (2, 6, 3, 5)), "bij,bjk->ibk": ((2, 3, 4), (2, 4, 5)),
    "ij,jkl->ikl": ((3, 4), (4, 5, 2)), "bclhp,bclhn->bhpn": ((2, 3, 4, 5, 2), (2, 3, 4, 5, 3)),
    "lmj,kj->lkm": ((3, 4, 5), (2, 5)),
}  # fmt: skip
OTHERS = {
    "ij,ij->ij": ((3, 4), (3, 4)), "ii,ij->ij": ((3, 3), (3, 4)), "kji,lj->lki": ((2, 5, 3), (6, 5)),
    "ij,jk->": ((3, 4), (4, 5)), "...ij,jk->...ik": ((2, 3, 4), (4, 5)), "i,j->ij": ((3,), (4,)),
}  # fmt: skip


def captured_einsum(equation, shapes):
    args = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    captured = captured_with(lambda a, b: torch.einsum(equation, a, b), args, "einsums")
    module = fx.GraphModule(nn.Module(), captured.graph)
    (got,) = module(*bind_placeholders(captured, lambda a, b: None, args, {}))
    return captured, got, torch.einsum(equation, *args)


@pytest.mark.parametrize(("equation", "shapes"), PRODUCTS.items(), ids=PRODUCTS)
def test_an_einsum_of_matrices_becomes_a_product(equation, shapes):
    captured, got, expected = captured_einsum(equation, shapes)
    targets = [str(node.target) for node in captured.graph.nodes]
    assert "aten.matmul.default" in targets and "aten.einsum.default" not in targets
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(("equation", "shapes"), OTHERS.items(), ids=OTHERS)
def test_other_einsums_stay(equation, shapes):
    captured, got, expected = captured_einsum(equation, shapes)
    assert "aten.matmul.default" not in [str(node.target) for node in captured.graph.nodes]
    torch.testing.assert_close(got, expected)
