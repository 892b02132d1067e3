"""Tensors that are put together: where their parts begin and end, and what is computed on them."""

from __future__ import annotations

from contextlib import suppress
from itertools import accumulate
from math import gcd
from typing import NamedTuple

import torch
from torch import fx

from kernelwright.compiler.regions.axes import Misfit
from kernelwright.compiler.regions.nodes import dim_at, dtype_of, node_at, shape_of
from kernelwright.compiler.regions.operators import CONVERSIONS, POINTWISE, packet

MOST_PARTS = 4
"""A region holds no more pieces of one tensor."""
DEEP = 8
"""So many steps above a concatenation others are looked for that are its parts."""


class Cut(NamedTuple):
    """Every `step`th element of a dimension from `start` on, `size` of them; `dim` counts from the end (-1, ...)."""

    dim: int
    start: int
    step: int
    size: int

    @property
    def stop(self) -> int:
        return self.start + (self.size - 1) * self.step + 1


def ways_to_cut(node: fx.Node) -> list[list[Cut]]:
    """Equal parts in which a node's tensor is put together: at its own seams, and at those of its parts as well."""
    with suppress(Misfit):
        if (name := packet(node.target)) == "view" and (stack := stack_of(node)):
            return [stack.cuts]
        if name in ("cat", "slice_scatter") and is_tensor(node):
            dim = scattered(node)[0] if name == "slice_scatter" else cat_dim(node)
            ways = [_equal(dim, shape_of(node)[dim], _seams(node, dim, deep)) for deep in (0, DEEP)]
            return [way for at, way in enumerate(ways) if way and way not in ways[:at]]
    return []


def _seams(node: fx.Node, dim: int, deep: int) -> set[int]:
    """Where the parts of a tensor begin and end along a dimension; `deep` levels of parts of parts."""
    name, found = packet(node.target), set[int]()
    if name == "cat" and dim == cat_dim(node) and _is_alike(node):
        for source in sources_of(node):
            start = max(found, default=0)
            found |= {start + place for place in _inner_seams(source, dim, deep)} | {start + shape_of(source)[dim]}
    elif name == "slice_scatter" and (place := scattered(node))[0] == dim and place[3] == 1:
        found |= {*place[1:3]}
    elif is_elementwise(node):
        for source in node.all_input_nodes:
            if shape_of(source)[dim:][:1] == shape_of(node)[dim:][:1]:
                found |= _inner_seams(source, dim, deep)
    return found


def _inner_seams(node: fx.Node, dim: int, deep: int) -> set[int]:
    return _seams(node, dim, deep - 1) if deep and is_tensor(node) else set()


def _equal(dim: int, size: int, seams: set[int]) -> list[Cut]:
    """The fewest equal parts of a dimension that have these among their seams."""
    part = gcd(size, *seams)
    if not size or size // part not in range(2, MOST_PARTS + 1):
        return []
    return [Cut(dim, start, 1, part) for start in range(0, size, part)]


def _is_alike(cat: fx.Node) -> bool:
    """Whether all parts of a concatenation have its rank and dtype."""
    return len({(len(shape_of(node)), dtype_of(node)) for node in (cat, *sources_of(cat))}) == 1


def sources_of(cat: fx.Node) -> list[fx.Node]:
    return list(cat.args[0])  # type: ignore[arg-type]


def cat_dim(node: fx.Node) -> int:
    rank = len(shape_of(node))
    return dim_at(node, 1, rank) - rank


def scattered(node: fx.Node, before: int = 2) -> tuple[int, int, int, int]:
    """(dim, start, stop, step) of a part of a tensor; they come after so many arguments."""
    names = ("dim", "start", "end", "step")
    given = dict(zip(names, node.args[before:], strict=False)) | dict(node.kwargs)
    rank = len(shape_of(node))
    dim = int(given.get("dim") or 0) % rank - rank  # type: ignore[call-overload]
    size = shape_of(node_at(node, 0))[dim]
    start, stop, step = slice(given.get("start"), given.get("end"), given.get("step") or 1).indices(size)
    return dim, start, max(start, stop), step


class Stack(NamedTuple):
    """A view that only says in another shape what is put together."""

    cuts: list[Cut]
    sources: list[fx.Node]
    added: int | None
    """The dimension of which each source is one element; else the sources are taken in turn along the last."""


def stack_of(view: fx.Node) -> Stack | None:
    cat = view.args[0]
    if not isinstance(cat, fx.Node) or packet(cat.target) != "cat" or not _is_alike(cat):
        return None
    sources, shape, given = sources_of(cat), shape_of(view), shape_of(cat)
    count, rank, dim = len(sources), len(shape), cat_dim(cat)
    if len({shape_of(source) for source in sources}) != 1 or count not in range(2, MOST_PARTS + 1):
        return None
    place = dim + len(given)
    if shape == (*given[:place], count, given[place] // count, *given[place + 1 :]):
        return Stack([Cut(place - rank, at, 1, 1) for at in range(count)], sources, place)
    flat = dim == -1 and given[-1] == count and rank + 1 == len(given) and given[-2] > 1
    if flat and shape == (*given[:-2], given[-2] * count) and all(packet(n.target) == "unsqueeze" for n in sources):
        inner = [node_at(source, 0) for source in sources]
        return Stack([Cut(-1, at, count, given[-2]) for at in range(count)], inner, None)
    return None


def computed_on(graph: fx.Graph, start: fx.Node) -> dict[fx.Node, None]:
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


def taken_parts(node: fx.Node) -> dict[fx.Node, Cut]:
    """The users of what is computed element by element that take a part of it, and which."""
    found = dict[fx.Node, Cut]()
    if not is_elementwise(node):
        return found
    for user in node.users:
        if packet(user.target) == "slice":
            found |= _cut_taken(user, node, scattered(user, 1))
        elif packet(user.target) in ("split", "split_with_sizes"):
            dim = dim_at(user, 2, len(shape_of(node))) - len(shape_of(node))
            starts = [0, *accumulate(int(part.shape[dim]) for part in user.meta["val"])]
            for part in user.users:
                found |= _cut_taken(part, node, (dim, starts[int(part.args[1])], 0, 1))  # type: ignore[call-overload]
    return found


def _cut_taken(part: fx.Node, whole: fx.Node, place: tuple[int, int, int, int]) -> dict[fx.Node, Cut]:
    dim, start, _, step = place
    size = shape_of(part)[dim]
    return {part: Cut(dim, start, step, size)} if 0 < size < shape_of(whole)[dim] else {}


def is_elementwise(node: fx.Node) -> bool:
    name = packet(node.target)
    return (name in POINTWISE or (name in CONVERSIONS and name != "copy")) and is_tensor(node)


def is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)
