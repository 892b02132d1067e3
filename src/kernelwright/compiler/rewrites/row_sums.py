"""Sums over rows and other dimensions of a value that is computed row by row: each row is summed first, where it is
computed."""

from __future__ import annotations

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import dtype_of, node_arg, reduced_dims, shape_of
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.rewrites.rewriting import FULL_PRECISION_DTYPES, insert_call, upstream_reduced_dims

REDUCTION_OVERLOADS = {"sum": torch.ops.aten.sum.dim_IntList, "mean": torch.ops.aten.mean.dim}


def reduce_rows_first(graph: fx.Graph) -> int:
    """Reduce, in place, the row dimensions of a sum or mean first, so that the elements of rows are not stored;
    return how many."""
    count = 0
    for node in list(graph.nodes):
        if op_name(node.target) not in REDUCTION_OVERLOADS or node.meta["val"].dtype not in FULL_PRECISION_DTYPES:
            continue
        source = node_arg(node, 0)
        rows = upstream_reduced_dims(source)
        if rows and dtype_of(source) == dtype_of(node) and {*rows} < {*reduced_dims(node, len(shape_of(source)))}:
            with graph.inserting_before(node), node.meta["val"].fake_mode, torch.no_grad():
                node.replace_input_with(
                    source, insert_call(graph, REDUCTION_OVERLOADS[op_name(node.target)], source, list(rows), True)
                )
            count += 1
    return count
