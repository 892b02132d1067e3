"""Diagonals of what is reduced along its rows or columns: one element picked out of each, so that nobody has to write
the others."""

from __future__ import annotations

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import shape_of
from kernelwright.compiler.regions.operators import LOWERED, VIEWS, packet
from kernelwright.compiler.rewrites.rewriting import made, reduced_before

aten = torch.ops.aten


def pick_diagonals(graph: fx.Graph) -> None:
    """Changes a graph in place: the diagonal of a computed matrix becomes a `gather` along the dimension that is
    reduced on the way to it."""
    for node in graph.find_nodes(op="call_function", target=aten.diagonal.default):
        source = node.args[0]
        if not isinstance(source, fx.Node) or len(shape_of(source)) != 2 or node.args[1:] or node.kwargs:
            continue
        dims = reduced_before(source)
        if len(dims) == 1 and packet(source.target) in LOWERED - {*VIEWS} and len(set(shape_of(source))) == 1:
            _replace(graph, node, source, *dims)


def _replace(graph: fx.Graph, node: fx.Node, source: fx.Node, dim: int) -> None:
    value = node.meta["val"]
    with graph.inserting_before(node), value.fake_mode, torch.no_grad():
        place = made(graph, aten.arange.start_step, 0, shape_of(source)[0], device=value.device)
        picked = made(graph, aten.gather.default, source, dim, made(graph, aten.unsqueeze.default, place, dim))
        node.replace_all_uses_with(made(graph, aten.squeeze.dims, picked, [dim]))
    graph.erase_node(node)
