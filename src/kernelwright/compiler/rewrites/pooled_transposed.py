"""A transposed convolution of stride s and average pooling of its output with a stride of c s are one convolution of
stride c, which never computes the upsampled output.

Output j of the transposed convolution adds w[t] x[i] for s i + t - padding = j, and pooled output l is the mean of the
outputs c s l + r for r < p. So it adds v[d] x[c l + d] with v[d] the sum of w[padding - s d + r] over r, divided by p.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import shape_of
from kernelwright.compiler.rewrites.linear_maps import Convolution
from kernelwright.compiler.rewrites.rewriting import insert_call, tensor_of

aten = torch.ops.aten
_POOLS = {2: aten.avg_pool2d.default, 3: aten.avg_pool3d.default}


class _Offsets(NamedTuple):
    """One dimension of the convolution that replaces both: the offsets d of the inputs that an output reads, from
    `first` to `last`, its stride, its padding on both sides, and its number of outputs to drop in front."""

    first: int
    last: int
    stride: int
    padding: int
    dropped: int


def insert_pooled_transposed(
    graph: fx.Graph, convolution: Convolution, sizes: Sequence[int], strides: Sequence[int], node: fx.Node
) -> fx.Node | None:
    """Insert the convolution that computes a pooled transposed convolution; None where that saves nothing.

    Args:
        sizes, strides: of the windows.
        node: the pooled output.
    """
    plain = convolution.groups == 1 and all(one == 1 for one in convolution.dilation) and len(sizes) in _POOLS
    offsets = [_find_offsets(convolution, dim, sizes[dim], strides[dim], node) for dim in range(len(sizes))]
    found = [one for one in offsets if one is not None]
    if not plain or len(found) != len(sizes) or not _saves_work(convolution, found, node):
        return None
    weight = _pool_kernel(graph, convolution, sizes, found)
    new = convolution.insert(
        graph,
        convolution.input,
        weight,
        convolution.bias,
        stride=tuple(one.stride for one in found),
        padding=tuple(one.padding for one in found),
        transposed=False,
        output_padding=(0,) * len(found),
    )
    for dim, (one, size) in enumerate(zip(found, shape_of(node)[-len(found) :], strict=True), 2):
        if shape_of(new)[dim] != size:
            new = insert_call(graph, aten.slice.Tensor, new, dim, one.dropped, one.dropped + size)
    return new


def _find_offsets(convolution: Convolution, dim: int, size: int, stride: int, node: fx.Node) -> _Offsets | None:
    """The inputs that an output reads along a spatial dimension; None if the strides do not fit."""
    own, padding, kernel = (values[dim] for values in (convolution.stride, convolution.padding, convolution.kernel))
    if stride % own:
        return None
    first, last = -((kernel - 1 - padding) // own), (padding + size - 1) // own
    inputs, outputs = shape_of(convolution.input)[dim + 2], shape_of(node)[dim - len(convolution.stride)]
    step = stride // own
    before, after = -first, step * (outputs - 1) + last - (inputs - 1)
    dropped = max(0, -(-(after - before) // step), -(before // step))
    return _Offsets(first, last, step, before + step * dropped, dropped) if first <= last else None


def _saves_work(convolution: Convolution, offsets: Sequence[_Offsets], node: fx.Node) -> bool:
    """Whether the convolution takes at most as many FLOPs as the transposed one."""
    kernel = math.prod(one.last - one.first + 1 for one in offsets)
    before = tensor_of(convolution.input).numel() * math.prod(shape_of(convolution.weight)[1:])
    weight = math.prod(shape_of(convolution.weight)[:2]) * kernel
    after = tensor_of(node).numel() * shape_of(convolution.weight)[0] * kernel
    return after <= before and 2 * weight < tensor_of(convolution.node).numel()


def _pool_kernel(
    graph: fx.Graph, convolution: Convolution, sizes: Sequence[int], offsets: Sequence[_Offsets]
) -> fx.Node:
    """Insert v of (O, I, *offsets): means of windows of the reversed kernel."""
    spatial = range(2, 2 + len(sizes))
    rows = insert_call(graph, aten.permute.default, convolution.weight, [1, 0, *spatial])
    reversed_kernel = insert_call(graph, aten.flip.default, rows, list(spatial))
    around: list[int] = []
    settings = zip(convolution.kernel, convolution.stride, convolution.padding, sizes, offsets, strict=True)
    for kernel, stride, padding, size, one in reversed(list(settings)):
        before = size - 1 - (kernel - 1 - padding) - stride * one.first
        length = stride * (one.last - one.first) + size
        around += [before, length - before - kernel]
    padded = insert_call(graph, aten.constant_pad_nd.default, reversed_kernel, around)
    return insert_call(graph, _POOLS[len(sizes)], padded, list(sizes), list(convolution.stride))
