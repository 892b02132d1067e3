"""The torch reference of a region: the original calls of the program if they make up the region, else its operators."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from kernelwright.compiler.capture.calls import map_calls_to_values
from kernelwright.compiler.capture.capture import CapturedProgram, normalize_call
from kernelwright.compiler.capture.origins import source_call_name
from kernelwright.compiler.forward_codegen import PlannedRegion
from kernelwright.compiler.regions.nodes import fill_value, is_rematerializable, node_arg
from kernelwright.compiler.regions.operators import op_name

aten = torch.ops.aten


def build_reference(captured: CapturedProgram, part: PlannedRegion) -> fx.GraphModule:
    """Build a module that takes the region's inputs and returns its outputs as a tuple."""
    return _from_calls(captured, part) or _from_operators(captured, part)


def format_reference(reference: fx.GraphModule, name: str) -> str:
    """Print a reference as a plain function for the output file; a single output is returned without its tuple."""
    code = (
        reference.code.strip()
        .replace("def forward(self, ", f"def {name}(", 1)
        .replace("def forward(self", f"def {name}(")
    )
    lines = [line for line in code.splitlines() if line.strip()]
    lines[-1] = re.sub(r"return \((\w+),\)", r"return \1", lines[-1])
    return "\n".join(lines)


def record_region_inputs(
    captured: CapturedProgram, parts: Sequence[PlannedRegion], values: Sequence[Any]
) -> list[list[torch.Tensor]]:
    """Run the graph once and record the input tensors of each region.

    Args:
        values: the values of the graph's placeholders.
    """
    by_name = {node.name: node for node in captured.graph.nodes}
    wanted = {by_name[name] for part in parts for name in part.region.reads}
    seen: dict[fx.Node, torch.Tensor] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            if n in wanted:
                seen[n] = result.detach()
            return result

    module = fx.GraphModule(torch.nn.Module(), captured.graph)
    with torch.no_grad():
        Recorder(module).run(*values, enable_io_processing=False)
    return [[seen[by_name[name]] for name in part.region.reads] for part in parts]


def bind_placeholders(captured: CapturedProgram, program: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the values of the graph's placeholders in a call of the program."""
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves(normalize_call(program, args, kwargs))

    def value(kind: str, name: str, constant: Any) -> Any:
        match kind:
            case "argument":
                return leaves[int(name)]
            case "constant":
                return constant
        owner, _, last = name.rpartition(".")
        return getattr(program.get_submodule(owner), last)

    return [value(*source) for source in captured.sources.values()]


def _from_calls(captured: CapturedProgram, part: PlannedRegion) -> fx.GraphModule | None:
    names, nodes = {source_call_name(node) for node in part.nodes}, set(part.nodes)
    value_of = map_calls_to_values(captured)
    calls = [node for node in captured.exported.graph.nodes if node.name in names and node.op == "call_function"]
    complete = all(
        node in nodes for node in captured.graph.nodes if node.op == "call_function" and source_call_name(node) in names
    )
    functional = all(isinstance(c.target, torch._ops.OpOverload) and not c.target._schema.is_mutable for c in calls)
    if not calls or not complete or not functional:
        return None
    return _build_graph(captured, part, calls, lambda node: value_of.get(node))


def _from_operators(captured: CapturedProgram, part: PlannedRegion) -> fx.GraphModule:
    reference = _build_graph(captured, part, part.nodes, lambda node: node)
    assert reference, "a region depends only on its nodes and inputs"
    return reference


def _build_graph(
    captured: CapturedProgram,
    part: PlannedRegion,
    nodes: Sequence[fx.Node],
    value_of: Callable[[fx.Node], fx.Node | None],
) -> fx.GraphModule | None:
    """A graph of some nodes over the region's inputs, or None if they depend on anything else.

    Args:
        value_of: maps each of these nodes to the node of the decomposed graph that has its value.
    """
    graph = fx.Graph()
    by_name = {node.name: node for node in captured.graph.nodes}
    inputs, outputs = part.region.reads, part.region.writes
    known: dict[Any, fx.Node] = {by_name[name]: graph.placeholder(name) for name in inputs}
    wanted, copied = set(nodes), {}

    def copy(node: fx.Node) -> fx.Node:
        if value_of(node) in known:
            return known[value_of(node)]
        if node not in copied:
            if node not in wanted and (node.op != "call_function" or not is_rematerializable(node)):
                raise KeyError(node.name)
            standalone = op_name(node.target).endswith("_like") and value_of(node_arg(node, 0)) not in known
            copied[node] = _standalone_constant(graph, node) if standalone else graph.node_copy(node, copy)
        return copied[node]

    try:
        for node in nodes:
            copy(node)
        by_value = {value_of(node): new for node, new in copied.items()}
        graph.output(tuple(by_value[by_name[name]] for name in outputs))
    except KeyError:
        return None
    graph.eliminate_dead_code()
    return fx.GraphModule(torch.nn.Module(), graph)


def _standalone_constant(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """A `*_like` constant whose source tensor is not an input of the region."""
    like = node.meta["val"]
    options = {"dtype": like.dtype, "device": like.device}
    memory = graph.call_function(aten.empty_strided.default, (list(like.shape), list(like.stride())), options)
    return graph.call_function(aten.fill.Scalar, (memory, fill_value(node)))
