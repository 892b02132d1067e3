"""Tensors padded with a constant, of which a region reads the source: where an index is out of bounds, the constant."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import node_arg, permuted_dims, require_number, resolve_view, shape_of
from kernelwright.compiler.regions.operators import PAD, op_name

PERMUTATIONS = ("permute", "transpose", "t")
PADDED_VIEWS = ("slice", "select", "narrow", "unsqueeze", "squeeze", "expand", *PERMUTATIONS)
"""Views of a padded tensor that keep the index along each dimension; others are views of its copy in memory."""


class PaddedIndex(NamedTuple):
    """The index along one padded dimension: `start` plus the sum of index times step over the dimensions of a view."""

    steps: tuple[int, ...]
    start: int
    size: int


class PaddedView(NamedTuple):
    """Where the elements of a view are: in `root`, or `fill` where a padded index is out of bounds."""

    root: fx.Node
    strides: tuple[int, ...]
    offset: int
    indices: tuple[PaddedIndex, ...] = ()
    fill: int | float | bool = 0


def is_padded(node: Any) -> bool:
    """Whether a node is a padded tensor, or a view of one with an index along each of its dimensions."""
    while isinstance(node, fx.Node) and op_name(node.target) in PADDED_VIEWS:
        node = node.args[0]
    return isinstance(node, fx.Node) and op_name(node.target) == PAD


def resolve_padded_view(node: fx.Node) -> PaddedView:
    """Return where the elements of a tensor are that a region reads.

    Raises:
        Unsupported: as `resolve_view`; or a padding value that is not a number.
    """
    if not is_padded(node):
        return PaddedView(*resolve_view(node))
    source, name = node_arg(node, 0), op_name(node.target)
    if name != PAD:
        return _transform(resolve_padded_view(source), node, source, name)
    view, fill = resolve_padded_view(source), pad_value(node)
    return _pad(view if view.fill == fill or not view.indices else PaddedView(*resolve_view(source)), node, fill)


def pad_value(node: fx.Node) -> int | float | bool:
    """Return the value of a padding, rounded to the dtype of the tensor."""
    value = require_number(node.args[2] if len(node.args) > 2 else node.kwargs.get("value", 0))
    return torch.tensor(value).to(node.meta["val"].dtype).item()


def _pad(view: PaddedView, node: fx.Node, fill: int | float | bool) -> PaddedView:
    sizes, rank = shape_of(node_arg(node, 0)), len(view.strides)
    pairs: list[int] = list(node.args[1])  # type: ignore[arg-type]
    before = [pairs[2 * (rank - 1 - dim)] if rank - 1 - dim < len(pairs) // 2 else 0 for dim in range(rank)]
    after = [pairs[2 * (rank - 1 - dim) + 1] if rank - 1 - dim < len(pairs) // 2 else 0 for dim in range(rank)]
    offset = view.offset - sum(count * stride for count, stride in zip(before, view.strides, strict=True))
    indices = [
        index._replace(start=index.start - sum(c * step for c, step in zip(before, index.steps, strict=True)))
        for index in view.indices
    ]
    indices += [
        PaddedIndex(tuple(int(other == dim) for other in range(rank)), -before[dim], sizes[dim])
        for dim in range(rank)
        if before[dim] > 0 or after[dim] > 0
    ]
    return PaddedView(view.root, view.strides, offset, tuple(indices), fill)


def _transform(view: PaddedView, node: fx.Node, source: fx.Node, name: str) -> PaddedView:
    """The view of a view: each of its dimensions is one of the source, from some start and with some step, or new."""
    starts, dims = _source_dims(node, source, name)

    def move(steps: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(0 if dim is None else steps[dim] * factor for dim, factor in dims)

    def first(steps: tuple[int, ...]) -> int:
        return sum(start * step for start, step in zip(starts, steps, strict=True))

    indices = tuple(
        PaddedIndex(move(index.steps), index.start + first(index.steps), index.size) for index in view.indices
    )
    return PaddedView(view.root, move(view.strides), view.offset + first(view.strides), indices, view.fill)


def _source_dims(node: fx.Node, source: fx.Node, name: str) -> tuple[list[int], list[tuple[int | None, int]]]:
    """The first index along each dimension of the source; and for each dimension of a view its source, and the step."""
    sizes, shape = shape_of(source), shape_of(node)
    rank = len(sizes)
    starts, dims = [0] * rank, [(dim, 1) for dim in range(rank)]
    if name in PERMUTATIONS:
        return starts, [(dim, 1) for dim in permuted_dims(node, rank)]
    if name == "expand":
        added = len(shape) - rank
        kept = [(dim if shape[added + dim] == sizes[dim] else None, 1) for dim in range(rank)]
        return starts, [(None, 1)] * added + kept
    if name == "squeeze":
        given = node.args[1] if len(node.args) > 1 else list(range(rank))
        listed = [given] if isinstance(given, int) else list(given)  # type: ignore[arg-type]
        dropped = {int(dim) % rank for dim in listed}  # type: ignore[call-overload]
        return starts, [(dim, 1) for dim in range(rank) if dim not in dropped or sizes[dim] != 1]
    options = [*node.args[1:], *[None] * 4]
    dim = int(options[0] or 0) % (rank + (name == "unsqueeze"))  # type: ignore[call-overload]
    if name == "unsqueeze":
        return starts, [*dims[:dim], (None, 1), *dims[dim:]]
    start = int(options[1] or 0)  # type: ignore[call-overload]
    starts[dim] = min(max(start + sizes[dim] * (start < 0), 0), sizes[dim])
    if name == "select":
        return starts, [*dims[:dim], *dims[dim + 1 :]]
    step = int(options[3] or 1) if name == "slice" else 1  # type: ignore[call-overload]
    return starts, [*dims[:dim], (dim, step), *dims[dim + 1 :]]
