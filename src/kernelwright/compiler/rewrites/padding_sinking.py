"""Zeros around the input of a convolution become the convolution's own padding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from kernelwright.compiler.rewrites.linear_maps import Convolution, match_linear_map
from kernelwright.compiler.rewrites.rewriting import bind_arguments, inserting_calls_before, replace_value

aten = torch.ops.aten


def sink_padding(graph: fx.Graph) -> int:
    """Let, in place, convolutions pad their inputs, where that leaves nothing that reads the padded tensor; return how
    many."""
    count = 0
    for node in graph.find_nodes(op="call_function", target=aten.constant_pad_nd.default):
        users = [match_linear_map(user) for user in node.users]
        convolutions = [one for one in users if isinstance(one, Convolution) and one.input is node]
        if not users or len(convolutions) != len(users):
            continue
        given = bind_arguments(node)
        added = [_symmetric_padding(given["pad"], len(one.stride)) for one in convolutions]
        if given["value"] != 0 or any(one.transposed for one in convolutions) or None in added:
            continue
        for convolution, own in zip(convolutions, added, strict=True):
            assert own is not None
            padding = tuple(one + other for one, other in zip(convolution.padding, own, strict=True))
            with inserting_calls_before(graph, convolution.node):
                new = convolution.insert(graph, given["self"], convolution.weight, convolution.bias, padding=padding)
                count += replace_value(graph, convolution.node, new)
    return count


def _symmetric_padding(pad: Sequence[int], num_spatial: int) -> tuple[int, ...] | None:
    """The padding of each spatial dimension, if it is the same on both sides, and if nothing else is padded."""
    pairs = [(pad[index], pad[index + 1]) for index in range(0, len(pad), 2)]
    spatial, others = pairs[:num_spatial], pairs[num_spatial:]
    if any(one != other or one < 0 for one, other in spatial) or any(pair != (0, 0) for pair in others):
        return None
    missing = num_spatial - len(spatial)
    return (0,) * missing + tuple(one for one, _ in reversed(spatial))
