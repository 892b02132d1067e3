"""Matching and insertion of pooling operators, for the rewrites of poolings."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch import fx

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.nodes import node_arg, shape_of
from kernelwright.compiler.regions.operators import MAX_POOLS, POOLS, op_name
from kernelwright.compiler.regions.pooling import Pool, PoolDim, match_pool
from kernelwright.compiler.rewrites.rewriting import has_tensor, insert_call

aten = torch.ops.aten
_TARGETS = {
    (False, 2): aten.max_pool2d_with_indices.default,
    (False, 3): aten.max_pool3d_with_indices.default,
    (True, 2): aten.avg_pool2d.default,
    (True, 3): aten.avg_pool3d.default,
}


def find_pool(node: fx.Node) -> Pool | None:
    """Return the pooling of which a node is the only result that is used; None if it is not one."""
    if op_name(node.target) == "getitem" and node.args[1] == 0 and isinstance(node.args[0], fx.Node):
        call = node.args[0]
    else:
        call = node
    is_maximum = op_name(call.target) in MAX_POOLS
    if op_name(call.target) not in POOLS or is_maximum != (call is not node) or not has_tensor(node):
        return None
    try:
        return match_pool(call)
    except Unsupported:
        return None


def skip_unit_dims(node: fx.Node) -> fx.Node:
    """Return the node from which others only remove and add dimensions of size 1, in the end none: torch pools rows as
    images of one row."""
    source = node
    while op_name(source.target) in ("squeeze", "unsqueeze") and len(source.users) == 1:
        source = node_arg(source, 0)
    return source if has_tensor(source) and shape_of(source) == shape_of(node) and len(source.users) == 1 else node


def insert_pool(
    graph: fx.Graph, source: fx.Node, like: Pool, dims: Sequence[PoolDim], divisor: int | None = None
) -> fx.Node | None:
    """Insert a pooling of the kind of another with other windows.

    Args:
        divisor: of an average; 0 for the number of elements, None for that of the other pooling.
    Returns:
        Its result; None if torch has no such pooling.
    """
    sizes, strides, paddings, dilations = (
        [getattr(dim, name) for dim in dims] for name in ("size", "stride", "padding", "dilation")
    )
    if any(dim.padding > dim.size // 2 for dim in dims):
        return None
    is_partial = any(dim.bounds(dim.size - 1)[1] >= dim.length + dim.padding for dim in dims)
    target = _TARGETS[like.is_average, len(dims)]
    divisor = like.divisor if divisor is None else divisor
    if like.is_average:
        return insert_call(
            graph, target, source, sizes, strides, paddings, is_partial, like.counts_padding, divisor or None
        )
    both = insert_call(graph, target, source, sizes, strides, paddings, dilations, is_partial)
    with graph.inserting_after(both):
        first = graph.call_function(operator.getitem, (both, 0))
    first.meta["val"] = both.meta["val"][0]
    return first
