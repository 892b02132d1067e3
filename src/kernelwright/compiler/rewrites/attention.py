"""Attention that is spelled out, softmax(q k^T * scale + mask) v, becomes one call of scaled_dot_product_attention.

The scores, which have a row for each query and a column for each key, are then not stored. A query whose mask excludes
every key has NaN in the spelled-out form, and 0 in torch's operator. Calls with three dimensions get a fourth, which
the fused kernels need.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import fx

from kernelwright.compiler.capture.origins import move_call_values
from kernelwright.compiler.regions.nodes import shape_of
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.rewrites.rewriting import (
    bind_arguments,
    has_tensor,
    insert_call,
    inserting_calls_before,
    replace_value,
)

aten = torch.ops.aten
PRODUCTS = ("matmul", "bmm")
SDPA = aten.scaled_dot_product_attention.default


class _Scores(NamedTuple):
    """q k^T, what scales it, and the mask: a node that is added, or one that is true where scores are excluded."""

    query: fx.Node
    transposed_key: fx.Node
    scale: float
    added: fx.Node | None
    excluded: fx.Node | None


def recognize_attention(graph: fx.Graph) -> int:
    """Replace, in place, spelled-out attention and calls with three dimensions; returns the number of calls."""
    count = _add_image_dimension(graph)
    for node in list(graph.nodes):
        if op_name(node.target) in PRODUCTS and (scores := _match(node)):
            _replace(graph, node, scores)
            count += 1
    return count


def _add_image_dimension(graph: fx.Graph) -> int:
    """Give calls with three dimensions a fourth, in place: the first dimension is that of the heads of one image.

    Returns:
        The number of calls.
    """
    count = 0
    for node in list(graph.find_nodes(op="call_function", target=SDPA)):
        given = bind_arguments(node)
        tensors = [given.pop(name) for name in ("query", "key", "value", "attn_mask")]
        if len(shape_of(node)) != 3 or given["dropout_p"] or not all(map(has_tensor, tensors[:3])):
            continue
        with inserting_calls_before(graph, node):
            count += replace_value(graph, node, _insert_call(graph, *tensors, **given))
    return count


def _insert_call(
    graph: fx.Graph, query: fx.Node, key: fx.Node, value: fx.Node, mask: fx.Node | None, **options: Any
) -> fx.Node:
    """Insert a call with four dimensions; the first of three is that of the heads of one image."""
    if len(shape_of(query)) == 4:
        return insert_call(graph, SDPA, query, key, value, mask, **options)
    query, key, value = (insert_call(graph, aten.unsqueeze.default, one, 0) for one in (query, key, value))
    if mask is not None and len(shape_of(mask)) == 3:
        mask = insert_call(graph, aten.unsqueeze.default, mask, 0)
    call = insert_call(graph, SDPA, query, key, value, mask, **options)
    return insert_call(graph, aten.squeeze.dim, call, 0)


def _match(node: fx.Node) -> _Scores | None:
    """The scores of a product of a softmax and values."""
    softmax, value = node.args[:2]
    if not isinstance(softmax, fx.Node) or not isinstance(value, fx.Node) or len(softmax.users) != 1:
        return None
    source = _softmax_source(_without_cast(softmax))
    scores = _match_scores(_without_cast(source)) if source else None
    if scores is None or not _fits(scores, value, node):
        return None
    return scores


def _without_cast(node: fx.Node) -> fx.Node:
    """The input of a conversion; half precision is converted to FP32 and back around a softmax."""
    source = node.args[0] if op_name(node.target) == "_to_copy" else node
    return source if isinstance(source, fx.Node) else node


def _softmax_source(node: fx.Node) -> fx.Node | None:
    """The input of a decomposed softmax over the last dimension: exp(x - max x) / sum exp(x - max x)."""
    match node:
        case fx.Node(args=(fx.Node() as power, fx.Node() as total)) if op_name(node.target) == "div":
            pass
        case _:
            return None
    if op_name(power.target) != "exp" or op_name(total.target) != "sum" or total.args[0] is not power:
        return None
    shifted = power.args[0]
    if not isinstance(shifted, fx.Node) or op_name(shifted.target) != "sub" or set(power.users) != {node, total}:
        return None
    source, largest = shifted.args[:2]
    if not isinstance(source, fx.Node) or not isinstance(largest, fx.Node) or op_name(largest.target) != "amax":
        return None
    last = [len(shape_of(source)) - 1]
    along_last = all(_dims(one, len(shape_of(source))) == last and one.args[2:3] == (True,) for one in (total, largest))
    if largest.args[0] is not source or not along_last or set(source.users) != {shifted, largest}:
        return None
    return source


def _dims(node: fx.Node, rank: int) -> list[int]:
    dims: Any = node.args[1] if len(node.args) > 1 else []
    return [int(dim) % rank for dim in dims]


def _match_scores(node: fx.Node) -> _Scores | None:
    """Scores from the mask inwards: mask, scale, product."""
    source, added, excluded = node, None, None
    name, args = op_name(node.target), node.args
    if (
        name == "where"
        and isinstance(args[0], fx.Node)
        and _is_minus_infinity(args[1])
        and isinstance(args[2], fx.Node)
    ):
        excluded, node = args[0], args[2]
    elif name == "add" and all(isinstance(arg, fx.Node) for arg in args[:2]) and not node.kwargs:
        left, right = args[:2]
        pair: Any = (left, right) if _is_scaled_product(left) else (right, left)
        node, added = pair
    scale = 1.0
    if (factor := _scalar_factor(node)) is not None:
        scale, node = factor, node.args[0]  # type: ignore[assignment]
    if op_name(node.target) not in PRODUCTS or (len(node.users) != 1 and node is not source):
        return None
    query, key = node.args[:2]
    if not isinstance(query, fx.Node) or not isinstance(key, fx.Node):
        return None
    return _Scores(query, key, scale, added, excluded)


def _is_minus_infinity(value: Any) -> bool:
    is_constant = isinstance(value, fx.Node) and op_name(value.target) in ("scalar_tensor", "full")
    return is_constant and bool(value.args[-1] == float("-inf"))


def _is_scaled_product(value: Any) -> bool:
    if _scalar_factor(value) is not None:
        value = value.args[0]
    return isinstance(value, fx.Node) and op_name(value.target) in PRODUCTS


def _scalar_factor(value: Any) -> float | None:
    """The number that a node multiplies its input by, which nothing else uses."""
    if not isinstance(value, fx.Node) or op_name(value.target) not in ("mul", "div") or len(value.args) != 2:
        return None
    source, number = value.args
    single = isinstance(source, fx.Node) and len(source.users) == 1
    if not single or isinstance(number, bool) or not isinstance(number, int | float) or number == 0:
        return None
    return float(number) if op_name(value.target) == "mul" else 1.0 / number


def _fits(scores: _Scores, value: fx.Node, result: fx.Node) -> bool:
    """Whether torch's operator takes these operands: of one floating-point dtype, with equal batches."""
    operands = [scores.query, scores.transposed_key, value]
    dtypes = {one.meta["val"].dtype for one in (*operands, result)}
    batches = {shape_of(one)[:-2] for one in (*operands, result)}
    floating = dtypes <= {torch.float32, torch.float16, torch.bfloat16}
    added = scores.added is None or scores.added.meta["val"].dtype in dtypes
    mask = scores.added or scores.excluded
    ranks_fit = mask is None or len(shape_of(mask)) <= len(shape_of(result))
    return floating and len(dtypes) == len(batches) == 1 and added and ranks_fit and len(shape_of(value)) in (3, 4)


def _replace(graph: fx.Graph, node: fx.Node, scores: _Scores) -> None:
    value, values = node.meta["val"], node.args[1]
    assert isinstance(values, fx.Node)
    with graph.inserting_before(node), value.fake_mode, torch.no_grad():
        key = insert_call(graph, aten.permute.default, scores.transposed_key, _swapped(len(value.shape)))
        mask = scores.added
        if scores.excluded is not None:
            mask = insert_call(graph, aten.logical_not.default, scores.excluded)
        call = _insert_call(graph, scores.query, key, values, mask, scale=scores.scale)
        new = call
        if call.meta["val"].stride() != value.stride():
            new = insert_call(graph, aten.clone.default, call, memory_format=torch.contiguous_format)
    node.replace_all_uses_with(new)
    move_call_values(node, new)
    graph.eliminate_dead_code()


def _swapped(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]
