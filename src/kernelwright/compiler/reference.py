"""A region as torch computes it: the program's own calls where they make up the region, else its operators."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from kernelwright.compiler.capture.calls import map_calls_to_values, source_call_name
from kernelwright.compiler.capture.capture import CapturedProgram, normalize_call
from kernelwright.compiler.forward_codegen import PlannedRegion
from kernelwright.compiler.regions.nodes import fill_value, is_rematerializable, node_arg
from kernelwright.compiler.regions.operators import op_name

aten = torch.ops.aten


def build_reference(captured: CapturedProgram, part: PlannedRegion) -> fx.GraphModule:
    """A module that takes the region's inputs and returns its outputs as a tuple."""
    return _from_calls(captured, part) or _from_operators(captured, part)


def format_reference(reference: fx.GraphModule, name: str) -> str:
    """The module as a plain function, for a file; a single output stands without its tuple."""
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
    """The tensors that each region is given in one run of the program.

    Args:
        values: of the graph's placeholders.
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
    """What the graph is given in a call of the program."""
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
    names, inside = {source_call_name(node) for node in part.nodes}, set(part.nodes)
    value_of = map_calls_to_values(captured)
    calls = [node for node in captured.exported.graph.nodes if node.name in names and node.op == "call_function"]
    whole = all(
        node in inside
        for node in captured.graph.nodes
        if node.op == "call_function" and source_call_name(node) in names
    )
    plain = all(isinstance(c.target, torch._ops.OpOverload) and not c.target._schema.is_mutable for c in calls)
    if not calls or not whole or not plain:
        return None
    return _build_graph(captured, part, calls, lambda node: value_of.get(node))


def _from_operators(captured: CapturedProgram, part: PlannedRegion) -> fx.GraphModule:
    built = _build_graph(captured, part, part.nodes, lambda node: node)
    assert built, "a region is made of its own nodes"
    return built


def _build_graph(
    captured: CapturedProgram,
    part: PlannedRegion,
    nodes: Sequence[fx.Node],
    value_of: Callable[[fx.Node], fx.Node | None],
) -> fx.GraphModule | None:
    """A graph of some nodes over the region's inputs, or None where they need anything else.

    Args:
        value_of: which node of the decomposed graph has the value of one of these.
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
            alone = op_name(node.target).endswith("_like") and value_of(node_arg(node, 0)) not in known
            copied[node] = _standalone_constant(graph, node) if alone else graph.node_copy(node, copy)
        return copied[node]

    try:
        for node in nodes:
            copy(node)
        made = {value_of(node): new for node, new in copied.items()}
        graph.output(tuple(made[by_name[name]] for name in outputs))
    except KeyError:
        return None
    graph.eliminate_dead_code()
    return fx.GraphModule(torch.nn.Module(), graph)


def _standalone_constant(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """A constant that is like a tensor of which the region reads nothing."""
    like = node.meta["val"]
    about = {"dtype": like.dtype, "device": like.device}
    memory = graph.call_function(aten.empty_strided.default, (list(like.shape), list(like.stride())), about)
    return graph.call_function(aten.fill.Scalar, (memory, fill_value(node)))
