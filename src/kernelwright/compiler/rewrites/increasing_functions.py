"""The maximum of an increasing function of the elements of a window is the function of their maximum."""

from __future__ import annotations

import math

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import node_arg, shape_of
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.regions.pooling import Pool
from kernelwright.compiler.rewrites.pools import find_pool, insert_pool
from kernelwright.compiler.rewrites.rewriting import (
    erase_unused,
    has_tensor,
    insert_call,
    inserting_calls_before,
    replace_value,
    tensor_of,
)

aten = torch.ops.aten
INCREASING = frozenset(["relu", "sigmoid", "tanh", "exp", "expm1", "erf", "atan", "sinh", "floor", "ceil", "round"])
"""Functions of one argument that increase, or stay the same, everywhere, and keep NaN."""


def pool_before_functions(graph: fx.Graph) -> int:
    """Move, in place, increasing functions of the input of a maximum pooling to its output; return how many.

    Proof: f(max(a, b)) = max(f(a), f(b)) if f increases or stays the same, also where f rounds, and where a or b is NaN
    if f(NaN) is NaN. Padding is below everything, so that each window needs an element that is not padding.
    """
    count = 0
    for node in list(graph.nodes):
        current: fx.Node | None = node
        while current is not None and not current._erased and (moved := _move(graph, current)) is not None:
            count, current = count + 1, moved
    return count


def _move(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    """Pool the argument of the function that a pooling reads; the new pooling, or None if nothing changed."""
    pool = find_pool(node)
    if pool is None or pool.is_average or len(pool.source.users) > 1 or not _all_have_elements(pool):
        return None
    function, added = _skip_added_dim(pool.source)
    argument = _increasing_argument(function)
    if argument is None or tensor_of(argument).stride() != tensor_of(function).stride():
        return None
    with inserting_calls_before(graph, node):
        source = argument if added is None else insert_call(graph, aten.unsqueeze.default, argument, added)
        pooled = insert_pool(graph, source, pool, pool.dims)
        if pooled is None:
            return None
        if shape_of(pooled) != shape_of(node):
            erase_unused(graph, pooled)
            return None
        args, kwargs = fx.map_arg((function.args, function.kwargs), lambda one: pooled if one is argument else one)
        new = insert_call(graph, function.target, *args, **dict(kwargs))
        return pooled if replace_value(graph, node, new) else None


def _skip_added_dim(node: fx.Node) -> tuple[fx.Node, int | None]:
    """The node that a node adds a dimension of size 1 to, and the dimension: torch pools rows as images of one row."""
    if op_name(node.target) == "unsqueeze" and len(node_arg(node, 0).users) == 1:
        return node_arg(node, 0), int(node.args[1])  # type: ignore[arg-type]
    return node, None


def _all_have_elements(pool: Pool) -> bool:
    """Whether each window has an element that is not padding."""
    for dim in pool.dims:
        for output in range(dim.outputs):
            start = dim.stride * output - dim.padding
            if not any(0 <= start + dim.dilation * position < dim.length for position in range(dim.size)):
                return False
    return True


def _increasing_argument(node: fx.Node) -> fx.Node | None:
    """The argument in which a node increases elementwise."""
    if node.op != "call_function" or not has_tensor(node) or not tensor_of(node).dtype.is_floating_point:
        return None
    name = op_name(node.target)
    first = node.args[0] if node.args else None
    if not has_tensor(first) or not isinstance(first, fx.Node):
        return None
    if tensor_of(first).dtype != tensor_of(node).dtype or shape_of(first) != shape_of(node):
        return None
    if len(node.all_input_nodes) > 1:
        return None
    if name in (*INCREASING, "clamp", "clamp_min", "clamp_max"):
        return first
    number = node.args[1] if len(node.args) > 1 else None
    if name in ("add", "sub"):
        return first if isinstance(number, int | float) and math.isfinite(number) else None
    if name in ("mul", "div") and "rounding_mode" not in node.kwargs:
        return first if isinstance(number, int | float) and 0 < number < math.inf else None
    return None
