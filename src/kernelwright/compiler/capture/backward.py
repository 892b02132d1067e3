"""The gradient of a region as a program of its own, over the region's inputs and its outputs' gradients.

What the forward pass computed on the way is computed again: a region waits on memory, and its inputs are the least
that can be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._decomp import core_aten_decompositions
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from kernelwright.compiler.capture.capture import (
    CapturedProgram,
    Source,
    build_decomposition_table,
    normalize_call,
    remove_aliases,
)
from kernelwright.compiler.rewrites.concat_sinking import sink_concats


@dataclass(frozen=True)
class Gradient:
    """The backward pass of a region.

    Attributes:
        captured: its graph; placeholders are the region's inputs, then the gradients of its outputs.
        program: the same as a callable, as torch computes it.
        input_indices: which inputs get a gradient; the graph returns theirs in this order.
        output_indices: which outputs have a gradient.
    """

    captured: CapturedProgram
    program: fx.GraphModule
    input_indices: tuple[int, ...]
    output_indices: tuple[int, ...]

    def example_inputs(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Inputs, and random gradients for the outputs."""
        like = [outputs[at] for at in self.output_indices]
        return [*inputs, *(torch.randn_like(output, memory_format=torch.contiguous_format) for output in like)]


def find_trainable_nodes(captured: CapturedProgram, program: Any, args: Any, kwargs: Any) -> set[fx.Node]:
    """The nodes whose value depends on a tensor that asks for its gradient."""
    leaves = pytree.tree_leaves(normalize_call(program, args, kwargs))
    asking: set[fx.Node] = set()
    for node in captured.graph.nodes:
        if node.op == "placeholder":
            kind, name, _ = captured.sources[node]
            tensor = leaves[int(name)] if kind == "argument" else None
            if kind == "parameter":
                owner, _, last = name.rpartition(".")
                tensor = getattr(program.get_submodule(owner), last)
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                asking.add(node)
        elif asking & set(node.all_input_nodes):
            asking.add(node)
    return asking


def build_gradient(
    reference: fx.GraphModule, names: Sequence[str], inputs: Sequence[torch.Tensor], input_indices: Sequence[int]
) -> Gradient:
    """The gradient of a region's reference.

    Args:
        names: of the inputs; gradients are called `grad_0` and so on.
        input_indices: which inputs need one; they are floating.
    """
    with torch.no_grad():
        outputs = reference(*inputs)
    floating = tuple(at for at, value in enumerate(outputs) if value.dtype.is_floating_point)
    backward = _make_backward(reference, len(inputs), input_indices, floating)
    gradients = [torch.empty(outputs[at].shape, dtype=outputs[at].dtype, device=outputs[at].device) for at in floating]
    given = [*inputs, *gradients]
    program = make_fx(backward, tracing_mode="fake")(*given)
    table: Any = core_aten_decompositions() | build_decomposition_table()
    taken_apart = make_fx(backward, table, tracing_mode="fake")(*given)
    for graph in (program.graph, taken_apart.graph):
        graph.eliminate_dead_code()
        remove_aliases(graph)
        _rename(graph, [*names, *(f"grad_{at}" for at in floating)])
    program.recompile()
    sink_concats(taken_apart.graph)
    nodes = [node for node in taken_apart.graph.nodes if node.op == "placeholder"]
    sources = {node: Source("argument", str(at)) for at, node in enumerate(nodes)}
    results = tuple(("output", "") for _ in input_indices)
    tree = pytree.tree_structure((0,) * len(input_indices))
    captured = CapturedProgram(taken_apart.graph, taken_apart, sources, results, tree)
    return Gradient(captured, program, tuple(input_indices), floating)


def _make_backward(
    reference: Callable[..., Any], count: int, wanted: Sequence[int], floating: Sequence[int]
) -> Callable[..., tuple[torch.Tensor, ...]]:
    def backward(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs, gradients = values[:count], values[count:]
        leaves = [value.detach().requires_grad_(at in wanted) for at, value in enumerate(inputs)]
        with torch.enable_grad():
            outputs = reference(*leaves)
            connected = [(outputs[at], grad) for at, grad in zip(floating, gradients, strict=True)
                         if outputs[at].requires_grad]  # fmt: skip
            found = torch.autograd.grad(
                [output for output, _ in connected],
                [leaves[at] for at in wanted],
                [grad for _, grad in connected],
                allow_unused=True,
                materialize_grads=True,
            )
        return tuple(found)

    return backward


def _rename(graph: fx.Graph, names: Sequence[str]) -> None:
    nodes = [node for node in graph.nodes if node.op == "placeholder"]
    for node, name in zip(nodes, names, strict=True):
        node.name = node.target = name
