"""Correspondence between the program's original calls and the nodes of the decomposed graph."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import fx
from torch.utils import _pytree as pytree

from kernelwright.compiler.capture.capture import CapturedProgram
from kernelwright.compiler.capture.origins import CALL_VALUES


class GraphOutput(NamedTuple):
    """One output of a graph.

    Attributes:
        value: the node or constant.
        mutated_input: the placeholder that it updates; for a returned value, the placeholder that is returned itself.
        is_returned: whether the program returns it; else it is only written into `mutated_input`.
    """

    value: Any
    mutated_input: fx.Node | None
    is_returned: bool


def map_calls_to_values(captured: CapturedProgram) -> dict[fx.Node, fx.Node]:
    """Map each original call to the node that has its value; a call whose value a rewrite removed has none."""
    last = {name: node for node in captured.graph.nodes for name in node.meta.get(CALL_VALUES, ())}
    placeholders = {node.name: node for node in captured.graph.nodes if node.op == "placeholder"}
    values = {}
    for node in captured.exported.graph.nodes:
        if node.op == "placeholder" and node.name in placeholders:
            values[node] = placeholders[node.name]
        elif node.name in last and _same_shape(node, last[node.name]):
            values[node] = last[node.name]
    return values


def _same_shape(one: fx.Node, other: fx.Node) -> bool:
    left, right = one.meta.get("val"), other.meta.get("val")
    return isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor) and left.shape == right.shape


def list_outputs(captured: CapturedProgram) -> list[GraphOutput]:
    """List a graph's outputs in order."""
    (output,) = (node for node in captured.graph.nodes if node.op == "output")
    (exported_output,) = (node for node in captured.exported.graph.nodes if node.op == "output")
    placeholders = {node.name: node for node in captured.graph.nodes if node.op == "placeholder"}
    by_source = {(source.kind, source.name): node for node, source in captured.sources.items()}
    returned = iter(pytree.tree_leaves(exported_output.args[0]))
    values: Any = output.args[0]
    outputs = []
    for value, target in zip(values, captured.results, strict=True):
        if target[0] == "output":
            outputs.append(GraphOutput(value, placeholders.get(_mutated_name(next(returned))), True))
        else:
            outputs.append(GraphOutput(value, by_source[target], False))
    return outputs


def _mutated_name(value: Any) -> str:
    """The name of the tensor that a chain of in-place operators mutates and returns."""
    while isinstance(value, fx.Node) and isinstance(value.target, torch._ops.OpOverload):
        returns = value.target._schema.returns
        if not (returns and returns[0].alias_info and returns[0].alias_info.is_write and value.args):
            break
        value = value.args[0]
    return value.name if isinstance(value, fx.Node) else ""
