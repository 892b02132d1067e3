"""Tensors that are put together: where their parts begin and end, and what is computed on them."""

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

MAX_PARTS = 4
"""A region holds no more pieces of one tensor."""
MAX_DEPTH = 8
"""So many steps above a concatenation others are looked for that are its parts."""


class DimSlice(NamedTuple):
    """Every `step`th element of a dimension from `start` on, `size` of them; `dim` counts from the end (-1, ...)."""

    dim: int
    start: int
    step: int
    size: int

    @property
    def stop(self) -> int:
        return self.start + (self.size - 1) * self.step + 1


def find_slicings(node: fx.Node) -> list[list[DimSlice]]:
    """Equal parts in which a node's tensor is put together: at its own seams, and at those of its parts as well."""
    with suppress(Unsupported):
        if (name := op_name(node.target)) == "view" and (stack := match_stack(node)):
            return [stack.slices]
        if name in ("cat", "slice_scatter") and is_tensor(node):
            dim = slice_args(node)[0] if name == "slice_scatter" else concat_dim(node)
            ways = [_equal_slices(dim, shape_of(node)[dim], _boundaries(node, dim, deep)) for deep in (0, MAX_DEPTH)]
            return [way for at, way in enumerate(ways) if way and way not in ways[:at]]
    return []


def _boundaries(node: fx.Node, dim: int, deep: int) -> set[int]:
    """Where the parts of a tensor begin and end along a dimension; `deep` levels of parts of parts."""
    name, found = op_name(node.target), set[int]()
    if name == "cat" and dim == concat_dim(node) and _is_uniform(node):
        for source in concat_inputs(node):
            start = max(found, default=0)
            found |= {start + place for place in _nested_boundaries(source, dim, deep)} | {
                start + shape_of(source)[dim]
            }
    elif name == "slice_scatter" and (place := slice_args(node))[0] == dim and place[3] == 1:
        found |= {*place[1:3]}
    elif is_elementwise(node):
        for source in node.all_input_nodes:
            if shape_of(source)[dim:][:1] == shape_of(node)[dim:][:1]:
                found |= _nested_boundaries(source, dim, deep)
    return found


def _nested_boundaries(node: fx.Node, dim: int, deep: int) -> set[int]:
    return _boundaries(node, dim, deep - 1) if deep and is_tensor(node) else set()


def _equal_slices(dim: int, size: int, seams: set[int]) -> list[DimSlice]:
    """The fewest equal parts of a dimension that have these among their seams."""
    part = gcd(size, *seams)
    if not size or size // part not in range(2, MAX_PARTS + 1):
        return []
    return [DimSlice(dim, start, 1, part) for start in range(0, size, part)]


def _is_uniform(cat: fx.Node) -> bool:
    """Whether all parts of a concatenation have its rank and dtype."""
    return len({(len(shape_of(node)), dtype_of(node)) for node in (cat, *concat_inputs(cat))}) == 1


def concat_inputs(cat: fx.Node) -> list[fx.Node]:
    return list(cat.args[0])  # type: ignore[arg-type]


def concat_dim(node: fx.Node) -> int:
    rank = len(shape_of(node))
    return dim_arg(node, 1, rank) - rank


def slice_args(node: fx.Node, before: int = 2) -> tuple[int, int, int, int]:
    """(dim, start, stop, step) of a part of a tensor; they come after so many arguments."""
    names = ("dim", "start", "end", "step")
    given = dict(zip(names, node.args[before:], strict=False)) | dict(node.kwargs)
    rank = len(shape_of(node))
    dim = int(given.get("dim") or 0) % rank - rank  # type: ignore[call-overload]
    size = shape_of(node_arg(node, 0))[dim]
    start, stop, step = slice(given.get("start"), given.get("end"), given.get("step") or 1).indices(size)
    return dim, start, max(start, stop), step


class Stack(NamedTuple):
    """A view that only says in another shape what is put together."""

    slices: list[DimSlice]
    sources: list[fx.Node]
    stack_dim: int | None
    """The dimension of which each source is one element; else the sources are taken in turn along the last."""


def match_stack(view: fx.Node) -> Stack | None:
    cat = view.args[0]
    if not isinstance(cat, fx.Node) or op_name(cat.target) != "cat" or not _is_uniform(cat):
        return None
    sources, shape, given = concat_inputs(cat), shape_of(view), shape_of(cat)
    count, rank, dim = len(sources), len(shape), concat_dim(cat)
    if len({shape_of(source) for source in sources}) != 1 or count not in range(2, MAX_PARTS + 1):
        return None
    place = dim + len(given)
    if shape == (*given[:place], count, given[place] // count, *given[place + 1 :]):
        return Stack([DimSlice(place - rank, at, 1, 1) for at in range(count)], sources, place)
    flat = dim == -1 and given[-1] == count and rank + 1 == len(given) and given[-2] > 1
    if flat and shape == (*given[:-2], given[-2] * count) and all(op_name(n.target) == "unsqueeze" for n in sources):
        inner = [node_arg(source, 0) for source in sources]
        return Stack([DimSlice(-1, at, count, given[-2]) for at in range(count)], inner, None)
    return None


def elementwise_users(graph: fx.Graph, start: fx.Node) -> dict[fx.Node, None]:
    """What is computed element by element on `start`, as large as it is, and on nothing that waits for all of it."""
    shape, behind, found = shape_of(start), {start}, dict[fx.Node, None]()
    nodes = iter(graph.nodes)
    next(node for node in nodes if node is start)
    for node in nodes:
        if not behind & set(node.all_input_nodes):
            continue
        behind.add(node)
        waits = any(arg in behind and arg not in found and arg is not start for arg in node.all_input_nodes)
        if is_elementwise(node) and not waits and shape_of(node) == shape:
            found[node] = None
    return found


def sliced_users(node: fx.Node) -> dict[fx.Node, DimSlice]:
    """The users of what is computed element by element that take a part of it, and which."""
    found = dict[fx.Node, DimSlice]()
    if not is_elementwise(node):
        return found
    for user in node.users:
        if op_name(user.target) == "slice":
            found |= _proper_slice(user, node, slice_args(user, 1))
        elif op_name(user.target) in ("split", "split_with_sizes"):
            dim = dim_arg(user, 2, len(shape_of(node))) - len(shape_of(node))
            starts = [0, *accumulate(int(part.shape[dim]) for part in user.meta["val"])]
            for part in user.users:
                found |= _proper_slice(part, node, (dim, starts[int(part.args[1])], 0, 1))  # type: ignore[call-overload]
    return found


def _proper_slice(part: fx.Node, whole: fx.Node, place: tuple[int, int, int, int]) -> dict[fx.Node, DimSlice]:
    dim, start, _, step = place
    size = shape_of(part)[dim]
    return {part: DimSlice(dim, start, step, size)} if 0 < size < shape_of(whole)[dim] else {}


def is_elementwise(node: fx.Node) -> bool:
    name = op_name(node.target)
    return (name in POINTWISE or (name in CONVERSIONS and name != "copy")) and is_tensor(node)


def is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)
