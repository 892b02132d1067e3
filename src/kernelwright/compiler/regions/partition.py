"""Which nodes of a graph become which region. Greedy, in the order of the graph: a node joins the regions that give
it its values, as long as one kernel can hold them all and nobody else has to run in between."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import fx

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.axis_merging import merge_axes
from kernelwright.compiler.regions.cse import eliminate_common_subexpressions
from kernelwright.compiler.regions.gathers import hoist_gathers
from kernelwright.compiler.regions.integer_narrowing import narrow_integers
from kernelwright.compiler.regions.lowering import Lowering, is_rematerializable, lower_nodes
from kernelwright.compiler.regions.operators import POINTWISE, op_name
from kernelwright.compiler.regions.region import SPECIAL_FUNCTIONS, Region
from kernelwright.compiler.regions.row_values import is_half, store_as_fp32

MAX_RECOMPUTED_NODES = 8
"""Nodes that a group computes again rather than reading what they give."""


@dataclass(eq=False)
class _Group:
    """Nodes that run as one; `recomputed` are those of them that another group computes too, and gives to the
    others."""

    lowering: Lowering
    nodes: list[fx.Node] = field(default_factory=list)
    recomputed: frozenset[fx.Node] = frozenset()

    def live_outputs(self, of: GroupByNode) -> list[fx.Node]:
        """The nodes that others need from here."""
        inside = set(self.nodes)
        return [
            node
            for node in self.nodes
            if node not in self.recomputed
            and any(user not in inside and not (user in of and node in of[user].recomputed) for user in node.users)
        ]


GroupByNode = dict[fx.Node, _Group]


def plan_regions(
    graph: fx.Graph, prefix: str = "region"
) -> tuple[list[tuple[Region, list[fx.Node]]], dict[fx.Node, str]]:
    """The regions of a graph with their nodes, and for each node that has none the reason.

    A node can stand in two regions: where others need what a region has only on the way, it is computed twice. The
    graph gets nodes for row values that are stored in FP32: see `row_values`.
    """
    order = {node: at for at, node in enumerate(graph.nodes)}
    of: GroupByNode = {}
    refused: dict[fx.Node, str] = {}
    for node in graph.nodes:
        if node.op != "call_function" or is_rematerializable(node):
            continue
        try:
            _assign_group(node, of, order)
        except Unsupported as reason:
            refused[node] = str(reason)
    _reject_multi_output(of, refused)
    _fuse_neighbors(of, order)
    _recompute_cheap_values(of, order)
    _store_row_values_as_fp32(graph, of)
    order = {node: at for at, node in enumerate(graph.nodes)}
    found: list[tuple[Region, list[fx.Node]]] = []
    for group in dict.fromkeys(of.values()):
        try:
            parts = _build_regions(group, f"{prefix}_", len(found), of, order)
            found += [
                (narrow_integers(merge_axes(hoist_gathers(eliminate_common_subexpressions(region)))), nodes)
                for region, nodes in parts
            ]
        except Unsupported as reason:
            refused |= dict.fromkeys(group.nodes, str(reason))
    return found, refused


def _build_regions(
    group: _Group, prefix: str, number: int, of: GroupByNode, order: dict[fx.Node, int]
) -> list[tuple[Region, list[fx.Node]]]:
    """The region of a group, and others for what it has only on the way although somebody needs it.

    Raises:
        Misfit: there is none.
    """
    wanted = group.live_outputs(of)
    aside = group.lowering.find_unstorable(wanted)
    stored = [node for node in wanted if node not in aside]
    own, nodes = (sorted(_producers(values, group.nodes), key=order.__getitem__) for values in (stored, aside))
    found = [(group.lowering.build(f"{prefix}{number}", stored), own)] if stored else []
    if not aside:
        return found
    if len(nodes) == len(group.nodes):
        raise Unsupported(f"{aside[0].name} is the same for several rows")
    smaller = _Group(lower_nodes(nodes), nodes)
    rest = smaller.lowering.find_unstorable(aside)
    if rest:
        raise Unsupported(f"{rest[0].name} is the same for several rows")
    return [*found, (smaller.lowering.build(f"{prefix}{number + len(found)}", aside), nodes)]


def _producers(wanted: Iterable[fx.Node], nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """Those of some nodes that others are computed from, themselves included."""
    inside, todo, found = set(nodes), list(wanted), set()
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += [n for n in node.all_input_nodes if n in inside]
    return found


def _total_bytes_moved(groups: Iterable[_Group], of: GroupByNode, order: dict[fx.Node, int]) -> int:
    """What they move, all together.

    Raises:
        Misfit: one of them is no region.
    """
    return sum(
        sum(region.bytes_moved) for group in groups for region, _ in _build_regions(group, "trial_", 0, of, order)
    )


def _assign_group(node: fx.Node, of: GroupByNode, order: dict[fx.Node, int]) -> None:
    """Puts a node into the group of its producers, all of them together where that can be, else into its own.

    Raises:
        Misfit: no region can hold it even alone.
    """
    producers = list(dict.fromkeys(of[arg] for arg in node.all_input_nodes if arg in of))
    for together in ([producers] if len(producers) > 1 else []) + [[one] for one in reversed(producers)] + [[]]:
        nodes = sorted({n for group in together for n in group.nodes}, key=order.__getitem__)
        if together and _would_create_cycle([*nodes, node], of, together):
            continue
        try:
            lowering = together[0].lowering.copy() if len(together) == 1 else lower_nodes(nodes)
            lowering.add(node)
            _check_storable(lowering, [*nodes, node])
        except Unsupported:
            if not together:
                raise
            continue
        group = _Group(lowering, [*nodes, node])
        of |= dict.fromkeys(group.nodes, group)
        return


def _reject_multi_output(of: GroupByNode, refused: dict[fx.Node, str]) -> None:
    """Operators with several results, of which no region can hold any, are left to torch as a whole."""
    for node in [n for n in of if _is_multi_output(n) and n.users and not any(user in of for user in n.users)]:
        group = of.pop(node)
        refused[node] = "no region can store its results"
        group.nodes.remove(node)
        if group.nodes:
            group.lowering = lower_nodes(group.nodes)


def _is_multi_output(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (tuple, list))


def _fuse_neighbors(of: GroupByNode, order: dict[fx.Node, int]) -> None:
    """Groups that read the same, or of which one feeds the other, become one where that moves fewer bytes."""
    tried: set[tuple[_Group, _Group]] = set()
    while True:
        groups = list(dict.fromkeys(of.values()))
        pairs = ((one, other) for at, one in enumerate(groups) for other in groups[at + 1 :])
        pair = next((p for p in pairs if p not in tried and _share_nodes(*p)), None)
        if pair is None:
            return
        tried.add(pair)
        if joined := _try_fuse(*pair, of, order):
            of |= dict.fromkeys(joined.nodes, joined)


def _share_nodes(one: _Group, other: _Group) -> bool:
    first, second = ({n for node in group.nodes for n in (node, *node.all_input_nodes)} for group in (one, other))
    return bool(first & second)


def _try_fuse(one: _Group, other: _Group, of: GroupByNode, order: dict[fx.Node, int]) -> _Group | None:
    """Both as one, or None where that cannot be or gains nothing."""
    nodes = sorted({*one.nodes, *other.nodes}, key=order.__getitem__)
    if _would_create_cycle(nodes, of, [one, other]):
        return None
    try:
        both = _Group(lower_nodes(nodes), nodes)
        both.lowering.unify_rows()
        gain = _total_bytes_moved([one, other], of, order) - _total_bytes_moved([both], of, order)
    except Unsupported:
        return None
    return both if gain > 0 else None


def _recompute_cheap_values(of: GroupByNode, order: dict[fx.Node, int]) -> None:
    """What one group stores only for others, who could compute it themselves from what there is anyway, they do."""
    for group in list(dict.fromkeys(of.values())):
        for value in group.live_outputs(of):
            behind = _producers([value], group.nodes)
            outside = [user for user in value.users if of.get(user) is not group]
            if (
                len(behind) > MAX_RECOMPUTED_NODES
                or not all(map(_is_cheap, behind))
                or not all(user in of for user in outside)
            ):
                continue
            try:
                before = dict.fromkeys([group, *(of[user] for user in outside)])
                trial = of | _extend_groups(behind, before.keys() - {group}, of, order)
                after = dict.fromkeys([group, *(trial[user] for user in outside)])
                gain = _total_bytes_moved(before, of, order) - _total_bytes_moved(after, trial, order)
            except Unsupported:
                continue
            if gain > 0:
                of.update(trial)


def _extend_groups(
    behind: set[fx.Node], users: Iterable[_Group], of: GroupByNode, order: dict[fx.Node, int]
) -> GroupByNode:
    """Groups that compute some nodes themselves as well.

    Raises:
        Misfit: one of them cannot.
    """
    found: GroupByNode = {}
    for group in users:
        nodes = sorted(behind | set(group.nodes), key=order.__getitem__)
        wider = _Group(lower_nodes(nodes), nodes, group.recomputed | (behind - set(group.nodes)))
        found |= {node: wider for node in group.nodes if of[node] is group}
    return found


def _store_row_values_as_fp32(graph: fx.Graph, of: GroupByNode) -> None:
    """Row values of half precision that a group stores for others go to them in FP32."""
    groups, moved = list(dict.fromkeys(of.values())), set[fx.Node]()
    for group in groups:
        for node in filter(is_half, group.live_outputs(of)):
            beside = {n for other in groups if node in other.nodes for n in other.nodes}
            readers = [user for user in node.users if user not in beside and _is_read_by_regions(user, of)]
            if readers and group.lowering.is_row_value(node):
                wide = store_as_fp32(graph, node, readers)
                group.lowering.add(wide)
                group.nodes.append(wide)
                of[wide] = group
                moved |= set(readers)
    for group in groups:
        if not moved.isdisjoint(group.nodes):
            group.lowering = lower_nodes(group.nodes)
            group.lowering.unify_rows()


def _is_read_by_regions(node: fx.Node, of: GroupByNode) -> bool:
    """Whether a node is in a region, or a part of a tensor that one reads."""
    return node in of or (is_rematerializable(node) and any(_is_read_by_regions(user, of) for user in node.users))


def _is_cheap(node: fx.Node) -> bool:
    op = POINTWISE.get(op_name(node.target))
    return op is not None and op not in SPECIAL_FUNCTIONS


def _check_storable(lowering: Lowering, nodes: list[fx.Node]) -> None:
    """Whether the region could be stored as things stand; what it has only on the way may still find its user here.

    Raises:
        Misfit: it could not.
    """
    inside = set(nodes)
    wanted = [n for n in nodes if any(user not in inside and user.op == "output" for user in n.users)]
    last = [] if _is_multi_output(nodes[-1]) else [nodes[-1]]
    wanted = wanted or last
    aside = lowering.find_unstorable(wanted)
    lowering.build("trial", [node for node in wanted if node not in aside], keep_unused=True)


def _would_create_cycle(nodes: list[fx.Node], of: GroupByNode, together: list[_Group]) -> bool:
    """Whether a node outside needs one of these and gives one of these something back."""
    inside = set(nodes)
    todo = [user for n in nodes for user in n.users if user not in inside]
    seen: set[fx.Node] = set()
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        group = of.get(node)
        for member in group.nodes if group else [node]:
            seen.add(member)
            for user in member.users:
                if user in inside:
                    return True
                todo.append(user)
    return False
