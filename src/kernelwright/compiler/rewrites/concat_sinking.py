"""Concatenations moved after the computation on them: f(cat(a, b), y) becomes cat(f(a, y[:n]), f(b, y[n:])).

A region can write a concatenation but not read one. Moved towards the outputs, a concatenation becomes part of a store,
and the nodes on both of its sides can be one region. Slices are moved towards the inputs for the same reason: a region
can read a slice of an input, but not of a value that it computes.
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

MAX_NEIGHBORS, MAX_USERS = 48, 8
"""Nodes around a rewrite that are planned to estimate its cost; what uses a node with more users is not around it, such
as other layers' use of the same rotary angles."""


def sink_concats(graph: fx.Graph) -> int:
    """Compute elementwise nodes on concatenations, or before slices, in slices where that moves fewer bytes.

    Args:
        graph: core ATen operators, functional, with a fake tensor in every node's `meta["val"]`; changed in place.
    Returns:
        How many rewrites were applied.
    """
    count = 0
    for node in list(graph.nodes):
        if not node._erased and (slices := sliced_users(node)):
            count += _apply_best(graph, node, [partial(SliceRewrite, graph, node, slices)])
    for node in list(graph.nodes):
        if not node._erased and (slicings := find_slicings(node)) and (users := elementwise_users(graph, node)):
            count += _apply_best(graph, node, [partial(SplitRewrite, graph, users, slices) for slices in slicings])
    return count


def _apply_best(graph: fx.Graph, start: fx.Node, rewrites: Sequence[Callable[[str], SplitRewrite]]) -> bool:
    """Apply the rewrite that moves the fewest bytes, if any moves fewer than the graph as it is; whether one did."""
    nodes = _neighborhood(start)
    best, least_bytes = None, _bytes_moved(graph, nodes)
    for rewrite in rewrites:
        for shared_mode in SHARED_VALUE_MODES:
            trial = rewrite(shared_mode)
            bytes_moved = _bytes_moved(graph, nodes | set(trial.new_nodes)) if trial.apply() else least_bytes
            trial.undo()
            if bytes_moved < least_bytes:
                best, least_bytes = (rewrite, shared_mode), bytes_moved
            if not trial.has_shared_values:
                break
    if best:
        rewrite, shared_mode = best
        final = rewrite(shared_mode)
        final.apply()
        final.remove_dead_nodes()
    return best is not None


def _neighborhood(start: fx.Node) -> set[fx.Node]:
    """The nodes nearest to one that could be in a region with it; of those with several results, all results."""
    visited, queue = {start}, [start]
    for node in queue:
        users = node.users if node is start or len(node.users) <= MAX_USERS else ()
        for adjacent in (*node.all_input_nodes, *users):
            if adjacent not in visited and can_join_region(adjacent) and len(visited) < MAX_NEIGHBORS:
                visited.add(adjacent)
                queue.append(adjacent)
    return visited | {result for node in visited if not is_tensor(node) for result in node.users}


def _bytes_moved(graph: fx.Graph, nodes: set[fx.Node]) -> int:
    """Bytes that some nodes move as a separate program."""
    regions, refused = plan_regions(_extract_subgraph(graph, nodes))
    fallbacks = [node for node in refused if op_name(node.target) not in (*VIEWS, "getitem")]
    return sum(sum(region.bytes_moved) for region, _ in regions) + sum(map(_node_bytes, fallbacks))


def _node_bytes(node: fx.Node) -> int:
    return sum(n.meta["val"].nbytes for n in (node, *node.all_input_nodes) if is_tensor(n))


def _extract_subgraph(graph: fx.Graph, nodes: set[fx.Node]) -> fx.Graph:
    """Some nodes as a separate graph, on meta tensors."""
    subgraph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    ordered = [node for node in graph.nodes if node in nodes]
    for source in dict.fromkeys(arg for node in ordered for arg in node.all_input_nodes if arg not in nodes):
        copies[source] = subgraph.placeholder(source.name)
    for node in ordered:
        copies[node] = subgraph.node_copy(node, copies.__getitem__)
    for node, copied in copies.items():
        copied.meta = {"val": pytree.tree_map_only(torch.Tensor, _meta_like, node.meta.get("val"))}
    subgraph.output(tuple(copies[node] for node in ordered if any(user not in nodes for user in node.users)))
    subgraph.eliminate_dead_code()
    return subgraph


def _meta_like(value: torch.Tensor) -> torch.Tensor:
    """A meta tensor of the same shape, dtype and strides: an operator on fake tensors costs a millisecond, and planning
    needs many."""
    size, strides, offset = tuple(value.shape), value.stride(), int(value.storage_offset())
    end = offset + 1 + sum((length - 1) * stride for length, stride in zip(size, strides, strict=True))
    memory = torch.empty((max(end, 0),), dtype=value.dtype, device="meta")
    return memory.as_strided(size, strides, offset)
