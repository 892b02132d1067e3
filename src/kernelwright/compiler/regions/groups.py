"""Groups of nodes that become regions: what they store, what they read, and how many bytes they move."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from torch import fx

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.lowering import Lowering, lower_nodes
from kernelwright.compiler.regions.nodes import DEPTHWISE, ROW_PRODUCT
from kernelwright.compiler.regions.region import Region


@dataclass(eq=False)
class Group:
    """Nodes that become one region.

    Attributes:
        recomputed: the nodes that another group computes too, and stores for others.
    """

    lowering: Lowering
    nodes: list[fx.Node] = field(default_factory=list)
    recomputed: frozenset[fx.Node] = frozenset()

    @property
    def has_row_product(self) -> bool:
        """Whether a matrix product is computed as sums over rows."""
        return any(ROW_PRODUCT in node.meta for node in self.nodes)

    @property
    def has_depthwise(self) -> bool:
        """Whether a depthwise convolution is computed."""
        return any(DEPTHWISE in node.meta for node in self.nodes)

    def live_outputs(self, group_of: GroupByNode) -> list[fx.Node]:
        """Return the nodes that users outside this group read."""
        inside = set(self.nodes)

        def is_read_by(user: fx.Node, node: fx.Node) -> bool:
            return user not in inside and not (user in group_of and node in group_of[user].recomputed)

        return [
            node
            for node in self.nodes
            if node not in self.recomputed and any(is_read_by(user, node) for user in node.users)
        ]


GroupByNode = dict[fx.Node, Group]


def producers_of(wanted: Iterable[fx.Node], nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """The wanted nodes and those of `nodes` that they depend on."""
    inside, stack, producers = set(nodes), list(wanted), set()
    while stack:
        node = stack.pop()
        if node not in producers:
            producers.add(node)
            stack += [source for source in node.all_input_nodes if source in inside]
    return producers


def total_bytes_moved(groups: Iterable[Group], group_of: GroupByNode, order: dict[fx.Node, int]) -> int:
    """The bytes that the regions of some groups move in total.

    Raises:
        Unsupported: a group is not a region.
    """
    return sum(
        sum(region.bytes_moved) for group in groups for region, _ in build_regions(group, "trial_", 0, group_of, order)
    )


def build_regions(
    group: Group, prefix: str, number: int, group_of: GroupByNode, order: dict[fx.Node, int]
) -> list[tuple[Region, list[fx.Node]]]:
    """The region of a group, and another for outputs that are intermediate values without all outer axes.

    Raises:
        Unsupported: there is none.
    """
    outputs = group.live_outputs(group_of)
    unstorable = group.lowering.find_unstorable(outputs)
    stored = [node for node in outputs if node not in unstorable]
    own, nodes = (sorted(producers_of(values, group.nodes), key=order.__getitem__) for values in (stored, unstorable))
    regions = [(group.lowering.build(f"{prefix}{number}", stored), own)] if stored else []
    if not unstorable:
        return regions
    if len(nodes) == len(group.nodes):
        raise Unsupported(f"{unstorable[0].name} is constant across several rows")
    smaller = Group(lower_nodes(nodes), nodes)
    if rest := smaller.lowering.find_unstorable(unstorable):
        raise Unsupported(f"{rest[0].name} is constant across several rows")
    return [*regions, (smaller.lowering.build(f"{prefix}{number + len(regions)}", unstorable), nodes)]


def lower_unified(nodes: Sequence[fx.Node]) -> Lowering:
    """Lower nodes of which some read the same values only; their rows, and the columns of products, become one.

    Raises:
        Unsupported: they are not supported in one region.
    """
    lowering = lower_nodes(nodes)
    lowering.unify_rows()
    lowering.unify_columns()
    return lowering


def would_create_cycle(nodes: list[fx.Node], group_of: GroupByNode, order: dict[fx.Node, int], last: int) -> bool:
    """Whether a node outside both depends on one of these nodes and is an input of one.

    Args:
        last: the position after which no node is in a group: what comes later leads to no node before it.
    """
    inside = set(nodes)
    stack = [user for node in nodes for user in node.users if user not in inside]
    seen: set[fx.Node] = set()
    while stack:
        node = stack.pop()
        if node in seen or order[node] > last:
            continue
        seen.add(node)
        group = group_of.get(node)
        for member in group.nodes if group else [node]:
            seen.add(member)
            for user in member.users:
                if user in inside:
                    return True
                stack.append(user)
    return False
