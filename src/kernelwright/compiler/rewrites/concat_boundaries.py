"""Concatenated tensors: the boundaries of their inputs, and the elementwise computation on them."""

from __future__ import annotations

from contextlib import suppress
from itertools import accumulate
from math import gcd
from typing import NamedTuple

import torch
from torch import fx

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.nodes import dim_arg, dtype_of, node_arg, shape_of
from kernelwright.compiler.regions.operators import CONVERSIONS, POINTWISE, op_name

MAX_SLICES = 4
"""Most slices of one tensor in a region."""
MAX_DEPTH = 8
"""Elementwise steps and nested concatenations upstream of a node that are searched for boundaries."""


class DimSlice(NamedTuple):
    """`size` elements of a dimension from `start`, at distance `step`; `dim` counts from the end (-1, ...)."""

    dim: int
    start: int
    step: int
    size: int

    @property
    def stop(self) -> int:
        """The end of the slice, exclusive."""
        return self.start + (self.size - 1) * self.step + 1


def find_slicings(node: fx.Node) -> list[list[DimSlice]]:
    """Return the ways to cut a node's tensor into equal slices: at its own boundaries, and also at nested ones."""
    with suppress(Unsupported):
        if (name := op_name(node.target)) == "view" and (stack := match_stack(node)):
            return [stack.slices]
        if name in ("cat", "slice_scatter") and is_tensor(node):
            dim = slice_args(node)[0] if name == "slice_scatter" else concat_dim(node)
            size = shape_of(node)[dim]
            slicings = [_equal_slices(dim, size, _boundaries(node, dim, depth)) for depth in (0, MAX_DEPTH)]
            return [slicing for i, slicing in enumerate(slicings) if slicing and slicing not in slicings[:i]]
    return []


def _boundaries(node: fx.Node, dim: int, depth: int) -> set[int]:
    """The boundaries between the inputs of a tensor along a dimension, to `depth` nested levels."""
    name, boundaries = op_name(node.target), set[int]()
    if name == "cat" and dim == concat_dim(node) and _is_uniform(node):
        for source in concat_inputs(node):
            start = max(boundaries, default=0)
            boundaries |= {start + offset for offset in _nested_boundaries(source, dim, depth)}
            boundaries.add(start + shape_of(source)[dim])
    elif name == "slice_scatter" and (args := slice_args(node))[0] == dim and args[3] == 1:
        boundaries |= {*args[1:3]}
    elif is_elementwise(node):
        for source in node.all_input_nodes:
            if shape_of(source)[dim:][:1] == shape_of(node)[dim:][:1]:
                boundaries |= _nested_boundaries(source, dim, depth)
    return boundaries


def _nested_boundaries(node: fx.Node, dim: int, depth: int) -> set[int]:
    return _boundaries(node, dim, depth - 1) if depth and is_tensor(node) else set()


def _equal_slices(dim: int, size: int, boundaries: set[int]) -> list[DimSlice]:
    """The fewest equal slices of a dimension that include these boundaries."""
    slice_size = gcd(size, *boundaries)
    if not size or size // slice_size not in range(2, MAX_SLICES + 1):
        return []
    return [DimSlice(dim, start, 1, slice_size) for start in range(0, size, slice_size)]


def _is_uniform(cat: fx.Node) -> bool:
    """Whether all inputs of a concatenation have its rank and dtype."""
    return len({(len(shape_of(node)), dtype_of(node)) for node in (cat, *concat_inputs(cat))}) == 1


def concat_inputs(cat: fx.Node) -> list[fx.Node]:
    """Return the inputs of a concatenation."""
    return list(cat.args[0])  # type: ignore[arg-type]


def concat_dim(node: fx.Node) -> int:
    """Return the dimension of a concatenation, counted from the end (-1, ...)."""
    rank = len(shape_of(node))
    return dim_arg(node, 1, rank) - rank


def slice_args(node: fx.Node, before: int = 2) -> tuple[int, int, int, int]:
    """Return the (dim, start, stop, step) of a slice or slice_scatter.

    Args:
        before: number of arguments before them.
    """
    names = ("dim", "start", "end", "step")
    args = dict(zip(names, node.args[before:], strict=False)) | dict(node.kwargs)
    rank = len(shape_of(node))
    dim = int(args.get("dim") or 0) % rank - rank  # type: ignore[call-overload]
    size = shape_of(node_arg(node, 0))[dim]
    start, stop, step = slice(args.get("start"), args.get("end"), args.get("step") or 1).indices(size)
    return dim, start, max(start, stop), step


