"""addmm with a matrix or with factors becomes a product and its epilogue on a GPU: beta * input + alpha * (a @ b).

One kernel computes both, and what follows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from kernelwright.compiler.capture.target_device import runs_on_cpu
from kernelwright.compiler.regions.nodes import shape_of
from kernelwright.compiler.rewrites.rewriting import (
    bind_arguments,
    has_tensor,
    insert_call,
    inserting_calls_before,
    replace_value,
)

aten = torch.ops.aten


def separate_scaled_products(graph: fx.Graph) -> int:
    """Replace, in place, such calls in FP32 and FP64; returns their number. A vector without factors stays a bias.

    In half precision, the product alone would be rounded, and could overflow, where `addmm` adds in FP32.
    """
    count = 0
    for node in list(graph.find_nodes(op="call_function", target=aten.addmm.default)):
        given = bind_arguments(node)
        added, factors = given["self"], (given["beta"], given["alpha"])
        is_bias = factors == (1, 1) and len(shape_of(added)) == 1
        if is_bias or given["alpha"] == 0 or not has_tensor(node) or runs_on_cpu(node.meta["val"]):
            continue  # with alpha 0, torch ignores NaN in the product
        if node.meta["val"].dtype not in (torch.float32, torch.float64):
            continue
        with inserting_calls_before(graph, node):
            product = insert_call(graph, aten.mm.default, given["mat1"], given["mat2"])
            total = _scaled(graph, product, given["alpha"])
            if given["beta"] != 0:  # with 0, torch ignores NaN in the input
                total = insert_call(graph, aten.add.Tensor, total, _scaled(graph, added, given["beta"]))
            count += replace_value(graph, node, total)
    return count


def _scaled(graph: fx.Graph, node: fx.Node, factor: Any) -> fx.Node:
    return node if factor == 1 else insert_call(graph, aten.mul.Tensor, node, factor)
