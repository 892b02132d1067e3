"""Attention with heads that are too large for torch's fused kernels becomes the two products that torch would run.

torch then stores the scores in any case; as separate operators the products can be kernels, with the softmax between.
"""

from __future__ import annotations

import math

import torch
from torch import fx

from kernelwright.compiler.capture.origins import move_call_values
from kernelwright.compiler.capture.target_device import runs_on_cpu
from kernelwright.compiler.regions.nodes import shape_of
from kernelwright.compiler.rewrites.rewriting import bind_arguments, has_tensor, insert_call, inserting_calls_before

aten = torch.ops.aten
MAX_FUSED_HEAD_SIZE = 256


def unfold_large_attention(graph: fx.Graph) -> int:
    """Replace, in place, such attention by products and a softmax; returns the number of calls."""
    count = 0
    for node in list(graph.find_nodes(op="call_function", target=aten.scaled_dot_product_attention.default)):
        given = bind_arguments(node)
        plain = not given["dropout_p"] and not given["is_causal"] and not given["enable_gqa"] and not given["attn_mask"]
        query, key, value = (given[name] for name in ("query", "key", "value"))
        if not plain or runs_on_cpu(node.meta["val"]) or not all(map(has_tensor, (query, key, value))):
            continue
        batches = {shape_of(one)[:-2] for one in (query, key, value)}
        if shape_of(query)[-1] > MAX_FUSED_HEAD_SIZE and len(batches) == 1 and query.meta["val"].dtype == torch.float32:
            _replace(graph, node, query, key, value, given["scale"])
            count += 1
    return count


def _replace(graph: fx.Graph, node: fx.Node, query: fx.Node, key: fx.Node, value: fx.Node, scale: float | None) -> None:
    rank = len(shape_of(query))
    with inserting_calls_before(graph, node):
        order = [*range(rank - 2), rank - 1, rank - 2]
        scores = insert_call(graph, aten.matmul.default, query, insert_call(graph, aten.permute.default, key, order))
        scores = insert_call(graph, aten.mul.Tensor, scores, scale or 1.0 / math.sqrt(shape_of(query)[-1]))
        shifted = insert_call(graph, aten.sub.Tensor, scores, insert_call(graph, aten.amax.default, scores, [-1], True))
        powers = insert_call(graph, aten.exp.default, shifted)
        total = insert_call(graph, aten.sum.dim_IntList, powers, [-1], True)
        new = insert_call(graph, aten.matmul.default, insert_call(graph, aten.div.Tensor, powers, total), value)
        if new.meta["val"].stride() != node.meta["val"].stride():
            new = insert_call(graph, aten.clone.default, new, memory_format=torch.contiguous_format)
    node.replace_all_uses_with(new)
    move_call_values(node, new)
    graph.erase_node(node)
