"""Matrix products on a GPU with one row of activations, as in a decoded token: regions compute them.

Such a product takes the time of reading its weight. Tensor cores do not help, and a library's kernel is neither fused
with the operators around it nor always at the memory's speed.
"""

from __future__ import annotations

import torch
from torch import fx

from kernelwright.compiler.capture.target_device import runs_on_cpu
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.nodes import ROW_PRODUCT, shape_of
from kernelwright.compiler.regions.row_products import RowProduct, match_row_product
from kernelwright.compiler.rewrites.rewriting import has_tensor, tensor_of

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MAX_CACHED_ROWS, MAX_CACHED_BYTES = 8, 2**25
"""Rows of a product whose other operand stays in the L2, from which it is read once for each row."""
MIN_DEPTH = 16
"""Shorter sums are not rows: a product of a column and a row is one."""


def mark_row_products(graph: fx.Graph) -> int:
    """Mark the products of few rows of a program on a GPU for the regions; return how many."""
    count = 0
    for node in graph.nodes:
        if node.op != "call_function" or not has_tensor(node) or runs_on_cpu(tensor_of(node)):
            continue
        try:
            product = match_row_product(node)
        except Unsupported:
            continue
        if _is_memory_bound(node, product):
            node.meta[ROW_PRODUCT] = True
            count += 1
    return count


def _is_memory_bound(node: fx.Node, product: RowProduct) -> bool:
    """Whether a product takes the time of reading its right operand once, as sums over rows too."""
    right = tensor_of(product.right)
    if {tensor_of(one).dtype for one in (node, product.left, product.right)} - {*DTYPES}:
        return False
    is_cached = right.numel() * right.element_size() <= MAX_CACHED_BYTES and right.dim() > 2
    return shape_of(product.left)[-1] >= MIN_DEPTH and product.num_rows <= (MAX_CACHED_ROWS if is_cached else 1)
