"""Products of one input with several weights, such as queries, keys and values: one product with all weights, whose
slices are their results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import fx

from kernelwright.compiler.capture.origins import move_call_values
from kernelwright.compiler.regions.nodes import shape_of
from kernelwright.compiler.regions.operators import SUPPORTED_OPS, op_name
from kernelwright.compiler.rewrites.linear_maps import Product, match_linear_map
from kernelwright.compiler.rewrites.rewriting import (
    find_static_nodes,
    insert_call,
    inserting_calls_before,
    is_alias,
    same_layout,
    tensor_of,
)

aten = torch.ops.aten
MIN_ROWS_PER_FEATURE = 4
"""With fewer rows, copying the weights into one costs more than reading the input once instead of several times."""
_READERS = {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "scaled_dot_product_attention"}
"""Operators outside regions that read a strided slice without a copy."""


def join_equal_products(graph: fx.Graph, sources: Any) -> int:
    """Join, in place, products with the same input where their users can read slices; return how many are joined."""
    static = find_static_nodes(graph, sources)
    groups: dict[Any, list[Product]] = {}
    for node in graph.nodes:
        product = match_linear_map(node)
        if not isinstance(product, Product) or product.input in static:
            continue
        if all(one is None or one in static for one in (product.weight, product.bias)):
            key = (product.input, product.is_linear, product.bias is None, tensor_of(product.weight).dtype)
            groups.setdefault(key, []).append(product)
    return sum(len(group) for group in groups.values() if len(group) > 1 and _join(graph, group, static))


def _join(graph: fx.Graph, group: Sequence[Product], static: set[fx.Node]) -> bool:
    first = group[0]
    features = [shape_of(product.node)[-1] for product in group]
    rows = tensor_of(first.input).numel() // max(shape_of(first.input)[-1], 1)
    if rows < MIN_ROWS_PER_FEATURE * sum(features) or not all(product.node.users for product in group):
        return False
    ends = list(accumulate(features))
    shape = (*shape_of(first.node)[:-1], ends[-1])
    with tensor_of(first.node).fake_mode, torch.no_grad():  # type: ignore[attr-defined]
        whole = torch.empty(shape, dtype=tensor_of(first.node).dtype, device=tensor_of(first.node).device)
        slices = [whole[..., end - size : end] for end, size in zip(ends, features, strict=True)]
        values = {product.node: value for product, value in zip(group, slices, strict=True)}
        if not _propagate(values):
            return False
    with inserting_calls_before(graph, first.node):
        _move_before(first.node, [one for product in group for one in (product.weight, product.bias) if one in static])
        weights = [product.weight for product in group]
        weight = insert_call(graph, aten.cat.default, weights, first.out_channels_dim)
        biases = [product.bias for product in group]
        bias = None if first.bias is None else insert_call(graph, aten.cat.default, biases, 0)
        joined = first.insert(graph, first.input, weight, bias)
        parts = [
            insert_call(graph, aten.slice.Tensor, joined, len(shape) - 1, end - size, end)
            for end, size in zip(ends, features, strict=True)
        ]
    for product, part in zip(group, parts, strict=True):
        product.node.replace_all_uses_with(part)
        move_call_values(product.node, part)
        graph.erase_node(product.node)
    for node, value in values.items():
        if not node._erased:
            node.meta["val"] = value
    return True


def _propagate(values: dict[fx.Node, torch.Tensor]) -> bool:
    """Add the values of views of some nodes' new values; whether all users can read the new layouts.

    Operators that make a tensor of their own have to make one with the layout that it has now.
    """
    queue = list(values)
    for node in queue:
        for user in node.users:
            if user.op == "output":
                return False
            name = op_name(user.target)
            if not is_alias(user) and name not in SUPPORTED_OPS and name not in _READERS:
                return False
            try:
                value = _evaluate(user, values)
            except (RuntimeError, ValueError):  # a view that needs other strides
                return False
            if is_alias(user):
                if not isinstance(value, torch.Tensor):
                    return False
                if user not in values:
                    queue.append(user)
                values[user] = value
            elif not isinstance(value, torch.Tensor) or not same_layout(value, tensor_of(user)):
                return False
    return True


def _evaluate(node: fx.Node, values: dict[fx.Node, torch.Tensor]) -> Any:
    assert callable(node.target)
    args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), lambda one: values.get(one, one.meta["val"]))
    return node.target(*args, **kwargs)


def _move_before(place: fx.Node, nodes: Iterable[fx.Node]) -> None:
    """Move static nodes, with what they depend on, before a node that they do not depend on."""
    for node in nodes:
        if node.op == "call_function" and place < node:
            _move_before(place, node.all_input_nodes)
            place.prepend(node)
