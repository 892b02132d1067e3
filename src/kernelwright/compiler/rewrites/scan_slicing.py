"""Parts of running sums, as moving averages take them: each runs by itself, from the sum of what lies before it, so
that nobody has to write the whole."""

from __future__ import annotations

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import dim_arg, node_arg
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.rewrites.concat_boundaries import is_elementwise, slice_args
from kernelwright.compiler.rewrites.rewriting import FULL_PRECISION_DTYPES, insert_call

aten = torch.ops.aten
MAX_SLICES = 2
"""Each part sums again what lies before it."""


def slice_cumsums(graph: fx.Graph) -> None:
    """Changes a graph in place: a running sum of which others compute on slices along it alone becomes one for each."""
    for node in graph.find_nodes(op="call_function", target=aten.cumsum.default):
        value, source = node.meta["val"], node_arg(node, 0)
        given = source.meta["val"]
        if value.dtype not in FULL_PRECISION_DTYPES or given.dtype != value.dtype or not given.is_contiguous():
            continue
        dim = dim_arg(node, 1, value.dim()) - value.dim()
        if len(node.users) <= MAX_SLICES and all(_is_slice_along(user, dim) for user in node.users):
            for user in list(node.users):
                _, start, stop, _ = slice_args(user, 1)
                with graph.inserting_before(user), value.fake_mode, torch.no_grad():
                    user.replace_all_uses_with(_partial_cumsum(graph, source, dim, start, stop))
                graph.erase_node(user)
            graph.erase_node(node)


def _is_slice_along(user: fx.Node, dim: int) -> bool:
    """Whether it is a slice on which others compute: what only looks at it otherwise would know where it lay."""
    if op_name(user.target) != "slice" or not all(map(is_elementwise, user.users)):
        return False
    along, _, _, step = slice_args(user, 1)
    return (along, step) == (dim, 1)


def _partial_cumsum(graph: fx.Graph, source: fx.Node, dim: int, start: int, stop: int) -> fx.Node:
    part = insert_call(graph, aten.slice.Tensor, source, dim, start, stop)
    if not start:
        return insert_call(graph, aten.cumsum.default, part, dim)
    before = insert_call(graph, aten.slice.Tensor, source, dim, 0, start)
    value = source.meta["val"]
    wider = (torch.float32, "cpu") == (value.dtype, value.device.type)  # as torch itself adds up running sums there
    if wider:  # rounded once, so that the difference of two is nothing where nothing lies between them
        part, before = (insert_call(graph, aten._to_copy.default, one, dtype=torch.float64) for one in (part, before))
    running = insert_call(graph, aten.cumsum.default, part, dim)
    whole = insert_call(graph, aten.add.Tensor, running, insert_call(graph, aten.sum.dim_IntList, before, [dim], True))
    return insert_call(graph, aten._to_copy.default, whole, dtype=value.dtype) if wider else whole
