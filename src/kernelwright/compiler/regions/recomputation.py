"""Values that groups of nodes compute where they read them, instead of reading what another group stores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import fx

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.groups import Group, GroupByNode, lower_unified, producers_of, total_bytes_moved
from kernelwright.compiler.regions.lowering import lower_nodes
from kernelwright.compiler.regions.nodes import ROW_PRODUCT
from kernelwright.compiler.regions.operators import CONVERSIONS, POINTWISE, op_name
from kernelwright.compiler.regions.region import SPECIAL_FUNCTIONS

MAX_RECOMPUTED_NODES, MAX_RECOMPUTED_ROW_NODES = 8, 16
"""Most nodes that a group recomputes instead of reading their result; and that a product of one row recomputes, such as
the norm of that row."""


def recompute_cheap_values(group_of: GroupByNode, order: dict[fx.Node, int]) -> None:
    """Recompute cheap values in the groups that read them, instead of storing them, where that moves fewer bytes."""
    for group in list(dict.fromkeys(group_of.values())):
        for value in group.live_outputs(group_of):
            producers = producers_of([value], group.nodes)
            outside = [user for user in value.users if group_of.get(user) is not group]
            if (
                len(producers) > MAX_RECOMPUTED_NODES
                or not all(map(_is_cheap, producers))
                or not all(user in group_of for user in outside)
            ):
                continue
            _try_recompute(group, producers, outside, group_of, order)


def move_after_products(group_of: GroupByNode, order: dict[fx.Node, int]) -> None:
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
    remaining = Group(lower_nodes(others), others, group.recomputed)
    owner = extended[readers[groups[0]]]
    owner.recomputed -= moved
    rest = {one: remaining for one in others if group_of[one] is group}
    return extended | rest | dict.fromkeys(moved, owner)


def move_after_rows(group_of: GroupByNode, order: dict[fx.Node, int]) -> None:
    """Move what follows elementwise from the values of rows, such as a norm from its mean and variance, to the groups
    that read it, where that moves fewer bytes: they read the values of the rows instead."""
    for group in list(dict.fromkeys(group_of.values())):
        for value in group.live_outputs(group_of):
            rows = {node for node in group.nodes if group.lowering.is_row_value(node)}
            producers = producers_of([value], [node for node in group.nodes if node not in rows])
            if len(producers) > MAX_RECOMPUTED_NODES or not all(map(_is_simple, producers)):
                continue
            if value in rows or not all(group_of[node] is group for node in producers):
                continue
            _try_move(group, producers, group_of, order)


def _try_move(group: Group, nodes: set[fx.Node], group_of: GroupByNode, order: dict[fx.Node, int]) -> None:
    """Move some nodes of a group to the groups that read them, if that moves fewer bytes. The inputs of nodes that the
    rest of the group reads are computed in both."""
    rest = set(group.nodes) - nodes
    shared = producers_of([node for node in nodes if not rest.isdisjoint(node.users)], nodes)
    kept = next((one for one in group.nodes if one in rest and group_of[one] is group), None)
    reads_rest = any(source in rest for node in shared for source in node.all_input_nodes)
    if kept is None or reads_rest or shared == nodes:
        return
    try:
        trial = group_of | _moved_to_readers(nodes - shared, shared, group_of, order)
        outside = [user for node in nodes - shared for user in node.users if user not in nodes]
        before, after = (dict.fromkeys(by[one] for one in (kept, *outside)) for by in (group_of, trial))
        gain = total_bytes_moved(before, group_of, order) - total_bytes_moved(after, trial, order)
    except Unsupported:
        return
    if gain > 0:
        group_of.update(trial)


def recompute_rows_of_products(group_of: GroupByNode, order: dict[fx.Node, int]) -> None:
    """Recompute the row that a product multiplies, such as its norm, where that moves fewer bytes: next to the matrix
    it takes no time, and saves the launch that stores it."""
    for value in sorted(group_of, key=order.__getitem__):
        group = group_of[value]
        outside = [user for user in value.users if group_of.get(user) is not group]
        if not outside or not all(user in group_of and group_of[user].has_row_product for user in outside):
            continue
        producers = producers_of([value], group.nodes)
        expensive = any(ROW_PRODUCT in node.meta or _is_special(node) for node in producers)
        if len(producers) <= MAX_RECOMPUTED_ROW_NODES and not expensive and value in group.live_outputs(group_of):
            _try_recompute(group, producers, outside, group_of, order)


def _try_recompute(
    group: Group,
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
        gain = total_bytes_moved(before, group_of, order) - total_bytes_moved(after, trial, order)
    except Unsupported:
        return
    if gain > 0:
        group_of.update(trial)


def _extend_groups(
    added: set[fx.Node], users: Iterable[Group], group_of: GroupByNode, order: dict[fx.Node, int]
) -> GroupByNode:
    """Replacements of some groups that also compute the added nodes.

    Raises:
        Unsupported: a group cannot compute them.
    """
    extended: GroupByNode = {}
    for group in users:
        nodes = sorted(added | set(group.nodes), key=order.__getitem__)
        replacement = Group(lower_unified(nodes), nodes, group.recomputed | (added - set(group.nodes)))
        extended |= {node: replacement for node in group.nodes if group_of[node] is group}
    return extended


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
