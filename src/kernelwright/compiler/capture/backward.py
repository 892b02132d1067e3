"""The gradient of a region as a separate program of the region's inputs and the gradients of its outputs.

Intermediate values of the forward pass are recomputed: a region is memory-bound, and its inputs are the least that can
be saved.
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
        captured: its graph; the placeholders are the region's inputs, then the gradients of its outputs.
        program: the same computation as a torch callable.
        input_indices: the inputs that get a gradient; the graph returns their gradients in this order.
        output_indices: the outputs that have a gradient.
    """

    captured: CapturedProgram
    program: fx.GraphModule
    input_indices: tuple[int, ...]
    output_indices: tuple[int, ...]

    def example_inputs(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the inputs, followed by random gradients of the outputs."""
        like = [outputs[index] for index in self.output_indices]
        return [*inputs, *(torch.randn_like(output, memory_format=torch.contiguous_format) for output in like)]


def find_trainable_nodes(captured: CapturedProgram, program: Any, args: Any, kwargs: Any) -> set[fx.Node]:
    """Return the nodes whose value depends on a tensor that requires a gradient."""
    leaves = pytree.tree_leaves(normalize_call(program, args, kwargs))
    trainable: set[fx.Node] = set()
    for node in captured.graph.nodes:
        if node.op == "placeholder":
            kind, name, _ = captured.sources[node]
            tensor = leaves[int(name)] if kind == "argument" else None
            if kind == "parameter":
                owner, _, last = name.rpartition(".")
                tensor = getattr(program.get_submodule(owner), last)
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                trainable.add(node)
        elif trainable & set(node.all_input_nodes):
            trainable.add(node)
    return trainable


def build_gradient(
    reference: fx.GraphModule, names: Sequence[str], inputs: Sequence[torch.Tensor], input_indices: Sequence[int]
) -> Gradient:
    """Build the backward pass of a region's reference.

    Args:
        names: names of the inputs; output gradients are named `grad_0` and so on.
        input_indices: the inputs that need a gradient; they have floating-point dtypes.
    """
    with torch.no_grad():
        outputs = reference(*inputs)
    floating = tuple(index for index, value in enumerate(outputs) if value.dtype.is_floating_point)
    backward = _make_backward(reference, len(inputs), input_indices, floating)
    like = [outputs[index] for index in floating]
    args = [*inputs, *(torch.empty(one.shape, dtype=one.dtype, device=one.device) for one in like)]
    program = make_fx(backward, tracing_mode="fake")(*args)
    table: Any = core_aten_decompositions() | build_decomposition_table()
    decomposed = make_fx(backward, table, tracing_mode="fake")(*args)
    for graph in (program.graph, decomposed.graph):
        graph.eliminate_dead_code()
        remove_aliases(graph)
        _rename(graph, [*names, *(f"grad_{index}" for index in floating)])
    program.recompile()
    sink_concats(decomposed.graph)
    nodes = [node for node in decomposed.graph.nodes if node.op == "placeholder"]
    sources = {node: Source("argument", str(index)) for index, node in enumerate(nodes)}
    results = tuple(("output", "") for _ in input_indices)
    tree = pytree.tree_structure((0,) * len(input_indices))
    captured = CapturedProgram(decomposed.graph, decomposed, sources, results, tree)
    return Gradient(captured, program, tuple(input_indices), floating)


def _make_backward(
    reference: Callable[..., Any], count: int, wanted: Sequence[int], floating: Sequence[int]
) -> Callable[..., tuple[torch.Tensor, ...]]:
    def backward(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs, gradients = values[:count], values[count:]
        leaves = [value.detach().requires_grad_(index in wanted) for index, value in enumerate(inputs)]
        with torch.enable_grad():
            outputs = reference(*leaves)
            connected = [(outputs[index], grad) for index, grad in zip(floating, gradients, strict=True)
                         if outputs[index].requires_grad]  # fmt: skip
            input_gradients = torch.autograd.grad(
                [output for output, _ in connected],
                [leaves[index] for index in wanted],
                [grad for _, grad in connected],
                allow_unused=True,
                materialize_grads=True,
            )
        return tuple(input_gradients)

    return backward


def _rename(graph: fx.Graph, names: Sequence[str]) -> None:
    nodes = [node for node in graph.nodes if node.op == "placeholder"]
    for node, name in zip(nodes, names, strict=True):
        node.name = node.target = name
