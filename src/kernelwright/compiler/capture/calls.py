"""What of a program's own calls stands where in the graph that they were taken apart into."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import fx
from torch.utils import _pytree as pytree

from kernelwright.compiler.capture.capture import CapturedProgram


class GraphOutput(NamedTuple):
    """A value that a graph gives back: to be returned, or to be written into an argument or buffer; a value that is
    returned can be that of an argument, which is then itself what the program returns."""

    value: Any
    mutated_input: fx.Node | None
    is_returned: bool


def source_call_name(node: fx.Node) -> str:
    """The call of the program that a node comes from; a name of its own where that is not known."""
    sources = node.meta.get("from_node")
    return sources[-1].name if sources else f"only {node.name}"


def map_calls_to_values(captured: CapturedProgram) -> dict[fx.Node, fx.Node]:
    """For each call of the program the node that has its value: the last one that came from it."""
    last = {source_call_name(node): node for node in captured.graph.nodes if node.op == "call_function"}
    placeholders = {node.name: node for node in captured.graph.nodes if node.op == "placeholder"}
    found = {}
    for node in captured.exported.graph.nodes:
        if node.op == "placeholder" and node.name in placeholders:
            found[node] = placeholders[node.name]
        elif node.name in last and _same_shape(node, last[node.name]):
            found[node] = last[node.name]
    return found


def _same_shape(one: fx.Node, other: fx.Node) -> bool:
    value, same = one.meta.get("val"), other.meta.get("val")
    return isinstance(value, torch.Tensor) and isinstance(same, torch.Tensor) and value.shape == same.shape


def list_outputs(captured: CapturedProgram) -> list[GraphOutput]:
    """What a graph gives back, in its order."""
    (output,) = (node for node in captured.graph.nodes if node.op == "output")
    (called,) = (node for node in captured.exported.graph.nodes if node.op == "output")
    placeholders = {node.name: node for node in captured.graph.nodes if node.op == "placeholder"}
    by_source = {(source.kind, source.name): node for node, source in captured.sources.items()}
    returned = iter(pytree.tree_leaves(called.args[0]))
    values: Any = output.args[0]
    found = []
    for value, what in zip(values, captured.results, strict=True):
        if what[0] == "output":
            found.append(GraphOutput(value, placeholders.get(_mutated_name(next(returned))), True))
        else:
            found.append(GraphOutput(value, by_source[what], False))
    return found


def _mutated_name(value: Any) -> str:
    """The name of what a chain of operators in place has changed and passed on."""
    while isinstance(value, fx.Node) and isinstance(value.target, torch._ops.OpOverload):
        returns = value.target._schema.returns
        if not (returns and returns[0].alias_info and returns[0].alias_info.is_write and value.args):
            break
        value = value.args[0]
    return value.name if isinstance(value, fx.Node) else ""
