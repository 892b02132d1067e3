"""Sums over all of what is computed row by row: each row's first, which the pass that computes it has at hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from kernelwright.optimize.regions.nodes import dtype_of, node_at, reduced_dims, shape_of
from kernelwright.optimize.regions.operators import LOWERED, REDUCED, packet

TOTALS = {"sum": torch.ops.aten.sum.dim_IntList, "mean": torch.ops.aten.mean.dim}
EXACT = (torch.float32, torch.float64)
"""A row's sum of fewer bits would be rounded once more."""
NEAR = 16
"""So many nodes above a value the reduction that it hangs on is looked for."""


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


def reduced_before(node: fx.Node) -> tuple[int, ...]:
    """The dimensions over which something of the same shape is reduced on the way to a node."""
    near, shape = [node], shape_of(node)
    for one in near:
        name = packet(one.target)
        if name in REDUCED and one is not node and shape_of(one.all_input_nodes[0]) == shape:
            return reduced_dims(one, len(shape))
        if name in LOWERED and len(near) < NEAR:
            near += [source for source in one.all_input_nodes if source not in near]
    return ()


def made(graph: fx.Graph, target: Any, *args: Any, **options: Any) -> fx.Node:
    """A new node, where the graph inserts and under the fake mode of its values."""
    new = graph.call_function(target, args, options)
    new.meta["val"] = target(*fx.map_arg(args, lambda arg: arg.meta["val"]), **options)
    return new
