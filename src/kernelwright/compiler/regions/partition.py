"""Greedy partition of a graph into regions, in graph order: a node joins the groups of its producers if one kernel can
compute them all and no other node has to run in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from torch import fx

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.axis_merging import merge_axes
from kernelwright.compiler.regions.cse import eliminate_common_subexpressions
from kernelwright.compiler.regions.gathers import hoist_gathers
from kernelwright.compiler.regions.integer_narrowing import narrow_integers
from kernelwright.compiler.regions.lowering import Lowering, is_rematerializable, lower_nodes
from kernelwright.compiler.regions.nodes import DEPTHWISE, ROW_PRODUCT
from kernelwright.compiler.regions.operators import CONVERSIONS, POINTWISE, op_name
from kernelwright.compiler.regions.region import SPECIAL_FUNCTIONS, Region
from kernelwright.compiler.regions.row_factors import pull_row_factors
from kernelwright.compiler.regions.row_values import is_half, store_as_fp32

MAX_RECOMPUTED_NODES, MAX_RECOMPUTED_ROW_NODES = 8, 16
"""Most nodes that a group recomputes instead of reading their result; and that a product of one row recomputes, such as
the norm of that row."""


@dataclass(eq=False)
class _Group:
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


GroupByNode = dict[fx.Node, _Group]


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
    _move_after_products(group_of, order)
    _fuse_neighbors(group_of, order)
    _recompute_cheap_values(group_of, order)
    _move_after_rows(group_of, order)
    _recompute_rows_of_products(group_of, order)
    _store_row_values_as_fp32(graph, group_of)
    order = {node: index for index, node in enumerate(graph.nodes)}
    regions: list[tuple[Region, list[fx.Node]]] = []
    for group in dict.fromkeys(group_of.values()):
        try:
            regions += [
                (_simplify(region), nodes)
                for region, nodes in _build_regions(group, f"{prefix}_", len(regions), group_of, order)
            ]
        except Unsupported as reason:
            refused |= dict.fromkeys(group.nodes, str(reason))
    return regions, refused


def _simplify(region: Region) -> Region:
    region = eliminate_common_subexpressions(pull_row_factors(eliminate_common_subexpressions(region)))
    return narrow_integers(merge_axes(hoist_gathers(region)))


def _build_regions(
    group: _Group, prefix: str, number: int, group_of: GroupByNode, order: dict[fx.Node, int]
) -> list[tuple[Region, list[fx.Node]]]:
    """The region of a group, and another for outputs that are intermediate values without all outer axes.

    Raises:
        Unsupported: there is none.
    """
    outputs = group.live_outputs(group_of)
    unstorable = group.lowering.find_unstorable(outputs)
    stored = [node for node in outputs if node not in unstorable]
    own, nodes = (sorted(_producers(values, group.nodes), key=order.__getitem__) for values in (stored, unstorable))
    regions = [(group.lowering.build(f"{prefix}{number}", stored), own)] if stored else []
    if not unstorable:
        return regions
    if len(nodes) == len(group.nodes):
        raise Unsupported(f"{unstorable[0].name} is constant across several rows")
    smaller = _Group(lower_nodes(nodes), nodes)
    if rest := smaller.lowering.find_unstorable(unstorable):
        raise Unsupported(f"{rest[0].name} is constant across several rows")
    return [*regions, (smaller.lowering.build(f"{prefix}{number + len(regions)}", unstorable), nodes)]


def _producers(wanted: Iterable[fx.Node], nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """The wanted nodes and those of `nodes` that they depend on."""
    inside, stack, producers = set(nodes), list(wanted), set()
    while stack:
        node = stack.pop()
        if node not in producers:
            producers.add(node)
            stack += [source for source in node.all_input_nodes if source in inside]
    return producers


def _total_bytes_moved(groups: Iterable[_Group], group_of: GroupByNode, order: dict[fx.Node, int]) -> int:
    """The bytes that the regions of some groups move in total.

    Raises:
        Unsupported: a group is not a region.
    """
    return sum(
        sum(region.bytes_moved) for group in groups for region, _ in _build_regions(group, "trial_", 0, group_of, order)
    )


def _assign_group(node: fx.Node, group_of: GroupByNode, order: dict[fx.Node, int]) -> None:
    """Add a node to the group of its producers: to all of their groups merged, else to one of them, else to a new one.

    Raises:
        Unsupported: the node cannot be in any region.
    """
    producers = list(dict.fromkeys(group_of[arg] for arg in node.all_input_nodes if arg in group_of))
    inputs = [arg for arg in node.all_input_nodes if arg.op == "call_function"]
    for merged in ([producers] if len(producers) > 1 else []) + [[one] for one in reversed(producers)] + [[]]:
        nodes = sorted({n for group in merged for n in group.nodes}, key=order.__getitem__)
        if _reads_others(inputs, merged, group_of) and _would_create_cycle(
            [*nodes, node], group_of, order, order[node]
        ):
            continue
        try:
            lowering = merged[0].lowering.copy() if len(merged) == 1 else lower_nodes(nodes)
            lowering.add(node)
            _check_storable(lowering, [*nodes, node])
        except Unsupported:
            if not merged:
                raise
            continue
        group = _Group(lowering, [*nodes, node])
        group_of |= dict.fromkeys(group.nodes, group)
        return


def _reads_others(inputs: Sequence[fx.Node], merged: Sequence[_Group], group_of: GroupByNode) -> bool:
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
    tried: set[tuple[_Group, _Group]] = set()
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


def _pairs_that_share_nodes(groups: Sequence[_Group]) -> Iterator[tuple[_Group, _Group]]:
    """The pairs of groups of which both have or read a node, in order."""
    touched = [{n for node in group.nodes for n in (node, *node.all_input_nodes)} for group in groups]
    touching: dict[fx.Node, list[int]] = {}
    for index, nodes in enumerate(touched):
        for node in nodes:
            touching.setdefault(node, []).append(index)
    for index, nodes in enumerate(touched):
        for other in sorted({other for node in nodes for other in touching[node] if other > index}):
            yield groups[index], groups[other]


def _try_fuse(one: _Group, other: _Group, group_of: GroupByNode, order: dict[fx.Node, int]) -> _Group | None:
    """The merged group, or None if it is not supported or does not move fewer bytes."""
    nodes = sorted({*one.nodes, *other.nodes}, key=order.__getitem__)
    if _would_create_cycle(nodes, group_of, order, len(order)):
        return None
    try:
        own = {node for group in (one, other) for node in group.nodes if node not in group.recomputed}
        fused = _Group(_lower_unified(nodes), nodes, (one.recomputed | other.recomputed) - own)
        gain = _total_bytes_moved([one, other], group_of, order) - _total_bytes_moved([fused], group_of, order)
    except Unsupported:
        return None
    return fused if gain > 0 else None


def _recompute_cheap_values(group_of: GroupByNode, order: dict[fx.Node, int]) -> None:
    """Recompute cheap values in the groups that read them, instead of storing them, where that moves fewer bytes."""
    for group in list(dict.fromkeys(group_of.values())):
        for value in group.live_outputs(group_of):
            producers = _producers([value], group.nodes)
            outside = [user for user in value.users if group_of.get(user) is not group]
            if (
                len(producers) > MAX_RECOMPUTED_NODES
                or not all(map(_is_cheap, producers))
                or not all(user in group_of for user in outside)
            ):
                continue
            _try_recompute(group, producers, outside, group_of, order)


def _move_after_products(group_of: GroupByNode, order: dict[fx.Node, int]) -> None:
    """Move what follows elementwise from the stored results of a product, or of a depthwise convolution, to where it is
    read, such as the square of which a norm takes the mean."""
    for node in sorted(group_of, key=order.__getitem__, reverse=True):
        group = group_of[node]
        if not (group.has_row_product or group.has_depthwise) or not _is_simple(node):
            continue
        live = group.live_outputs(group_of)
        sources = [source for source in node.all_input_nodes if source in group.nodes]
        if node in live and sources and all(source in live for source in sources):
            _move_to_readers(node, group_of, order)


def _move_to_readers(node: fx.Node, group_of: GroupByNode, order: dict[fx.Node, int]) -> None:
    """Move a node to the groups that read it, if these are all other groups, and can compute it."""
    try:
        group_of.update(_moved_to_readers({node}, set(), group_of, order))
    except Unsupported:
        return


def _moved_to_readers(
    moved: set[fx.Node], shared: set[fx.Node], group_of: GroupByNode, order: dict[fx.Node, int]
) -> GroupByNode:
    """The groups that change if those that read some nodes of another group compute them.

    Args:
        shared: nodes that both compute.
    Raises:
        Unsupported: the group or a node outside all groups needs them, or a group cannot compute them.
    """
    group = group_of[next(iter(moved))]
    others = [one for one in group.nodes if one not in moved]
    readers = {group_of.get(user): user for node in moved for user in node.users if user not in moved}
    groups = [reader for reader in readers if reader is not None and reader is not group]
    if len(groups) < len(readers):
        raise Unsupported("it is read elsewhere")
    extended = _extend_groups(moved | shared, groups, group_of, order)
    remaining = _Group(lower_nodes(others), others, group.recomputed)
    owner = extended[readers[groups[0]]]
    owner.recomputed -= moved
    rest = {one: remaining for one in others if group_of[one] is group}
    return extended | rest | dict.fromkeys(moved, owner)


def _move_after_rows(group_of: GroupByNode, order: dict[fx.Node, int]) -> None:
    """Move what follows elementwise from the values of rows, such as a norm from its mean and variance, to the groups
    that read it, where that moves fewer bytes: they read the values of the rows instead."""
    for group in list(dict.fromkeys(group_of.values())):
        for value in group.live_outputs(group_of):
            rows = {node for node in group.nodes if group.lowering.is_row_value(node)}
            producers = _producers([value], [node for node in group.nodes if node not in rows])
            if len(producers) > MAX_RECOMPUTED_NODES or not all(map(_is_simple, producers)):
                continue
            if value in rows or not all(group_of[node] is group for node in producers):
                continue
            _try_move(group, producers, group_of, order)


def _try_move(group: _Group, nodes: set[fx.Node], group_of: GroupByNode, order: dict[fx.Node, int]) -> None:
    """Move some nodes of a group to the groups that read them, if that moves fewer bytes. The inputs of nodes that the
    rest of the group reads are computed in both."""
    rest = set(group.nodes) - nodes
    shared = _producers([node for node in nodes if not rest.isdisjoint(node.users)], nodes)
    kept = next((one for one in group.nodes if one in rest and group_of[one] is group), None)
    reads_rest = any(source in rest for node in shared for source in node.all_input_nodes)
    if kept is None or reads_rest or shared == nodes:
        return
    try:
        trial = group_of | _moved_to_readers(nodes - shared, shared, group_of, order)
        outside = [user for node in nodes - shared for user in node.users if user not in nodes]
        before, after = (dict.fromkeys(by[one] for one in (kept, *outside)) for by in (group_of, trial))
        gain = _total_bytes_moved(before, group_of, order) - _total_bytes_moved(after, trial, order)
    except Unsupported:
        return
    if gain > 0:
        group_of.update(trial)


def _recompute_rows_of_products(group_of: GroupByNode, order: dict[fx.Node, int]) -> None:
    """Recompute the row that a product multiplies, such as its norm, where that moves fewer bytes: next to the matrix
    it takes no time, and saves the launch that stores it."""
    for value in sorted(group_of, key=order.__getitem__):
        group = group_of[value]
        outside = [user for user in value.users if group_of.get(user) is not group]
        if not outside or not all(user in group_of and group_of[user].has_row_product for user in outside):
            continue
        producers = _producers([value], group.nodes)
        expensive = any(ROW_PRODUCT in node.meta or _is_special(node) for node in producers)
        if len(producers) <= MAX_RECOMPUTED_ROW_NODES and not expensive and value in group.live_outputs(group_of):
            _try_recompute(group, producers, outside, group_of, order)


def _try_recompute(
    group: _Group,
    producers: set[fx.Node],
    users: Sequence[fx.Node],
    group_of: GroupByNode,
    order: dict[fx.Node, int],
) -> None:
    """Let the groups of some users compute what produces a value, too, if that moves fewer bytes."""
    try:
        before = dict.fromkeys([group, *(group_of[user] for user in users)])
        trial = group_of | _extend_groups(producers, before.keys() - {group}, group_of, order)
        after = dict.fromkeys([group, *(trial[user] for user in users)])
        gain = _total_bytes_moved(before, group_of, order) - _total_bytes_moved(after, trial, order)
    except Unsupported:
        return
    if gain > 0:
        group_of.update(trial)


def _extend_groups(
    added: set[fx.Node], users: Iterable[_Group], group_of: GroupByNode, order: dict[fx.Node, int]
) -> GroupByNode:
    """Replacements of some groups that also compute the added nodes.

    Raises:
        Unsupported: a group cannot compute them.
    """
    extended: GroupByNode = {}
    for group in users:
        nodes = sorted(added | set(group.nodes), key=order.__getitem__)
        replacement = _Group(_lower_unified(nodes), nodes, group.recomputed | (added - set(group.nodes)))
        extended |= {node: replacement for node in group.nodes if group_of[node] is group}
    return extended


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
            group.lowering = _lower_unified(group.nodes)


def _is_read_by_regions(node: fx.Node, group_of: GroupByNode) -> bool:
    """Whether a node is in a region, or is a view that a region reads."""
    if node in group_of:
        return True
    return is_rematerializable(node) and any(_is_read_by_regions(user, group_of) for user in node.users)


def _is_cheap(node: fx.Node) -> bool:
    op = POINTWISE.get(op_name(node.target))
    return op is not None and op not in SPECIAL_FUNCTIONS


def _is_simple(node: fx.Node) -> bool:
    """Whether a node is a conversion, or elementwise without special functions."""
    return op_name(node.target) in (*CONVERSIONS, *POINTWISE) and not _is_special(node)


def _is_special(node: fx.Node) -> bool:
    """Whether a node is a special function; a square is none."""
    op = POINTWISE.get(op_name(node.target))
    return op in SPECIAL_FUNCTIONS and not (op == "pow" and node.args[1] in (2, 3, 4))


def _lower_unified(nodes: Sequence[fx.Node]) -> Lowering:
    """Lower nodes of which some read the same values only; their rows, and the columns of products, become one.

    Raises:
        Unsupported: they are not supported in one region.
    """
    lowering = lower_nodes(nodes)
    lowering.unify_rows()
    lowering.unify_columns()
    return lowering


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


def _would_create_cycle(nodes: list[fx.Node], group_of: GroupByNode, order: dict[fx.Node, int], last: int) -> bool:
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
