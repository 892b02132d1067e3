"""Pooling operators: the windows of each, along the pooled dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import fx

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.nodes import node_arg, result_shape, shape_of
from kernelwright.compiler.regions.operators import AVERAGE_POOLS, POOLS, op_name


class PoolDim(NamedTuple):
    """The windows along one dimension: window o has the elements stride * o - padding + dilation * position, for
    `size` positions, of which those not from 0 to before `length` are padding."""

    length: int
    outputs: int
    size: int
    stride: int
    padding: int
    dilation: int

    @property
    def overlaps(self) -> bool:
        """Whether an element can be in several windows."""
        return self.size > 1 and (self.size > self.stride or self.dilation > 1)

    @property
    def tiles(self) -> bool:
        """Whether each element is in one window, and nothing is padding."""
        return not self.overlaps and self.size == self.stride and self.outputs * self.size == self.length

    def bounds(self, position: int) -> tuple[int, int]:
        """Return the element of the first and of the last window at a position."""
        first = self.dilation * position - self.padding
        return first, first + self.stride * (self.outputs - 1)

    @property
    def read_positions(self) -> list[int]:
        """The positions that are not padding in all windows."""
        bounds = {position: self.bounds(position) for position in range(self.size)}
        return [position for position, (first, last) in bounds.items() if last >= 0 and first < self.length]

    def counts(self, with_padding: bool) -> list[int]:
        """Return the number of elements that each window averages, of which padding may be counted."""
        starts = [self.stride * output - self.padding for output in range(self.outputs)]
        if with_padding:
            return [min(start + self.size, self.length + self.padding) - start for start in starts]
        return [min(start + self.size, self.length) - max(start, 0) for start in starts]


class Pool(NamedTuple):
    """A maximum or an average over windows.

    Attributes:
        counts_padding: whether an average counts the padding.
        divisor: of an average in place of the number of elements, 0 for none.
    """

    source: fx.Node
    is_average: bool
    dims: tuple[PoolDim, ...]
    counts_padding: bool = True
    divisor: int = 0

    @property
    def has_padding(self) -> bool:
        """Whether a window has elements that are padding."""
        return any(dim.bounds(0)[0] < 0 or dim.bounds(dim.size - 1)[1] >= dim.length for dim in self.dims)

    @property
    def window_size(self) -> int:
        """The elements of a window."""
        return prod(dim.size for dim in self.dims)


def match_pool(node: fx.Node) -> Pool:
    """Return the windows of a pooling operator.

    Raises:
        Unsupported: its indices are used, or the windows of an adaptive one differ in size.
    """
    name, source = op_name(node.target), node_arg(node, 0)
    rank = POOLS[name]
    if any(op_name(user.target) == "getitem" and user.args[1] != 0 and user.users for user in node.users):
        raise Unsupported(f"{node.target} with its indices")
    lengths, outputs = shape_of(source)[-rank:], result_shape(node)[-rank:]
    is_average = name in AVERAGE_POOLS
    if "adaptive" in name:
        if any(length % count for length, count in zip(lengths, outputs, strict=True)):
            raise Unsupported(f"{node.target} whose windows differ in size")
        sizes = [length // count for length, count in zip(lengths, outputs, strict=True)]
        dims = zip(lengths, outputs, sizes, sizes, [0] * rank, [1] * rank, strict=True)
        return Pool(source, is_average, tuple(PoolDim(*dim) for dim in dims))
    given = bind_arguments(node)
    sizes = _per_dim(given["kernel_size"], rank)
    defaults = {"stride": sizes, "padding": [0], "dilation": [1]}
    options = [_per_dim(given.get(name) or default, rank) for name, default in defaults.items()]
    dims = zip(lengths, outputs, sizes, *options, strict=True)
    counts_padding, divisor = given.get("count_include_pad", True), given.get("divisor_override") or 0
    return Pool(source, is_average, tuple(PoolDim(*dim) for dim in dims), bool(counts_padding), int(divisor))


def bind_arguments(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of a call by their names."""
    assert isinstance(node.target, torch._ops.OpOverload)
    names = [argument.name for argument in node.target._schema.arguments]
    return dict(zip(names, node.args, strict=False)) | node.kwargs


def _per_dim(values: Sequence[int], rank: int) -> list[int]:
    return [int(one) for one in values] * (rank if len(values) == 1 else 1)