class Stack(NamedTuple):
    """A view of a concatenation that stacks or interleaves its inputs.

    Attributes:
        slices: the slice of the view that each source fills.
        sources: the stacked or interleaved tensors.
        stack_dim: the dimension along which each source is one element; None if they interleave along the last.
    """

    slices: list[DimSlice]
    sources: list[fx.Node]
    stack_dim: int | None


def match_stack(view: fx.Node) -> Stack | None:
    """Match a view of a concatenation that stacks or interleaves its inputs; None if it does not."""
    cat = view.args[0]
    if not isinstance(cat, fx.Node) or op_name(cat.target) != "cat" or not _is_uniform(cat):
        return None
    sources, shape, cat_shape = concat_inputs(cat), shape_of(view), shape_of(cat)
    count, rank, dim = len(sources), len(shape), concat_dim(cat)
    if len({shape_of(source) for source in sources}) != 1 or count not in range(2, MAX_SLICES + 1):
        return None
    stack_dim = dim + len(cat_shape)
    if shape == (*cat_shape[:stack_dim], count, cat_shape[stack_dim] // count, *cat_shape[stack_dim + 1 :]):
        return Stack([DimSlice(stack_dim - rank, i, 1, 1) for i in range(count)], sources, stack_dim)
    is_flat = dim == -1 and cat_shape[-1] == count and rank + 1 == len(cat_shape) and cat_shape[-2] > 1
    interleaves = is_flat and shape == (*cat_shape[:-2], cat_shape[-2] * count)
    if interleaves and all(op_name(source.target) == "unsqueeze" for source in sources):
        inner = [node_arg(source, 0) for source in sources]
        return Stack([DimSlice(-1, i, count, cat_shape[-2]) for i in range(count)], inner, None)
    return None


def elementwise_users(graph: fx.Graph, start: fx.Node) -> dict[fx.Node, None]:
    """Return the elementwise nodes of the shape of `start` that depend on it through such nodes only."""
    shape, dependents, users = shape_of(start), {start}, dict[fx.Node, None]()
    nodes = iter(graph.nodes)
    next(node for node in nodes if node is start)
    for node in nodes:
        if not dependents & set(node.all_input_nodes):
            continue
        dependents.add(node)
        has_other_path = any(
            arg in dependents and arg not in users and arg is not start for arg in node.all_input_nodes
        )
        if is_elementwise(node) and not has_other_path and shape_of(node) == shape:
            users[node] = None
    return users


def sliced_users(node: fx.Node) -> dict[fx.Node, DimSlice]:
    """Return the users of an elementwise node that read a slice of it, and their slices."""
    users = dict[fx.Node, DimSlice]()
    if not is_elementwise(node):
        return users
    for user in node.users:
        if op_name(user.target) == "slice":
            users |= _proper_slice(user, node, slice_args(user, 1))
        elif op_name(user.target) in ("split", "split_with_sizes"):
            dim = dim_arg(user, 2, len(shape_of(node))) - len(shape_of(node))
            starts = [0, *accumulate(int(chunk.shape[dim]) for chunk in user.meta["val"])]
            for chunk in user.users:
                users |= _proper_slice(chunk, node, (dim, starts[int(chunk.args[1])], 0, 1))  # type: ignore[call-overload]
    return users


def _proper_slice(user: fx.Node, source: fx.Node, args: tuple[int, int, int, int]) -> dict[fx.Node, DimSlice]:
    """The slice by its node, if it is neither empty nor all of its source."""
    dim, start, _, step = args
    size = shape_of(user)[dim]
    return {user: DimSlice(dim, start, step, size)} if 0 < size < shape_of(source)[dim] else {}


def is_elementwise(node: fx.Node) -> bool:
    """Whether a node is a pointwise operator or a conversion with one tensor result."""
    name = op_name(node.target)
    return (name in POINTWISE or (name in CONVERSIONS and name != "copy")) and is_tensor(node)


def is_tensor(node: fx.Node) -> bool:
    """Whether a node's value is one tensor."""
    return isinstance(node.meta.get("val"), torch.Tensor)
