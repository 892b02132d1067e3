"""Plans of the graphs that Dynamo captures of a program which is no single graph."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from kernelwright.compiler.capture.calls import list_outputs
from kernelwright.compiler.capture.capture import CapturedProgram, capture_graph
from kernelwright.compiler.capture.dynamo_graphs import DynamoGraph, describe_results
from kernelwright.compiler.forward_codegen import require_writable_constants
from kernelwright.compiler.planning import RegionPlan, find_repetitions, plan_captured
from kernelwright.compiler.reference import bind_placeholders
from kernelwright.compiler.rewrites.registry import DEGENERATE, DEGENERATE_CONSTANTS, OFF_BY_DEFAULT
from kernelwright.core.errors import ProblemError

GRADIENT_CALLS = (torch.autograd.grad, "requires_grad_", "backward")
WHOLE_PROGRAM = frozenset({DEGENERATE, DEGENERATE_CONSTANTS})
"""Rewrites that regard the arguments and results of the whole program."""


@dataclass(frozen=True)
class GraphPlan:
    """A graph between two breaks with its regions.

    Attributes:
        signature: see `capture.graph_signature`.
        plan: its `same_as` is that of all graphs.
        values: of the placeholders in the first call; empty after its regions are tuned.
    """

    signature: str
    plan: RegionPlan
    values: tuple[Any, ...] = ()


def plan_graph(graph: DynamoGraph, number: int, program: Any, disabled: Set[str] = OFF_BY_DEFAULT) -> GraphPlan | None:
    """Capture a Dynamo graph and partition it into regions, which are named after its number.

    Args:
        program: whose parameters and buffers change rarely.
    Returns:
        None where it has neither regions nor rewrites.
    Raises:
        ProblemError: it cannot be captured, computes gradients, or would share memory differently.
    """
    if any(map(_computes_gradients, graph.module.graph.nodes)):
        raise ProblemError("it computes gradients")
    with torch.no_grad():
        captured = capture_graph(graph.module, graph.inputs, _static_inputs(graph, program), disabled | WHOLE_PROGRAM)
        require_writable_constants(captured)
        plan = plan_captured(captured, f"graph_{number}_region")
        if not plan.regions and not captured.is_rewritten:
            return None
        values = bind_placeholders(captured, graph.module, graph.inputs, {})
        if _layouts_with_kernels(plan, values) != graph.results:
            raise ProblemError("its results would not share memory as before")
    return GraphPlan(graph.signature, plan, tuple(values))


def share_repetitions(graphs: Sequence[GraphPlan]) -> tuple[GraphPlan, ...]:
    """The plans, in which a region that repeats one of an earlier graph is a repetition."""
    same_as = find_repetitions([part for graph in graphs for part in graph.plan.regions])
    return tuple(replace(graph, plan=replace(graph.plan, same_as=same_as)) for graph in graphs)


def _computes_gradients(node: fx.Node) -> bool:
    enables = node.target is torch._C._set_grad_enabled and node.args == (True,)
    return enables or node.target in GRADIENT_CALLS


def _static_inputs(graph: DynamoGraph, program: Any) -> set[int]:
    """The indices of the inputs that are parameters or buffers of the program."""
    if not isinstance(program, torch.nn.Module):
        return set()
    pointers = {one.untyped_storage().data_ptr() for one in (*program.parameters(), *program.buffers())}
    return {index for index, one in enumerate(graph.inputs) if one.untyped_storage().data_ptr() in pointers}


def _layouts_with_kernels(plan: RegionPlan, values: Sequence[Any]) -> Any:
    """The layouts of the results where every region stores what it writes in memory of its own."""
    stores = {store.buffer: store for part in plan.regions for store in part.region.stores}

    class Storing(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            if n.name not in stores:
                return result
            store = stores[n.name]
            memory = torch.empty_strided(store.shape, store.shape_strides, dtype=result.dtype, device=result.device)
            return memory.copy_(result)

    captured = plan.captured
    inputs = dict(zip(captured.sources, values, strict=True))
    outputs = Storing(fx.GraphModule(torch.nn.Module(), captured.graph)).run(*values, enable_io_processing=False)
    results = [
        inputs[one.mutated_input] if one.mutated_input else value
        for one, value in zip(list_outputs(captured), outputs, strict=True)
        if one.is_returned
    ]
    return describe_results(_arguments(captured, inputs), results)


def _arguments(captured: CapturedProgram, inputs: dict[fx.Node, Any]) -> list[Any]:
    """The values of the placeholders that are arguments, in their order."""
    named = {int(source.name): inputs[node] for node, source in captured.sources.items() if source.kind == "argument"}
    return [named[index] for index in sorted(named)]
