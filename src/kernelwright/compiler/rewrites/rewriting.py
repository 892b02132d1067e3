"""Common parts of the graph rewrites."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from kernelwright.compiler.capture.origins import move_call_values
from kernelwright.compiler.regions.nodes import reduced_dims, shape_of
from kernelwright.compiler.regions.operators import ATEN_REDUCTIONS, SLICE_OPS, SPLIT_OPS, SUPPORTED_OPS, VIEWS, op_name

FULL_PRECISION_DTYPES = (torch.float32, torch.float64)
"""Only these are split: a partial sum of a narrower dtype would be rounded once more."""
aten = torch.ops.aten
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
    value = target(*fx.map_arg(args, lambda arg: arg.meta["val"]), **options)
    new = graph.call_function(target, args, options)
    new.meta["val"] = value
    return new


def insert_view(graph: fx.Graph, node: fx.Node, shape: Sequence[int]) -> fx.Node:
    """Insert a node's value with another shape; copied where its memory is not contiguous."""
    if not tensor_of(node).is_contiguous():
        node = insert_call(graph, aten.clone.default, node, memory_format=torch.contiguous_format)
    return insert_call(graph, aten.view.default, node, list(shape))


@contextmanager
def inserting_calls_before(graph: fx.Graph, node: fx.Node) -> Iterator[None]:
    """Insert calls before a node within the block: see `insert_call`."""
    with graph.inserting_before(node), tensor_of(node).fake_mode, torch.no_grad():  # type: ignore[attr-defined]
        yield


def tensor_of(node: fx.Node) -> torch.Tensor:
    """Return the fake tensor of a node's only or first result."""
    value = node.meta["val"]
    return value[0] if isinstance(value, (tuple, list)) else value


def has_tensor(node: Any) -> bool:
    """Whether something is a node whose value is one tensor."""
    return isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def bind_arguments(node: fx.Node) -> dict[str, Any]:
    """Return all arguments of a call by their names in the operator's schema, defaults included."""
    assert isinstance(node.target, torch._ops.OpOverload)
    names = [argument.name for argument in node.target._schema.arguments]
    defaults = {one.name: one.default_value for one in node.target._schema.arguments if one.has_default_value()}
    return defaults | dict(zip(names, node.args, strict=False)) | node.kwargs


def is_alias(node: fx.Node) -> bool:
    """Whether a node's value shares the memory of its first input."""
    name = op_name(node.target)
    return name in (*VIEWS, *SLICE_OPS, *SPLIT_OPS) or node.target is operator.getitem


def is_returned(node: fx.Node) -> bool:
    """Whether the program returns a node or a view of it, so that its memory has to be its own."""
    return any(user.op == "output" or (is_alias(user) and is_returned(user)) for user in node.users)


def same_layout(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same shape, dtype and strides; strides of dimensions of size 1 do not count."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    strides = zip(one.shape, one.stride(), other.stride(), strict=True)
    return all(left == right for size, left, right in strides if size != 1)


def replace_value(graph: fx.Graph, old: fx.Node, new: fx.Node) -> bool:
    """Let all users of a node read another one with the same values, and erase what is unused then.

    Call it within `inserting_calls_before`. The new value is copied if its layout differs.

    Returns:
        Whether it was replaced; where the old layout cannot be made by a copy, what was inserted is erased.
    """
    before, after = tensor_of(old), tensor_of(new)
    if not same_layout(before, after) and before.shape == after.shape and before.is_contiguous():
        new = insert_call(graph, aten.clone.default, new, memory_format=torch.contiguous_format)
        after = tensor_of(new)
    if not same_layout(before, after):
        erase_unused(graph, new)
        return False
    old.replace_all_uses_with(new)
    move_call_values(old, new)
    erase_unused(graph, old)
    return True


def erase_unused(graph: fx.Graph, node: fx.Node) -> None:
    """Erase a call without users, and then its inputs without users; random operators stay."""
    stack = [node]
    while stack:
        one = stack.pop()
        if one._erased or one.users or one.op != "call_function" or not is_deterministic(one):
            continue
        stack += one.all_input_nodes
        graph.erase_node(one)


def is_deterministic(node: fx.Node) -> bool:
    """Whether a call computes the same for the same inputs, and changes nothing."""
    if node.target is operator.getitem:
        return True
    target = node.target
    if target == aten.scaled_dot_product_attention.default:
        return not bind_arguments(node)["dropout_p"]
    return (
        isinstance(target, torch._ops.OpOverload)
        and not target._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in target.tags
        and "empty" not in op_name(target)
    )


def find_static_nodes(graph: fx.Graph, sources: Any) -> set[fx.Node]:
    """Return the nodes that depend on parameters, buffers and constants only: equal in calls with other arguments."""
    static: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            is_static = sources[node].kind != "argument" and has_tensor(node)
        else:
            is_static = node.op == "call_function" and static.issuperset(node.all_input_nodes)
            is_static = is_static and is_deterministic(node)
        if is_static:
            static.add(node)
    return static
