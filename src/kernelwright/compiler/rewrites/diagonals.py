"""Diagonals of a matrix whose rows or columns are reduced: a gather of one element per row, so that the matrix is not
stored."""

from __future__ import annotations

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import shape_of
from kernelwright.compiler.regions.operators import SUPPORTED_OPS, VIEWS, op_name
from kernelwright.compiler.rewrites.rewriting import insert_call, upstream_reduced_dims

aten = torch.ops.aten


def gather_diagonals(graph: fx.Graph) -> int:
    """Replace, in place, the diagonal of a computed matrix by a `gather` along the dimension that is reduced to
    compute it; return how many."""
    count = 0
    for node in graph.find_nodes(op="call_function", target=aten.diagonal.default):
        source = node.args[0]
        if not isinstance(source, fx.Node) or len(shape_of(source)) != 2 or node.args[1:] or node.kwargs:
            continue
        dims = upstream_reduced_dims(source)
        if len(dims) == 1 and op_name(source.target) in SUPPORTED_OPS - {*VIEWS} and len(set(shape_of(source))) == 1:
            _replace(graph, node, source, *dims)
            count += 1
    return count


def _replace(graph: fx.Graph, node: fx.Node, source: fx.Node, dim: int) -> None:
    value = node.meta["val"]
    with graph.inserting_before(node), value.fake_mode, torch.no_grad():
        position = insert_call(graph, aten.arange.start_step, 0, shape_of(source)[0], device=value.device)
        index = insert_call(graph, aten.unsqueeze.default, position, dim)
        gathered = insert_call(graph, aten.gather.default, source, dim, index)
        node.replace_all_uses_with(insert_call(graph, aten.squeeze.dims, gathered, [dim]))
    graph.erase_node(node)
