"""The average pooling of a 1x1 convolution's output is the convolution of the pooled input, which has fewer positions.

Proof: a 1x1 convolution is an affine map of the channels, the same at every position, and a complete window averages
with weights that add up to 1. Both are linear in the input, one over channels and one over positions, so that their
order does not matter, and the average of a constant bias is the bias.
"""

from __future__ import annotations

import math

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import node_arg
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.regions.pooling import Pool
from kernelwright.compiler.rewrites.affine_chains import AffineStep, find_linear_map, insert_steps, is_per_channel
from kernelwright.compiler.rewrites.costs import node_flops
from kernelwright.compiler.rewrites.linear_maps import Convolution
from kernelwright.compiler.rewrites.pools import find_pool, insert_pool
from kernelwright.compiler.rewrites.rewriting import (
    FULL_PRECISION_DTYPES,
    insert_call,
    inserting_calls_before,
    replace_value,
    tensor_of,
)

aten = torch.ops.aten
FLOPS_PER_BYTE = 128
"""FLOPs that are worth a byte more of memory traffic: TF32 products on an H100 reach about 400 TFLOP/s at 3.3 TB/s."""


def pool_before_pointwise(graph: fx.Graph) -> int:
    """Pool, in place, the inputs of 1x1 convolutions instead of their outputs, where that is less work; factors and
    shifts of the channels between them move behind. Return how many."""
    return sum(_move(graph, node) for node in list(graph.nodes) if not node._erased)


def _move(graph: fx.Graph, node: fx.Node) -> bool:
    matched = _match(node)
    if matched is None or not _saves_work(*matched[:2]):
        return False
    pool, convolution, steps = matched
    rank = len(convolution.stride)
    with inserting_calls_before(graph, node):
        x = convolution.input
        if is_row := len(pool.dims) > rank:
            x = insert_call(graph, aten.unsqueeze.default, x, -2)
        x = insert_pool(graph, x, pool, pool.dims)
        assert x is not None, "windows without padding"
        if is_row:
            x = insert_call(graph, aten.squeeze.dim, x, -2)
        new = insert_steps(graph, convolution.insert(graph, x, convolution.weight, convolution.bias), steps)
        return replace_value(graph, node, insert_call(graph, aten.unsqueeze.default, new, -2) if is_row else new)


def _match(node: fx.Node) -> tuple[Pool, Convolution, list[AffineStep]] | None:
    """The pooling, the 1x1 convolution, and the steps between them, which nothing else reads; None if there are none.
    The pooling of a convolution of one dimension is that of an image of one row."""
    pool = find_pool(node)
    if pool is None or not pool.is_average or pool.has_padding or pool.divisor or len(pool.source.users) > 1:
        return None
    is_row = op_name(pool.source.target) == "unsqueeze" and pool.source.args[1] in (-2, 2)
    found = find_linear_map(node_arg(pool.source, 0) if is_row else pool.source)
    if found is None or tensor_of(node).dtype not in FULL_PRECISION_DTYPES:
        return None
    convolution, steps = found
    if not isinstance(convolution, Convolution) or len(convolution.stride) + is_row != len(pool.dims):
        return None
    is_pointwise = {*convolution.kernel, *convolution.stride} == {1} and not any(convolution.padding)
    return (pool, convolution, steps) if is_pointwise and all(is_per_channel(step, 1) for step in steps) else None


def _saves_work(pool: Pool, convolution: Convolution) -> bool:
    """Whether fewer FLOPs are left, and enough fewer where a pooled input of many channels is more memory traffic."""
    given, made = tensor_of(convolution.input), tensor_of(convolution.node)
    pooled = math.prod(dim.outputs for dim in pool.dims) / math.prod(dim.length for dim in pool.dims)
    extra_reads = pool.window_size * pooled * (given.numel() - made.numel())
    saved_flops = node_flops(convolution.node) * (1 - pooled) - extra_reads
    extra_bytes = 2 * given.element_size() * (given.numel() * pooled - made.numel())
    return pooled < 1 and saved_flops > 0 and saved_flops >= FLOPS_PER_BYTE * extra_bytes
