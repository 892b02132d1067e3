"""The original call that each node of a decomposed graph comes from, and the node that has a call's value."""

from __future__ import annotations

from torch import fx

CALL_VALUES = "call_values"
"""Key in the meta of a node that has the value of original calls: their names."""


def source_call_name(node: fx.Node) -> str:
    """Return the name of the original call that a node comes from; a unique name if that is unknown."""
    sources = node.meta.get("from_node")
    return sources[-1].name if sources else f"only {node.name}"


def mark_call_values(graph: fx.Graph) -> None:
    """Mark the last node of each original call: it has the call's value.

    Runs before the rewrites: where one removes that node, the last node that is left has another value.
    """
    for name, node in {source_call_name(n): n for n in graph.nodes if n.op == "call_function"}.items():
        node.meta[CALL_VALUES] = (name,)


def move_call_values(old: fx.Node, new: fx.Node) -> None:
    """Let a node that replaces another one be the value of its calls."""
    if names := old.meta.pop(CALL_VALUES, ()):
        new.meta[CALL_VALUES] = (*new.meta.get(CALL_VALUES, ()), *names)
