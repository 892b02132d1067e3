"""Depthwise convolutions, in which each output channel reads one input channel: sums over few weighted elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import fx

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.nodes import shape_of
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.regions.pooling import Pool, PoolDim, bind_arguments

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "convolution")
MAX_TAPS = 64
"""Elements of a window that are loads of their own, each with a weight; a library's kernel keeps more in shared
memory."""


class Depthwise(NamedTuple):
    """A depthwise convolution.

    Attributes:
        windows: of the input, over the last dimensions; their sum is weighted.
        weight: (channels * multiplier, 1, *kernel).
        bias: (channels * multiplier,).
        channels: of the input.
        multiplier: output channels of each input channel, which are adjacent.
    """

    windows: Pool
    weight: fx.Node
    bias: fx.Node | None
    channels: int
    multiplier: int

    @property
    def num_taps(self) -> int:
        """The elements of a window that are not padding in all windows."""
        return prod(len(dim.read_positions) for dim in self.windows.dims)


def match_depthwise(node: fx.Node) -> Depthwise:
    """Match a convolution of a batch in as many groups as channels.

    Raises:
        Unsupported: it is another operator, transposed, in fewer groups, or of one channel only.
    """
    if node.op != "call_function" or op_name(node.target) not in CONVOLUTIONS:
        raise Unsupported(f"{node.target} is not a convolution")
    given = bind_arguments(node)
    image, weight, bias = given["input"], given["weight"], given.get("bias")
    if not isinstance(image, fx.Node) or not isinstance(weight, fx.Node):
        raise Unsupported("a convolution of literals")
    shape, (outputs, per_group, *kernel) = shape_of(image), shape_of(weight)
    if len(shape) != len(kernel) + 2 or given.get("transposed") or per_group != 1 or shape[1] == 1:
        raise Unsupported("a convolution that is transposed, without a batch, or not depthwise")
    windows = Pool(image, True, tuple(_dims_of(node, given, shape[2:], kernel)))
    return Depthwise(windows, weight, bias if isinstance(bias, fx.Node) else None, shape[1], outputs // shape[1])


def _dims_of(node: fx.Node, given: dict[str, Any], lengths: Sequence[int], kernel: Sequence[int]) -> list[PoolDim]:
    """The windows along each dimension."""
    rank = len(kernel)
    stride, dilation = (_per_dim(given.get(name), rank, 1) for name in ("stride", "dilation"))
    padding = given.get("padding")
    if padding == "same":  # the larger half is after the image
        before = [step * (size - 1) // 2 for step, size in zip(dilation, kernel, strict=True)]
    else:
        before = _per_dim(None if padding == "valid" else padding, rank, 0)
    columns = (lengths, shape_of(node)[2:], kernel, stride, before, dilation)
    return [PoolDim(*dim) for dim in zip(*columns, strict=True)]


def _per_dim(value: Any, rank: int, default: int) -> list[int]:
    values = [default] if value is None else [value] if isinstance(value, int) else [int(one) for one in value]
    return values * rank if len(values) == 1 else values


def is_depthwise(node: fx.Node) -> bool:
    """Whether a region can compute a node as a depthwise convolution."""
    if not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    try:
        convolution = match_depthwise(node)
    except Unsupported:
        return False
    value, image = node.meta["val"], convolution.windows.source.meta["val"]
    if not value.numel() or not value.is_floating_point() or _has_unknown_layout(image):
        return False
    return 0 < convolution.num_taps <= MAX_TAPS


def _has_unknown_layout(image: torch.Tensor) -> bool:
    """Whether a convolution of an image on a CPU does not have the layout of its fake result (torch 2.13)."""
    is_volume = image.dim() == 5 and not image.is_contiguous()
    return is_volume and image.is_contiguous(memory_format=torch.channels_last_3d)
