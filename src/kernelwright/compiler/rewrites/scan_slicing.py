"""Slices of cumulative sums, as in moving averages: each is a cumsum of a slice plus the sum of the elements before it,
so that the whole cumsum is not stored."""

from __future__ import annotations

import torch
from torch import fx

from kernelwright.compiler.capture.target_device import runs_on_cpu
from kernelwright.compiler.regions.nodes import dim_arg, node_arg
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.rewrites.concat_boundaries import is_elementwise, slice_args
from kernelwright.compiler.rewrites.rewriting import FULL_PRECISION_DTYPES, insert_call

aten = torch.ops.aten
MAX_SLICES = 2
"""Each slice sums all elements before it again."""


def slice_cumsums(graph: fx.Graph) -> int:
    """Replace, in place, a cumsum that is used only in slices along its dimension by one cumsum for each slice;
    return how many."""
    count = 0
    for node in graph.find_nodes(op="call_function", target=aten.cumsum.default):
        value, source = node.meta["val"], node_arg(node, 0)
        input_value = source.meta["val"]
        same_dtype = value.dtype in FULL_PRECISION_DTYPES and input_value.dtype == value.dtype
        if not same_dtype or not input_value.is_contiguous():
            continue
        dim = dim_arg(node, 1, value.dim()) - value.dim()
        if len(node.users) <= MAX_SLICES and all(_is_slice_along(user, dim) for user in node.users):
            for user in list(node.users):
                _, start, stop, _ = slice_args(user, 1)
                with graph.inserting_before(user), value.fake_mode, torch.no_grad():
                    user.replace_all_uses_with(_partial_cumsum(graph, source, dim, start, stop))
                graph.erase_node(user)
            graph.erase_node(node)
            count += 1
    return count


def _is_slice_along(user: fx.Node, dim: int) -> bool:
    """Whether a user is a slice along a dimension with elementwise users only: others could observe its strides."""
    if op_name(user.target) != "slice" or not all(map(is_elementwise, user.users)):
        return False
    slice_dim, _, _, step = slice_args(user, 1)
    return (slice_dim, step) == (dim, 1)


def _partial_cumsum(graph: fx.Graph, source: fx.Node, dim: int, start: int, stop: int) -> fx.Node:
    part = insert_call(graph, aten.slice.Tensor, source, dim, start, stop)
    if not start:
        return insert_call(graph, aten.cumsum.default, part, dim)
    before = insert_call(graph, aten.slice.Tensor, source, dim, 0, start)
    value = source.meta["val"]
    in_fp64 = value.dtype == torch.float32 and runs_on_cpu(value)  # as in torch's own cumsum on a CPU
    if in_fp64:  # rounded once, so that the difference of two slices is 0 where all elements between them are 0
        part, before = (insert_call(graph, aten._to_copy.default, one, dtype=torch.float64) for one in (part, before))
    running = insert_call(graph, aten.cumsum.default, part, dim)
    total = insert_call(graph, aten.sum.dim_IntList, before, [dim], True)
    result = insert_call(graph, aten.add.Tensor, running, total)
    return insert_call(graph, aten._to_copy.default, result, dtype=value.dtype) if in_fp64 else result
