"""Common parts of the graph rewrites."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import reduced_dims, shape_of
from kernelwright.compiler.regions.operators import ATEN_REDUCTIONS, SUPPORTED_OPS, op_name

FULL_PRECISION_DTYPES = (torch.float32, torch.float64)
"""Only these are split: a partial sum of a narrower dtype would be rounded once more."""
MAX_SEARCH_NODES = 16
"""Upstream nodes of a value that are searched for a reduction."""


def upstream_reduced_dims(node: fx.Node) -> tuple[int, ...]:
    """Return the dimensions of the nearest upstream reduction of a tensor of the same shape; empty if there is none."""
    queue, shape = [node], shape_of(node)
    for upstream in queue:
        name = op_name(upstream.target)
        if name in ATEN_REDUCTIONS and upstream is not node and shape_of(upstream.all_input_nodes[0]) == shape:
            return reduced_dims(upstream, len(shape))
        if name in SUPPORTED_OPS and len(queue) < MAX_SEARCH_NODES:
            queue += [source for source in upstream.all_input_nodes if source not in queue]
    return ()


def insert_call(graph: fx.Graph, target: Any, *args: Any, **options: Any) -> fx.Node:
    """Insert a call at the graph's insertion point, under the current fake mode, and return its node."""
    new = graph.call_function(target, args, options)
    new.meta["val"] = target(*fx.map_arg(args, lambda arg: arg.meta["val"]), **options)
    return new
