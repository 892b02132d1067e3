"""Linear maps of a graph: matrix products with a weight of two dimensions, and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import shape_of
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.rewrites.rewriting import bind_arguments, has_tensor, insert_call

aten = torch.ops.aten
_CONVOLUTIONS = {"conv1d": 1, "conv2d": 2, "conv3d": 3, "convolution": 0}


@dataclass(frozen=True)
class Product:
    """y = x @ weight + bias over the last dimension of x.

    Attributes:
        node: y, (..., N).
        input: x, (..., K) with at least two dimensions.
        weight: (N, K) if `is_linear`, else (K, N).
        bias: (N,).
    """

    node: fx.Node
    input: fx.Node
    weight: fx.Node
    bias: fx.Node | None
    is_linear: bool

    @property
    def channel_dim(self) -> int:
        """The dimension of y that the weight and bias make."""
        return len(shape_of(self.node)) - 1

    @property
    def out_channels_dim(self) -> int:
        """The dimension of the weight that N is."""
        return 0 if self.is_linear else 1

    def insert(self, graph: fx.Graph, x: fx.Node, weight: fx.Node, bias: fx.Node | None) -> fx.Node:
        """Insert the same map of another input with another weight of the same form."""
        if self.is_linear or bias is not None:
            rows = weight if self.is_linear else insert_call(graph, aten.permute.default, weight, [1, 0])
            return insert_call(graph, aten.linear.default, x, rows, bias)
        return insert_call(graph, aten.matmul.default, x, weight)


@dataclass(frozen=True)
class Convolution:
    """A convolution of one to three dimensions over a batch.

    Attributes:
        node: y, (N, O, *spatial).
        input: x, (N, I, *spatial).
        weight: (O, I / groups, *kernel); if transposed (I, O / groups, *kernel).
        bias: (O,).
        stride, padding, dilation, output_padding: one number for each spatial dimension.
    """

    node: fx.Node
    input: fx.Node
    weight: fx.Node
    bias: fx.Node | None
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int

    channel_dim = 1

    @property
    def out_channels_dim(self) -> int:
        """The dimension of the weight that O is; O / groups if transposed."""
        return 1 if self.transposed else 0

    @property
    def kernel(self) -> tuple[int, ...]:
        """The size of the kernel in each spatial dimension."""
        return shape_of(self.weight)[2:]

    def insert(self, graph: fx.Graph, x: fx.Node, weight: fx.Node, bias: fx.Node | None, **changes: Any) -> fx.Node:
        """Insert a convolution that differs in its input, weight, bias and some settings."""
        given = {
            name: changes.get(name, getattr(self, name))
            for name in ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
        }
        settings = [list(value) if isinstance(value, tuple) else value for value in given.values()]
        return insert_call(graph, aten.convolution.default, x, weight, bias, *settings)


LinearMap = Product | Convolution


def match_linear_map(node: fx.Node) -> LinearMap | None:
    """Match a product or a convolution; None if the node is neither."""
    if not has_tensor(node) or node.op != "call_function":
        return None
    name = op_name(node.target)
    if name in _CONVOLUTIONS:
        return _match_convolution(node, _CONVOLUTIONS[name])
    return _match_product(node, name) if name in ("linear", "matmul", "mm", "addmm") else None


def _match_product(node: fx.Node, name: str) -> Product | None:
    given = bind_arguments(node)
    if name == "linear":
        x, weight, bias = given["input"], given["weight"], given["bias"]
    elif name == "addmm":
        if given["alpha"] != 1 or given["beta"] != 1:
            return None
        x, weight, bias = given["mat1"], given["mat2"], given["self"]
    else:
        x, weight = (given[one] for one in (("self", "mat2") if name == "mm" else ("self", "other")))
        bias = None
    if not all(map(has_tensor, (x, weight))) or len(shape_of(x)) < 2 or len(shape_of(weight)) != 2:
        return None
    if bias is not None and shape_of(bias) != shape_of(node)[-1:]:
        return None
    return Product(node, x, weight, bias, name == "linear")


def _match_convolution(node: fx.Node, num_dims: int) -> Convolution | None:
    given = bind_arguments(node)
    x, weight, padding = given["input"], given["weight"], given["padding"]
    rank = len(shape_of(weight)) - 2
    if isinstance(padding, str) or len(shape_of(x)) != rank + 2 or (num_dims and num_dims != rank):
        return None
    return Convolution(
        node,
        x,
        weight,
        given["bias"],
        _per_dim(given["stride"], rank),
        _per_dim(padding, rank),
        _per_dim(given["dilation"], rank),
        bool(given.get("transposed", False)),
        _per_dim(given.get("output_padding", 0), rank),
        given["groups"],
    )


def _per_dim(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    numbers = (value,) if isinstance(value, int) else tuple(int(one) for one in value)
    return numbers * rank if len(numbers) == 1 else numbers
