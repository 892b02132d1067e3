"""Sums over all of what is computed row by row: each row's first, which the pass that computes it has at hand."""

from __future__ import annotations

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import dtype_of, node_at, reduced_dims, shape_of
from kernelwright.compiler.regions.operators import packet
from kernelwright.compiler.rewrites.rewriting import EXACT, made, reduced_before

TOTALS = {"sum": torch.ops.aten.sum.dim_IntList, "mean": torch.ops.aten.mean.dim}


def sum_rows_first(graph: fx.Graph) -> None:
    """Changes a graph in place: a sum or mean over the dimensions of rows and over others takes that of rows instead
    of what they are made of, which then nobody has to write."""
    for node in list(graph.nodes):
        if packet(node.target) not in TOTALS or node.meta["val"].dtype not in EXACT:
            continue
        source = node_at(node, 0)
        rows = reduced_before(source)
        if rows and dtype_of(source) == dtype_of(node) and {*rows} < {*reduced_dims(node, len(shape_of(source)))}:
            with graph.inserting_before(node), node.meta["val"].fake_mode, torch.no_grad():
                node.replace_input_with(source, made(graph, TOTALS[packet(node.target)], source, list(rows), True))
