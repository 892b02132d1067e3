"""Diagonals of what is reduced along its rows or columns: one element picked out of each, so that nobody has to write
the others."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from kernelwright.optimize.regions.nodes import reduced_dims, shape_of
from kernelwright.optimize.regions.operators import LOWERED, REDUCED, VIEWS, packet

aten = torch.ops.aten
NEAR = 16
"""So many nodes above a value the reduction that it hangs on is looked for."""


def pick_diagonals(graph: fx.Graph) -> None:
    """Changes a graph in place: the diagonal of a computed matrix becomes a `gather` along the dimension that is
    reduced on the way to it."""
    for node in graph.find_nodes(op="call_function", target=aten.diagonal.default):
        source = node.args[0]
        if not isinstance(source, fx.Node) or len(shape_of(source)) != 2 or node.args[1:] or node.kwargs:
            continue
        dim = _reduced_before(source)
        if dim is not None and packet(source.target) in LOWERED - {*VIEWS} and len(set(shape_of(source))) == 1:
            _replace(graph, node, source, dim)


def _reduced_before(node: fx.Node) -> int | None:
    """The dimension over which a matrix of the same size is reduced on the way to a node."""
    near = [node]
    for one in near:
        name = packet(one.target)
        if name in REDUCED and shape_of(one.all_input_nodes[0]) == shape_of(node):
            dims = reduced_dims(one, 2)
            return dims[0] if len(dims) == 1 else None
        if name in LOWERED and len(near) < NEAR:
            near += [source for source in one.all_input_nodes if source not in near]
    return None


def _replace(graph: fx.Graph, node: fx.Node, source: fx.Node, dim: int) -> None:
    def made(target: Any, *args: Any, **options: Any) -> fx.Node:
        new = graph.call_function(target, args, options)
        new.meta["val"] = target(*fx.map_arg(args, lambda arg: arg.meta["val"]), **options)
        return new

    value = node.meta["val"]
    with graph.inserting_before(node), value.fake_mode, torch.no_grad():
        place = made(aten.arange.start_step, 0, shape_of(source)[0], device=value.device)
        picked = made(aten.gather.default, source, dim, made(aten.unsqueeze.default, place, dim))
        node.replace_all_uses_with(made(aten.squeeze.dims, picked, [dim]))
    graph.erase_node(node)
