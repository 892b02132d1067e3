"""Attention of one query to cached keys and values on a GPU, as two products of rows with a softmax in between.

torch has no fused kernel for grouped heads with a mask: it copies the cache for every group. As products of rows each
key and value is read where it is, and the mask is computed where it is used.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from kernelwright.compiler.capture.target_device import runs_on_cpu
from kernelwright.compiler.regions.nodes import shape_of
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.rewrites.rewriting import (
    bind_arguments,
    has_tensor,
    insert_call,
    insert_view,
    inserting_calls_before,
    replace_value,
    tensor_of,
)
from kernelwright.compiler.rewrites.row_products import DTYPES, MAX_CACHED_BYTES, MAX_CACHED_ROWS

aten = torch.ops.aten


def split_query_attention(graph: fx.Graph) -> int:
    """Replace, in place, attention of one query per head by products and a softmax; return how many.

    Longer caches than the L2 holds stay with torch, whose kernel reads each key once for all heads of a group.
    """
    count = 0
    for node in list(graph.nodes):
        if op_name(node.target) != "scaled_dot_product_attention" or runs_on_cpu(tensor_of(node)):
            continue
        given = bind_arguments(node)
        if not _has_one_query(given):
            continue
        before = set(graph.nodes)
        with inserting_calls_before(graph, node):
            if not replace_value(graph, node, _insert_rows(graph, given)):
                continue
        for new in set(graph.nodes) - before:
            new.meta |= {"from_node": node.meta.get("from_node")}  # torch runs the call where no kernel is faster
        count += 1
    return count


def _has_one_query(given: dict[str, Any]) -> bool:
    query, key, value, mask = (given[name] for name in ("query", "key", "value", "attn_mask"))
    if given["is_causal"] or given["dropout_p"] or not all(map(has_tensor, (query, key, value))):
        return False
    shapes = [shape_of(one) for one in (query, key, value)]
    if any(len(shape) != 4 for shape in shapes) or shapes[0][2] != 1 or shapes[1][:3] != shapes[2][:3]:
        return False
    (batch, heads, _, size), groups = shapes[0], shapes[1][1]
    if shapes[1][0] != batch or heads % groups or heads // groups > MAX_CACHED_ROWS or min(size, shapes[1][2]) < 16:
        return False
    caches = [tensor_of(one) for one in (key, value)]
    is_small = all(one.numel() * one.element_size() <= MAX_CACHED_BYTES for one in caches)
    dtypes = {tensor_of(one).dtype for one in (query, key, value)}
    known_mask = mask is None or (has_tensor(mask) and tensor_of(mask).dtype in (torch.bool, *dtypes))
    return is_small and len(dtypes) == 1 and dtypes <= {*DTYPES} and known_mask


def _insert_rows(graph: fx.Graph, given: dict[str, Any]) -> fx.Node:
    """Insert the products and the softmax, with the heads of a group as rows; (B, heads, 1, head size)."""
    query, key, value, mask = (given[name] for name in ("query", "key", "value", "attn_mask"))
    (batch, heads, _, size), groups = shape_of(query), shape_of(key)[1]
    scale, dtype = given["scale"] or size**-0.5, tensor_of(query).dtype

    def call(target: Any, *args: Any, **options: Any) -> fx.Node:
        return insert_call(graph, target, *args, **options)

    rows = insert_view(graph, query, [batch, groups, heads // groups, size])
    scores = call(aten.matmul.default, rows, call(aten.permute.default, key, [0, 1, 3, 2]))
    scores = call(aten.mul.Tensor, call(aten._to_copy.default, scores, dtype=torch.float32), scale)
    if mask is not None:
        mask = _group_mask(graph, mask, groups, heads)
        if tensor_of(mask).dtype == torch.bool:
            lowest = call(aten.full.default, [], float("-inf"), dtype=torch.float32, device=tensor_of(query).device)
            scores = call(aten.where.self, mask, scores, lowest)
        else:
            scores = call(aten.add.Tensor, scores, call(aten._to_copy.default, mask, dtype=torch.float32))
    maximum = call(aten.amax.default, scores, [-1], True)
    powers = call(aten.exp.default, call(aten.sub.Tensor, scores, maximum))
    shares = call(aten.div.Tensor, powers, call(aten.sum.dim_IntList, powers, [-1], True))
    if mask is not None:  # a query that may read nothing gets zeros, as from torch
        masked = call(aten.eq.Scalar, maximum, float("-inf"))
        zero = call(aten.full.default, [], 0.0, dtype=torch.float32, device=tensor_of(query).device)
        shares = call(aten.where.self, masked, zero, shares)
    mixed = call(aten.matmul.default, call(aten._to_copy.default, shares, dtype=dtype), value)
    return insert_view(graph, mixed, [batch, heads, 1, shape_of(value)[-1]])


def _group_mask(graph: fx.Graph, mask: fx.Node, groups: int, heads: int) -> fx.Node:
    """The mask with dimensions that broadcast to (B, groups, heads / groups, length)."""
    shape = shape_of(mask)
    if len(shape) < 3 or shape[-3] == 1:
        return mask
    return insert_view(graph, mask, [*shape[:-3], groups, heads // groups, shape[-1]])
