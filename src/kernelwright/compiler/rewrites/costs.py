"""Estimates of FLOPs and bytes of the calls of a graph, each with its inputs and outputs in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.utils import _pytree as pytree

from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.rewrites.rewriting import has_tensor, is_alias, tensor_of

_PRODUCTS = {"linear": 0, "matmul": 0, "mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
"""By operator, the position of the factor whose last dimension is summed."""
_CONVOLUTIONS = ("convolution", "conv1d", "conv2d", "conv3d")


class GraphWork(NamedTuple):
    """Work of some calls: FLOPs, and bytes read and written."""

    flops: int
    bytes_moved: int


def estimate_work(nodes: Iterable[fx.Node]) -> GraphWork:
    """Estimate the work of all calls among some nodes; views are free."""
    calls = [node for node in nodes if node.op == "call_function" and not is_alias(node) and node.users]
    return GraphWork(sum(map(node_flops, calls)), sum(map(_node_bytes, calls)))


def node_flops(node: fx.Node) -> int:
    """Estimate the FLOPs of a call: one for each element that another operator than a product reads or writes."""
    name = op_name(node.target)
    if name in _PRODUCTS:
        return 2 * tensor_of(node).numel() * int(_input_tensor(node, _PRODUCTS[name]).shape[-1])
    if name in _CONVOLUTIONS:
        transposed = name == "convolution" and bool(node.args[6])
        x, weight = _input_tensor(node, 0), _input_tensor(node, 1)
        return convolution_flops(x if transposed else tensor_of(node), weight)
    return max((value.numel() for value in _tensors(node)), default=0)


def convolution_flops(positions: torch.Tensor, weight: torch.Tensor) -> int:
    """FLOPs of a convolution.

    Args:
        positions: its output; the input of a transposed one.
        weight: (positions' channels, channels of a group of the other side, *kernel).
    """
    return 2 * positions.numel() * math.prod(map(int, weight.shape[1:]))


def _input_tensor(node: fx.Node, index: int) -> torch.Tensor:
    return tensor_of(node.args[index])  # type: ignore[arg-type]


def _node_bytes(node: fx.Node) -> int:
    return sum(value.nbytes for value in _tensors(node))


def _tensors(node: fx.Node) -> list[Any]:
    inputs = [one.meta["val"] for one in node.all_input_nodes if has_tensor(one)]
    outputs = [one for one in pytree.tree_leaves(node.meta.get("val")) if isinstance(one, torch.Tensor)]
    return [*inputs, *outputs]
