"""What the changes of a graph share."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import reduced_dims, shape_of
from kernelwright.compiler.regions.operators import ATEN_REDUCTIONS, SUPPORTED_OPS, op_name

FULL_PRECISION_DTYPES = (torch.float32, torch.float64)
"""A sum of fewer bits that is cut would be rounded once more."""
MAX_SEARCH_NODES = 16
"""So many nodes above a value the reduction that it hangs on is looked for."""


def upstream_reduced_dims(node: fx.Node) -> tuple[int, ...]:
    """The dimensions over which something of the same shape is reduced on the way to a node."""
    near, shape = [node], shape_of(node)
    for one in near:
        name = op_name(one.target)
        if name in ATEN_REDUCTIONS and one is not node and shape_of(one.all_input_nodes[0]) == shape:
            return reduced_dims(one, len(shape))
        if name in SUPPORTED_OPS and len(near) < MAX_SEARCH_NODES:
            near += [source for source in one.all_input_nodes if source not in near]
    return ()


def insert_call(graph: fx.Graph, target: Any, *args: Any, **options: Any) -> fx.Node:
    """A new node, where the graph inserts and under the fake mode of its values."""
    new = graph.call_function(target, args, options)
    new.meta["val"] = target(*fx.map_arg(args, lambda arg: arg.meta["val"]), **options)
    return new
