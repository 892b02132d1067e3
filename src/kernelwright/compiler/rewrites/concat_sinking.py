"""Tensors that are put together and then computed on: f(cat(a, b), y) becomes cat(f(a, first of y), f(b, rest of y)).

A region can write a concatenation but not read one. Pushed towards the outputs, a concatenation ends where the result
is written anyway, and what stands on both of its sides is one region. Parts are taken as early as can be for the same
reason: a region can read a part of a tensor, but not of what it computes itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import fx
from torch.utils import _pytree as pytree

from kernelwright.compiler.regions.operators import VIEWS, op_name
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.rewrites.concat_boundaries import elementwise_users, find_slicings, is_tensor, sliced_users
from kernelwright.compiler.rewrites.concat_rewrites import (
    SHARED_VALUE_MODES,
    SliceRewrite,
    SplitRewrite,
    can_join_region,
)

MAX_NEIGHBORS = 48
"""So many nodes around a change are planned to see what it costs."""


def sink_concats(graph: fx.Graph) -> None:
    """Computes in parts what is computed on concatenations or cut, wherever fewer bytes are moved then.

    Args:
        graph: core ATen operators, nothing mutated, a fake tensor in every node's `meta["val"]`; changed in place.
    """
    for node in list(graph.nodes):
        if not node._erased and (taken := sliced_users(node)):
            _improve(graph, node, [partial(SliceRewrite, graph, node, taken)])
    for node in list(graph.nodes):
        if not node._erased and (ways := find_slicings(node)) and (inside := elementwise_users(graph, node)):
            _improve(graph, node, [partial(SplitRewrite, graph, inside, cuts) for cuts in ways])


def _improve(graph: fx.Graph, start: fx.Node, ways: Sequence[Callable[[str], SplitRewrite]]) -> None:
    """Changes a graph around a node in the way that moves the fewest bytes, which may be none."""
    around = _neighborhood(start)
    best, least = None, _bytes_moved(graph, around)
    for way in ways:
        for shared in SHARED_VALUE_MODES:
            trial = way(shared)
            moved = _bytes_moved(graph, around | set(trial.new_nodes)) if trial.apply() else least
            trial.undo()
            if moved < least:
                best, least = (way, shared), moved
            if not trial.has_shared_values:
                break
    if best:
        way, shared = best
        final = way(shared)
        final.apply()
        final.remove_dead_nodes()


def _neighborhood(start: fx.Node) -> set[fx.Node]:
    """The nodes that could share a region with one, the nearest ones."""
    found, todo = {start}, [start]
    for node in todo:
        for near in (*node.all_input_nodes, *node.users):
            if near not in found and can_join_region(near) and len(found) < MAX_NEIGHBORS:
                found.add(near)
                todo.append(near)
    return found


def _bytes_moved(graph: fx.Graph, among: set[fx.Node]) -> int:
    """What some nodes cost as a program of their own, in bytes of memory."""
    part = _extract_subgraph(graph, among)
    regions, refused = plan_regions(part)
    alone = [node for node in refused if op_name(node.target) not in (*VIEWS, "getitem")]
    return sum(sum(region.bytes_moved) for region, _ in regions) + sum(map(_node_bytes, alone))


def _node_bytes(node: fx.Node) -> int:
    return sum(n.meta["val"].nbytes for n in (node, *node.all_input_nodes) if is_tensor(n))


def _extract_subgraph(graph: fx.Graph, among: set[fx.Node]) -> fx.Graph:
    """Some nodes as a graph of their own."""
    part, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    nodes = [node for node in graph.nodes if node in among]
    needed = dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in among)
    for node in needed:
        copies[node] = part.placeholder(node.name)
    for node in nodes:
        copies[node] = part.node_copy(node, copies.__getitem__)
    for node, copied in copies.items():
        copied.meta = {"val": pytree.tree_map_only(torch.Tensor, _meta_like, node.meta.get("val"))}
    part.output(tuple(copies[node] for node in nodes if any(user not in among for user in node.users)))
    part.eliminate_dead_code()
    return part


def _meta_like(value: torch.Tensor) -> torch.Tensor:
    """The same shape, dtype and strides: asking a fake tensor costs a millisecond, and planning asks often."""
    size, strides, offset = tuple(value.shape), value.stride(), int(value.storage_offset())
    end = offset + 1 + sum((length - 1) * stride for length, stride in zip(size, strides, strict=True))
    memory = torch.empty((max(end, 0),), dtype=value.dtype, device="meta")
    return memory.as_strided(size, strides, offset)
