"""Greedy partition of a graph into regions, in graph order: a node joins the groups of its producers if one kernel can
compute them all and no other node has to run in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import fx

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.axis_merging import merge_axes
from kernelwright.compiler.regions.cse import eliminate_common_subexpressions
from kernelwright.compiler.regions.gathers import hoist_gathers
from kernelwright.compiler.regions.groups import (
    Group,
    GroupByNode,
    build_regions,
    lower_unified,
    total_bytes_moved,
    would_create_cycle,
)
from kernelwright.compiler.regions.integer_narrowing import narrow_integers
from kernelwright.compiler.regions.lowering import Lowering, is_rematerializable, lower_nodes
from kernelwright.compiler.regions.recomputation import (
    move_after_products,
    move_after_rows,
    recompute_cheap_values,
    recompute_rows_of_products,
)
from kernelwright.compiler.regions.region import Region
from kernelwright.compiler.regions.row_factors import pull_row_factors
from kernelwright.compiler.regions.row_values import is_half, store_as_fp32


def plan_regions(
    graph: fx.Graph, prefix: str = "region"
) -> tuple[list[tuple[Region, list[fx.Node]]], dict[fx.Node, str]]:
    """Partition a graph into regions.

    A node can be in two regions: an intermediate value of one region that another needs may be recomputed. The graph
    gets nodes for row values that are stored in FP32: see `row_values`.

    Args:
        prefix: of the names of the regions.
    Returns:
        The regions with their nodes, and the reason for each node that is in none.
    """
    order = {node: index for index, node in enumerate(graph.nodes)}
    group_of: GroupByNode = {}
    refused: dict[fx.Node, str] = {}
    for node in graph.nodes:
        if node.op != "call_function" or is_rematerializable(node):
            continue
        try:
            _assign_group(node, group_of, order)
        except Unsupported as reason:
            refused[node] = str(reason)
    _reject_multi_output(group_of, refused)
    move_after_products(group_of, order)
    _fuse_neighbors(group_of, order)
    recompute_cheap_values(group_of, order)
    move_after_rows(group_of, order)
    recompute_rows_of_products(group_of, order)
    _store_row_values_as_fp32(graph, group_of)
    order = {node: index for index, node in enumerate(graph.nodes)}
    regions: list[tuple[Region, list[fx.Node]]] = []
    for group in dict.fromkeys(group_of.values()):
        try:
            regions += [
                (_simplify(region), nodes)
                for region, nodes in build_regions(group, f"{prefix}_", len(regions), group_of, order)
            ]
        except Unsupported as reason:
            refused |= dict.fromkeys(group.nodes, str(reason))
    return regions, refused


def _simplify(region: Region) -> Region:
    region = eliminate_common_subexpressions(pull_row_factors(eliminate_common_subexpressions(region)))
    return narrow_integers(merge_axes(hoist_gathers(region)))


def _assign_group(node: fx.Node, group_of: GroupByNode, order: dict[fx.Node, int]) -> None:
    """Add a node to the group of its producers: to all of their groups merged, else to one of them, else to a new one.

    Raises:
        Unsupported: the node cannot be in any region.
    """
    producers = list(dict.fromkeys(group_of[arg] for arg in node.all_input_nodes if arg in group_of))
    inputs = [arg for arg in node.all_input_nodes if arg.op == "call_function"]
    for merged in ([producers] if len(producers) > 1 else []) + [[one] for one in reversed(producers)] + [[]]:
        nodes = sorted({n for group in merged for n in group.nodes}, key=order.__getitem__)
        if _reads_others(inputs, merged, group_of) and would_create_cycle([*nodes, node], group_of, order, order[node]):
            continue
        try:
            lowering = merged[0].lowering.copy() if len(merged) == 1 else lower_nodes(nodes)
            lowering.add(node)
            _check_storable(lowering, [*nodes, node])
        except Unsupported:
            if not merged:
                raise
            continue
        group = Group(lowering, [*nodes, node])
        group_of |= dict.fromkeys(group.nodes, group)
        return


def _reads_others(inputs: Sequence[fx.Node], merged: Sequence[Group], group_of: GroupByNode) -> bool:
    """Whether a node that reads the inputs could create a cycle if it joins some groups: if it leads through another
    input, or from one group to another."""
    return len(merged) > 1 or (bool(merged) and any(group_of.get(one) is not merged[0] for one in inputs))


def _reject_multi_output(group_of: GroupByNode, refused: dict[fx.Node, str]) -> None:
    """Leave operators with several results to torch if no region uses any of the results."""
    multi_output = [node for node in group_of if _is_multi_output(node) and node.users]
    for node in [node for node in multi_output if not any(user in group_of for user in node.users)]:
        group = group_of.pop(node)
        refused[node] = "no region can store its results"
        group.nodes.remove(node)
        if group.nodes:
            group.lowering = lower_nodes(group.nodes)


def _is_multi_output(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (tuple, list))


def _fuse_neighbors(group_of: GroupByNode, order: dict[fx.Node, int]) -> None:
    """Merge groups that read the same values, or of which one reads the other, where that moves fewer bytes."""
    tried: set[tuple[Group, Group]] = set()
    fused = True
    while fused:
        fused = False
        for pair in _pairs_that_share_nodes(list(dict.fromkeys(group_of.values()))):
            if pair in tried:
                continue
            tried.add(pair)
            if group := _try_fuse(*pair, group_of, order):
                group_of |= {node: group for node in group.nodes if node not in group.recomputed}
                fused = True
                break


def _pairs_that_share_nodes(groups: Sequence[Group]) -> Iterator[tuple[Group, Group]]:
    """The pairs of groups of which both have or read a node, in order."""
    touched = [{n for node in group.nodes for n in (node, *node.all_input_nodes)} for group in groups]
    touching: dict[fx.Node, list[int]] = {}
    for index, nodes in enumerate(touched):
        for node in nodes:
            touching.setdefault(node, []).append(index)
    for index, nodes in enumerate(touched):
        for other in sorted({other for node in nodes for other in touching[node] if other > index}):
            yield groups[index], groups[other]


def _try_fuse(one: Group, other: Group, group_of: GroupByNode, order: dict[fx.Node, int]) -> Group | None:
    """The merged group, or None if it is not supported or does not move fewer bytes."""
    nodes = sorted({*one.nodes, *other.nodes}, key=order.__getitem__)
    if would_create_cycle(nodes, group_of, order, len(order)):
        return None
    try:
        own = {node for group in (one, other) for node in group.nodes if node not in group.recomputed}
        fused = Group(lower_unified(nodes), nodes, (one.recomputed | other.recomputed) - own)
        gain = total_bytes_moved([one, other], group_of, order) - total_bytes_moved([fused], group_of, order)
    except Unsupported:
        return None
    return fused if gain > 0 else None


def _store_row_values_as_fp32(graph: fx.Graph, group_of: GroupByNode) -> None:
    """Pass half-precision row values from one group to others in FP32."""
    groups, moved = list(dict.fromkeys(group_of.values())), set[fx.Node]()
    for group in groups:
        for node in filter(is_half, group.live_outputs(group_of)):
            computed_with_it = {n for other in groups if node in other.nodes for n in other.nodes}
            outside = [user for user in node.users if user not in computed_with_it]
            readers = [user for user in outside if _is_read_by_regions(user, group_of)]
            if readers and group.lowering.is_row_value(node):
                fp32 = store_as_fp32(graph, node, readers)
                group.lowering.add(fp32)
                group.nodes.append(fp32)
                group_of[fp32] = group
                moved |= set(readers)
    for group in groups:
        if not moved.isdisjoint(group.nodes):
            group.lowering = lower_unified(group.nodes)


def _is_read_by_regions(node: fx.Node, group_of: GroupByNode) -> bool:
    """Whether a node is in a region, or is a view that a region reads."""
    if node in group_of:
        return True
    return is_rematerializable(node) and any(_is_read_by_regions(user, group_of) for user in node.users)


def _check_storable(lowering: Lowering, nodes: list[fx.Node]) -> None:
    """Build the region so far on trial; users of intermediate values may still join it.

    Raises:
        Unsupported: it cannot be stored.
    """
    inside = set(nodes)
    outputs = [node for node in nodes if any(user not in inside and user.op == "output" for user in node.users)]
    last = [] if _is_multi_output(nodes[-1]) else [nodes[-1]]
    outputs = outputs or last
    unstorable = lowering.find_unstorable(outputs)
    lowering.build("trial", [node for node in outputs if node not in unstorable], keep_unused=True)
