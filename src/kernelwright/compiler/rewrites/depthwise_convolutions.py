"""Depthwise convolutions that regions compute.

Such a convolution takes the time of reading and writing its images, which a library's FP32 kernels are far from; and
what is computed elementwise before and after it joins the same kernel.
"""

from __future__ import annotations

import torch
from torch import fx

from kernelwright.compiler.capture.target_device import runs_on_cpu
from kernelwright.compiler.regions.depthwise import is_depthwise, match_depthwise
from kernelwright.compiler.regions.nodes import DEPTHWISE
from kernelwright.compiler.rewrites.rewriting import insert_call, inserting_calls_before, tensor_of

aten = torch.ops.aten
MIN_ELEMENTS = 2**20
"""Of a result on a GPU: a smaller one takes less time than the launch that reorders the weight."""


def mark_depthwise_convolutions(graph: fx.Graph) -> int:
    """Mark the depthwise convolutions of few taps for the regions; return how many."""
    found = [node for node in graph.nodes if is_depthwise(node)]
    for node in found:
        node.meta[DEPTHWISE] = True
        value = tensor_of(node)
        is_channels_last = value.stride(1) == 1 and not value.is_contiguous()
        if is_channels_last and (runs_on_cpu(value) or value.numel() >= MIN_ELEMENTS):
            _reorder_weight(graph, node)
    return len(found)


def _reorder_weight(graph: fx.Graph, node: fx.Node) -> None:
    """Let a convolution read a copy of its weight whose channels are contiguous at each tap, as those of the image."""
    weight = match_depthwise(node).weight
    rank = tensor_of(weight).dim()
    with inserting_calls_before(graph, node):
        taps_first = insert_call(graph, aten.permute.default, weight, [*range(1, rank), 0])
        copy = insert_call(graph, aten.clone.default, taps_first, memory_format=torch.contiguous_format)
        node.replace_input_with(weight, insert_call(graph, aten.permute.default, copy, [rank - 1, *range(rank - 1)]))
