"""Results that do not depend on the arguments, such as a softmax over one element, as long as these are finite.

Bounds of every value are computed from the operators. A value whose bounds are equal is a constant, but for NaN.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import node_arg, reduced_dims, shape_of
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.rewrites.rewriting import (
    bind_arguments,
    find_static_nodes,
    has_tensor,
    insert_call,
    inserting_calls_before,
    is_deterministic,
    replace_value,
    tensor_of,
)

aten = torch.ops.aten
Bounds = tuple[float, float]
UNBOUNDED = (-math.inf, math.inf)
_SAME_VALUES = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze")
_MEANS = ("mean", "sum", "amax", "amin", "prod")
_VIEWS = (*_SAME_VALUES, "expand", "permute", "transpose", "t", "slice", "select", "clone")


def count_degenerate_results(graph: fx.Graph, sources: Any) -> int:
    """Return how many results of the program are computed from the arguments and do not depend on them."""
    return len(_find_results(graph, find_constants(graph, sources), find_static_nodes(graph, sources)))


def replace_degenerate_results(graph: fx.Graph, sources: Any) -> int:
    """Replace, in place, constants that such results depend on; return how many.

    Programs with several tensor arguments stay: the layout of an argument that is not read is not checked.
    """
    arguments = [node for node, source in sources.items() if source.kind == "argument" and has_tensor(node)]
    constants = find_constants(graph, sources)
    results = _find_results(graph, constants, find_static_nodes(graph, sources))
    if not results or len(arguments) != 1:
        return 0
    count = 0
    for node, value in reversed(constants.items()):  # the last ones first, so that what they depend on is unused then
        if node._erased or not node.users or not tensor_of(node).is_contiguous():
            continue
        if not any(user not in constants for user in node.users) or not tensor_of(node).is_floating_point():
            continue
        dtype = tensor_of(node).dtype
        with inserting_calls_before(graph, node):
            new = insert_call(graph, aten.new_full.default, arguments[0], list(shape_of(node)), value, dtype=dtype)
            count += replace_value(graph, node, new)
    return count


def _find_results(graph: fx.Graph, constants: dict[fx.Node, float], static: set[fx.Node]) -> list[fx.Node]:
    """The results that depend on constants and static nodes only, and on a constant at least."""
    independent: set[fx.Node] = set()
    for node in graph.nodes:
        inputs = node.all_input_nodes
        depends = node.op == "call_function" and inputs and all(one in independent or one in static for one in inputs)
        if node not in static and (node in constants or (depends and is_deterministic(node))):
            independent.add(node)
    (output,) = (node for node in graph.nodes if node.op == "output")
    return [node for node in output.all_input_nodes if node in independent]


def find_constants(graph: fx.Graph, sources: Any) -> dict[fx.Node, float]:
    """Return the value of each floating-point node that all finite arguments give the same, in all elements."""
    bounds = {node: _literal_bounds(source.value) for node, source in sources.items() if source.kind == "constant"}
    constants = {}
    for node in graph.nodes:
        if node.op != "call_function" or not has_tensor(node) or not tensor_of(node).numel():
            continue
        bounds[node] = low, high = _bounds_of(node, bounds)
        if low == high and tensor_of(node).is_floating_point() and node.all_input_nodes:
            constants[node] = low
    return constants


def _bounds_of(node: fx.Node, bounds: dict[fx.Node, Bounds]) -> Bounds:
    name, args = op_name(node.target), node.args
    known = [_operand_bounds(one, bounds) for one in args[:2]]
    first, second = [*known, UNBOUNDED, UNBOUNDED][:2]
    match name:
        case "sub" if not node.kwargs and _is_difference_of_equals(node):
            return 0.0, 0.0
        case "sub" if not node.kwargs and first == second == (0.0, 0.0):
            return 0.0, 0.0
        case "exp" if first == (0.0, 0.0):
            return 1.0, 1.0
        case "log" if first == (1.0, 1.0):
            return 0.0, 0.0
        case "div" if first == second == (1.0, 1.0):
            return 1.0, 1.0
        case "relu":
            return max(first[0], 0.0), max(first[1], 0.0)
        case "minimum":
            return min(first[0], second[0]), min(first[1], second[1])
        case "maximum":
            return max(first[0], second[0]), max(first[1], second[1])
        case "clamp" | "clamp_min" | "clamp_max":
            return _clamped(node, first)
        case "sigmoid":
            return 0.0, 1.0
        case _ if name in _VIEWS or (name in _MEANS and _reduces_nothing(node)):
            return first
    return UNBOUNDED


def _literal_bounds(value: Any) -> Bounds:
    if not isinstance(value, torch.Tensor) or value.is_meta or value.numel() != 1 or not value.is_floating_point():
        return UNBOUNDED
    return float(value), float(value)


def _operand_bounds(operand: Any, bounds: dict[fx.Node, Bounds]) -> Bounds:
    if isinstance(operand, (int, float)):
        return float(operand), float(operand)
    if isinstance(operand, fx.Node) and op_name(operand.target) in ("full", "scalar_tensor"):
        return _operand_bounds(operand.args[1 if op_name(operand.target) == "full" else 0], bounds)
    return bounds.get(operand, UNBOUNDED) if isinstance(operand, fx.Node) else UNBOUNDED


def _clamped(node: fx.Node, bounds: Bounds) -> Bounds:
    given = bind_arguments(node)
    low, high = given.get("min"), given.get("max")
    if not all(one is None or isinstance(one, (int, float)) for one in (low, high)):
        return UNBOUNDED
    least, most = (-math.inf if low is None else low), (math.inf if high is None else high)
    return min(max(bounds[0], least), most), min(max(bounds[1], least), most)


def _reduces_nothing(node: fx.Node) -> bool:
    """Whether a reduction is over dimensions of size 1."""
    shape = shape_of(node.all_input_nodes[0])
    return all(shape[dim] == 1 for dim in reduced_dims(node, len(shape)))


def _is_difference_of_equals(node: fx.Node) -> bool:
    """Whether both operands have the same elements: a tensor, and its mean or maximum over dimensions of size 1."""
    one, other = node.args[:2]
    if not isinstance(one, fx.Node) or not isinstance(other, fx.Node) or not tensor_of(node).is_floating_point():
        return False
    return shape_of(one) == shape_of(other) == shape_of(node) and _root(one) is _root(other)


def _root(node: fx.Node) -> fx.Node:
    """The first node that has the same elements in the same order."""
    while node.op == "call_function" and node.args and isinstance(source := node.args[0], fx.Node):
        name = op_name(node.target)
        if name == "getitem" and _is_first_of_one(node, source):
            node = node_arg(source, 0)
            continue
        same_dtype = tensor_of(source).dtype == tensor_of(node).dtype
        if not same_dtype or not (name in _SAME_VALUES or (name in _MEANS and _reduces_nothing(node))):
            break
        node = source
    return node


def _is_first_of_one(node: fx.Node, source: fx.Node) -> bool:
    """Whether a node is the maximum or minimum, and not its index, over a dimension of size 1."""
    return op_name(source.target) in ("max", "min") and list(node.args[1:]) == [0] and _reduces_nothing(source)
