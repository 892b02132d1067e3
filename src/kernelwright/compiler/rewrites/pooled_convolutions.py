"""A convolution and the average pooling of its output are one convolution, whose kernel is the convolution's kernel
averaged over the positions of a window.

A kernel of k positions and stride s, pooled over p outputs with stride q: k + s (p - 1) positions and stride s q.
Transposed convolutions are in `pooled_transposed`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import node_arg, shape_of
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.rewrites.affine_chains import find_linear_map, insert_steps, is_per_channel
from kernelwright.compiler.rewrites.linear_maps import Convolution
from kernelwright.compiler.rewrites.pooled_transposed import insert_pooled_transposed
from kernelwright.compiler.rewrites.rewriting import (
    FULL_PRECISION_DTYPES,
    bind_arguments,
    has_tensor,
    insert_call,
    insert_view,
    inserting_calls_before,
    replace_value,
    tensor_of,
)

aten = torch.ops.aten
POOLS = {"avg_pool2d": 2, "avg_pool3d": 3}
MAX_TERMS = 16
"""Shifted kernels that are added for a convolution with a stride."""


def compose_pooled_convolutions(graph: fx.Graph) -> int:
    """Replace, in place, average pooling of a convolution's output by one convolution, where that takes fewer FLOPs;
    factors and shifts of the channels between them move behind it. Return how many."""
    return sum(_compose(graph, node) for node in list(graph.nodes) if not node._erased)


class _Pool(NamedTuple):
    """Average pooling: its windows' sizes and strides, its input, and whether it is of one dimension, added in front
    of which is another of size 1."""

    sizes: Sequence[int]
    strides: Sequence[int]
    source: fx.Node
    is_unsqueezed: bool


def _compose(graph: fx.Graph, node: fx.Node) -> bool:
    pool = _match_pool(node)
    found = find_linear_map(pool.source) if pool else None
    if pool is None or found is None or tensor_of(node).dtype not in FULL_PRECISION_DTYPES:
        return False
    convolution, steps = found
    if not isinstance(convolution, Convolution) or len(convolution.stride) != len(pool.sizes):
        return False
    if not all(is_per_channel(step, 1) for step in steps):
        return False
    with inserting_calls_before(graph, node):
        insert = insert_pooled_transposed if convolution.transposed else _insert_composed
        new = insert(graph, convolution, pool.sizes, pool.strides, node)
        if new is None:
            return False
        new = insert_steps(graph, new, steps)
        return replace_value(
            graph, node, insert_call(graph, aten.unsqueeze.default, new, -2) if pool.is_unsqueezed else new
        )


def _insert_composed(
    graph: fx.Graph, convolution: Convolution, sizes: Sequence[int], strides: Sequence[int], node: fx.Node
) -> fx.Node | None:
    if not _saves_work(convolution, node, sizes):
        return None
    stride = tuple(own * other for own, other in zip(convolution.stride, strides, strict=True))
    weight, dilation = _average_kernel(graph, convolution, sizes), (1,) * len(stride)
    return convolution.insert(graph, convolution.input, weight, convolution.bias, stride=stride, dilation=dilation)


def _match_pool(node: fx.Node) -> _Pool | None:
    """Match an average pooling whose windows are all complete."""
    rank = POOLS.get(op_name(node.target))
    if rank is None or not has_tensor(node):
        return None
    given = bind_arguments(node)
    sizes = list(given["kernel_size"]) * (rank if len(given["kernel_size"]) == 1 else 1)
    strides = list(given["stride"] or sizes)
    strides *= rank if len(strides) == 1 else 1
    source = given["self"]
    lengths = shape_of(source)[-rank:]
    complete = [(n - p) // q + 1 for n, p, q in zip(lengths, sizes, strides, strict=True)]
    if any(given["padding"]) or given["divisor_override"] or list(shape_of(node)[-rank:]) != complete:
        return None
    is_row = op_name(source.target) == "unsqueeze" and source.args[1] in (-2, 2) and lengths[0] == sizes[0] == 1
    if is_row and rank == 2 and len(shape_of(source)) == 4 and len(source.users) == 1:
        return _Pool(sizes[1:], strides[1:], node_arg(source, 0), True)
    return _Pool(sizes, strides, source, False)


def _composed_size(convolution: Convolution, sizes: Sequence[int]) -> list[int]:
    settings = zip(convolution.kernel, convolution.dilation, convolution.stride, sizes, strict=True)
    return [(k - 1) * dilation + 1 + stride * (p - 1) for k, dilation, stride, p in settings]


def _saves_work(convolution: Convolution, node: fx.Node, sizes: Sequence[int]) -> bool:
    """Whether the composed kernel takes fewer FLOPs, and is smaller than what is no longer written."""
    composed = math.prod(_composed_size(convolution, sizes))
    out = tensor_of(convolution.node).numel()
    channels = math.prod(shape_of(convolution.weight)[:2])
    is_pooled_itself = all(one == 1 for one in convolution.stride) and len(sizes) > 1
    return (
        tensor_of(node).numel() * composed < out * math.prod(convolution.kernel)
        and 2 * channels * composed < out
        and (is_pooled_itself or math.prod(sizes) <= MAX_TERMS)
    )


def _average_kernel(graph: fx.Graph, convolution: Convolution, sizes: Sequence[int]) -> fx.Node:
    """Insert the composed kernel, from the kernel at all positions of a window."""
    rank, weight = len(sizes), convolution.weight
    weight = _dilate(graph, weight, convolution.dilation)
    if all(stride == 1 for stride in convolution.stride) and rank > 1:
        padded = insert_call(
            graph, aten.constant_pad_nd.default, weight, [p - 1 for p in reversed(sizes) for _ in "lr"]
        )
        pooling = aten.avg_pool2d.default if rank == 2 else aten.avg_pool3d.default
        return insert_call(graph, pooling, padded, list(sizes), [1] * rank)
    for index, (stride, size) in enumerate(zip(convolution.stride, sizes, strict=True)):
        before = 2 * (rank - 1 - index)
        shifted = []
        for position in range(size):
            around = [0] * before + [stride * position, stride * (size - 1 - position)]
            shifted.append(insert_call(graph, aten.constant_pad_nd.default, weight, around))
        weight = shifted[0]
        for other in shifted[1:]:
            weight = insert_call(graph, aten.add.Tensor, weight, other)
    return insert_call(graph, aten.div.Tensor, weight, math.prod(sizes))


def _dilate(graph: fx.Graph, weight: fx.Node, dilation: Sequence[int]) -> fx.Node:
    """Insert zeros between the positions of a kernel."""
    for dim, gap in enumerate(dilation, 2):
        size = shape_of(weight)[dim]
        if gap == 1 or size == 1:
            continue
        spread = insert_call(graph, aten.unsqueeze.default, weight, dim + 1)
        around: list[Any] = [0, 0] * (len(shape_of(weight)) - 1 - dim) + [0, gap - 1]
        padded = insert_call(graph, aten.constant_pad_nd.default, spread, around)
        shape = shape_of(weight)
        flat = insert_view(graph, padded, [*shape[:dim], size * gap, *shape[dim + 1 :]])
        weight = insert_call(graph, aten.slice.Tensor, flat, dim, 0, (size - 1) * gap + 1)
    return weight
