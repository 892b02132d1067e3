"""Which nodes of a graph become which region. Greedy, in the order of the graph: a node joins the regions that give
it its values, as long as one kernel can hold them all and nobody else has to run in between."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import fx

from kernelwright.optimize.axes import Misfit
from kernelwright.optimize.lower import Lowering, lowered, made_anywhere
from kernelwright.optimize.merging import merged
from kernelwright.optimize.region import Region


@dataclass(eq=False)
class _Group:
    """Nodes that run as one."""

    lowering: Lowering
    nodes: list[fx.Node] = field(default_factory=list)


def plan(graph: fx.Graph, prefix: str = "region") -> tuple[list[tuple[Region, list[fx.Node]]], dict[fx.Node, str]]:
    """The regions of a graph with their nodes, and for each node that has none the reason."""
    order = {node: at for at, node in enumerate(graph.nodes)}
    of: dict[fx.Node, _Group] = {}
    refused: dict[fx.Node, str] = {}
    for node in graph.nodes:
        if node.op != "call_function" or made_anywhere(node):
            continue
        try:
            _place(node, of, order)
        except Misfit as reason:
            refused[node] = str(reason)
    groups = list(dict.fromkeys(of.values()))
    found = []
    for at, group in enumerate(groups):
        wanted = [n for n in group.nodes if any(of.get(user) is not group for user in n.users)]
        try:
            found.append((merged(group.lowering.region(f"{prefix}_{at}", wanted)), group.nodes))
        except Misfit as reason:
            refused |= dict.fromkeys(group.nodes, str(reason))
    return found, refused


def _place(node: fx.Node, of: dict[fx.Node, _Group], order: dict[fx.Node, int]) -> None:
    """Puts a node into the group of its producers, all of them together where that can be, else into its own.

    Raises:
        Misfit: no region can hold it even alone.
    """
    producers = list(dict.fromkeys(of[arg] for arg in node.all_input_nodes if arg in of))
    for together in ([producers] if len(producers) > 1 else []) + [[one] for one in reversed(producers)] + [[]]:
        nodes = sorted({n for group in together for n in group.nodes}, key=order.__getitem__)
        if together and _something_between([*nodes, node], of, together):
            continue
        try:
            lowering = together[0].lowering.copy() if len(together) == 1 else lowered(nodes)
            lowering.add(node)
            _checked(lowering, [*nodes, node])
        except Misfit:
            if not together:
                raise
            continue
        group = _Group(lowering, [*nodes, node])
        of |= dict.fromkeys(group.nodes, group)
        return


def _checked(lowering: Lowering, nodes: list[fx.Node]) -> None:
    """Whether the region could be stored as things stand.

    Raises:
        Misfit: it could not.
    """
    inside = set(nodes)
    wanted = [n for n in nodes if any(user not in inside and user.op == "output" for user in n.users)]
    last = [] if isinstance(nodes[-1].meta.get("val"), (tuple, list)) else [nodes[-1]]
    lowering.region("trial", wanted or last)


def _something_between(nodes: list[fx.Node], of: dict[fx.Node, _Group], together: list[_Group]) -> bool:
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
