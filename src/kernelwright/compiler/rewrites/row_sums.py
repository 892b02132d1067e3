"""Sums over all of what is computed row by row: each row's first, which the pass that computes it has at hand."""

from __future__ import annotations

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import dtype_of, node_arg, reduced_dims, shape_of
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.rewrites.rewriting import FULL_PRECISION_DTYPES, insert_call, upstream_reduced_dims

REDUCTION_OVERLOADS = {"sum": torch.ops.aten.sum.dim_IntList, "mean": torch.ops.aten.mean.dim}


def reduce_rows_first(graph: fx.Graph) -> None:
    """Changes a graph in place: a sum or mean over the dimensions of rows and over others takes that of rows instead
    of what they are made of, which then nobody has to write."""
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
