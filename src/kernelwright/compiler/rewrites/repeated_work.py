"""Work that is done twice or has no effect: equal calls become one, calls that return what they read are removed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from kernelwright.compiler.capture.origins import move_call_values
from kernelwright.compiler.regions.nodes import permuted_dims, shape_of
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.rewrites.rewriting import (
    bind_arguments,
    erase_unused,
    has_tensor,
    insert_call,
    inserting_calls_before,
    is_deterministic,
    is_returned,
    replace_value,
    same_layout,
    tensor_of,
)

aten = torch.ops.aten
_RESHAPES = ("view", "_unsafe_view", "reshape")
_PERMUTATIONS = ("permute", "transpose", "t")
_NON_NEGATIVE = ("relu", "sigmoid")


def remove_repeated_work(graph: fx.Graph) -> int:
    """Remove, in place, calls whose value is already there; return how many. A tensor that the program returns stays
    one of its own."""
    count = 0
    seen: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        if node._erased or node.op != "call_function" or not is_deterministic(node) or is_returned(node):
            continue
        if any(_simplify(graph, node, rule) for rule in RULES):
            count += 1
            continue
        first = seen.setdefault(_key(node), node)
        if first is not node:
            node.replace_all_uses_with(first)
            move_call_values(node, first)
            erase_unused(graph, node)
            count += 1
    return count


def _simplify(graph: fx.Graph, node: fx.Node, rule: Callable[[fx.Graph, fx.Node], fx.Node | None]) -> bool:
    """Let what a rule finds replace a node."""
    if not has_tensor(node) or not node.args or not has_tensor(node.args[0]):
        return False
    with inserting_calls_before(graph, node):
        found = rule(graph, node)
        if found is None:
            return False
        if same_layout(tensor_of(found), tensor_of(node)):
            return replace_value(graph, node, found)
        erase_unused(graph, found)
        return False


def _key(node: fx.Node) -> Any:
    """A key that is equal for equal calls; numbers of different types or signs differ, as 0.0 and -0.0."""
    return node.target, _argument_key(node.args), _argument_key(node.kwargs)


def _argument_key(value: Any) -> Any:
    match value:
        case fx.Node():
            return value
        case list() | tuple():
            return tuple(map(_argument_key, value))
        case dict():
            return tuple((name, _argument_key(one)) for name, one in sorted(value.items()))
    return type(value), repr(value)


# ---- rules: each returns the node that has a node's value already, or inserts it, or returns None


def _match_neutral_operand(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    """x * 1, x / 1, x ** 1, x - 0 and x + (-0.0), which are exact; x + 0.0 is not, since -0.0 + 0.0 is 0.0."""
    source, number = [*node.args, None][:2]
    if node.kwargs or isinstance(number, bool) or not isinstance(number, (int, float)) or len(node.args) != 2:
        return None
    is_floating = tensor_of(node).is_floating_point()
    is_negative = math.copysign(1, number) < 0
    match op_name(node.target):
        case "mul" | "div" | "pow":
            is_neutral = number == 1
        case "sub":
            is_neutral = number == 0 and not is_negative
        case "add":
            is_neutral = number == 0 and (is_negative or not is_floating)
        case _:
            is_neutral = False
    return source if is_neutral else None  # type: ignore[return-value]


def _match_copy(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    """A copy to the same dtype, device and layout, as of a dropout in eval mode."""
    source: Any = node.args[0]
    same_device = tensor_of(source).device == tensor_of(node).device
    return source if op_name(node.target) in ("_to_copy", "clone") and same_device else None


def _match_permutations(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    """A permutation of a permutation, and one that changes nothing."""
    source: Any = node.args[0]
    if op_name(node.target) not in _PERMUTATIONS:
        return None
    rank = len(shape_of(node))
    dims = permuted_dims(node, rank)
    if op_name(source.target) in _PERMUTATIONS:
        inner = permuted_dims(source, rank)
        source, dims = source.args[0], [inner[dim] for dim in dims]
    elif dims != list(range(rank)):
        return None
    return source if dims == list(range(rank)) else insert_call(graph, aten.permute.default, source, dims)


def _match_reshapes(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    """A reshape of a reshape, and one to the shape that a tensor has."""
    source: Any = node.args[0]
    name = op_name(node.target)
    if name not in (*_RESHAPES, "expand"):
        return None
    if shape_of(source) == shape_of(node):
        return source
    if name == "expand" or op_name(source.target) not in _RESHAPES:
        return None
    if shape_of(source.args[0]) == shape_of(node):
        return source.args[0]
    try:
        return insert_call(graph, aten.view.default, source.args[0], list(shape_of(node)))
    except (RuntimeError, ValueError):  # its strides do not allow this in one step
        return None


def _match_repeated_relu(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    source: Any = node.args[0]
    return source if op_name(node.target) == "relu" and op_name(source.target) in _NON_NEGATIVE else None


def _match_clamps(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    """A clamp of a clamp: one clamp to what the outer one makes of the inner bounds."""
    source: Any = node.args[0]
    if op_name(node.target) != "clamp" or op_name(source.target) != "clamp":
        return None
    dtypes = {tensor_of(one).dtype for one in (node, source, source.args[0])}
    if len(dtypes) != 1 or not tensor_of(node).is_floating_point():
        return None
    inner, outer = (_clamp_bounds(one) for one in (source, node))
    if inner is None or outer is None:
        return None
    bounds = [min(max(bound, outer[0]), outer[1]) for bound in inner]
    limits = [None if math.isinf(bound) else bound for bound in bounds]
    return insert_call(graph, aten.clamp.default, source.args[0], *limits)


def _clamp_bounds(node: fx.Node) -> tuple[float, float] | None:
    """The bounds of a clamp, if they are numbers of which the first is not larger."""
    given = bind_arguments(node)
    low = -math.inf if given["min"] is None else given["min"]
    high = math.inf if given["max"] is None else given["max"]
    is_number = all(isinstance(bound, (int, float)) for bound in (low, high))
    return (low, high) if is_number and low <= high else None


RULES = (
    _match_neutral_operand,
    _match_copy,
    _match_permutations,
    _match_reshapes,
    _match_repeated_relu,
    _match_clamps,
)
