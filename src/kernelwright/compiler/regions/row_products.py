"""Matrix products with one row, or a few, as sums over rows: each row of the other operand is read once, as fast as
memory allows, and the computation around the product joins the same kernel."""

from __future__ import annotations

from typing import NamedTuple

from torch import fx

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.nodes import node_arg, shape_of
from kernelwright.compiler.regions.operators import op_name


class RowProduct(NamedTuple):
    """left @ right + bias, over the last dimension of `left`.

    Attributes:
        left: (..., M, K), or (K,) of a `linear`.
        right: (N, K) if `is_transposed`, else (..., K, N).
        bias: what is added, broadcast to (..., M, N).
    """

    left: fx.Node
    right: fx.Node
    bias: fx.Node | None
    is_transposed: bool

    @property
    def num_rows(self) -> int:
        """M, which each row of `right` is multiplied by; of a weight without batches also the rows of all batches."""
        shape = shape_of(self.left)
        rows = shape[-2:-1] if len(shape_of(self.right)) > 2 else shape[:-1]
        count = 1
        for size in rows:
            count *= size
        return count


def match_row_product(node: fx.Node) -> RowProduct:
    """Match linear, mm, bmm, addmm, or a matmul of two tensors with at least two dimensions.

    Raises:
        Unsupported: it is another operator, or a scaled sum.
    """
    name = op_name(node.target)
    if name == "linear":
        bias = node.args[2] if len(node.args) > 2 else node.kwargs.get("bias")
        return RowProduct(node_arg(node, 0), node_arg(node, 1), bias if isinstance(bias, fx.Node) else None, True)
    if name == "addmm":
        if any(value != 1 for value in node.kwargs.values()):
            raise Unsupported("a scaled sum of products")
        return RowProduct(node_arg(node, 1), node_arg(node, 2), node_arg(node, 0), False)
    if name not in ("mm", "bmm", "matmul"):
        raise Unsupported(f"{node.target} is not a matrix product")
    left, right = node_arg(node, 0), node_arg(node, 1)
    if min(len(shape_of(left)), len(shape_of(right))) < 2:
        raise Unsupported("a product with a vector")
    return RowProduct(left, right, None, False)
