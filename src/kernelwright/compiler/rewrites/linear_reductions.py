"""Sums and means of the output of a linear map: the input or the weight is summed instead.

The sum of all outputs of a convolution along one dimension needs, for each position of the kernel, the sum of the
inputs that this position meets: all but some at the borders. These sums, one for each position, are the input of a
convolution whose output has size 1 in that dimension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import FULL_PRECISION, reduced_dims, shape_of
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.rewrites.affine_chains import (
    AffineStep,
    find_linear_map,
    fold_steps,
    insert_steps,
    is_per_channel,
)
from kernelwright.compiler.rewrites.costs import node_flops
from kernelwright.compiler.rewrites.linear_maps import Convolution, Product
from kernelwright.compiler.rewrites.rewriting import (
    FULL_PRECISION_DTYPES,
    bind_arguments,
    has_tensor,
    insert_call,
    inserting_calls_before,
    replace_value,
    tensor_of,
)
from kernelwright.compiler.rewrites.window_sums import Window, find_windows, insert_window_sums

aten = torch.ops.aten
MIN_FLOPS_RATIO = 2
"""FLOPs of the linear map over those that are left: with fewer saved, the other order of the sum gains nothing."""


@dataclass(frozen=True)
class Reduction:
    """A sum or mean over some dimensions of an affine function of a linear map's output.

    Attributes:
        dims: counted from 0.
        count: how many elements are added.
    """

    node: fx.Node
    is_mean: bool
    dims: tuple[int, ...]
    keepdim: bool
    count: int
    steps: Sequence[AffineStep]

    @property
    def shift_factor(self) -> int:
        """What the sum multiplies a constant by."""
        return 1 if self.is_mean else self.count


def reduce_linear_maps(graph: fx.Graph, sources: Any) -> int:
    """Reduce, in place, the inputs and weights of linear maps instead of their outputs; return how many."""
    return sum(_rewrite(graph, node) for node in list(graph.nodes) if not node._erased)


def _rewrite(graph: fx.Graph, node: fx.Node) -> bool:
    matched = _match(node)
    if matched is None:
        return False
    reduction, linear = matched
    if isinstance(linear, Product):
        if not _product_saves(reduction, linear):
            return False
        with inserting_calls_before(graph, node):
            return _finish(graph, reduction, *_insert_product(graph, reduction, linear))
    windows = _plan_windows(reduction, linear)
    if not _convolution_saves(reduction, linear, windows):
        return False
    with inserting_calls_before(graph, node):
        return _finish(graph, reduction, *_insert_convolution(graph, reduction, linear, windows))


def _match(node: fx.Node) -> tuple[Reduction, Product | Convolution] | None:
    name = op_name(node.target)
    if name not in ("sum", "mean") or not has_tensor(node):
        return None
    given = bind_arguments(node)
    source = given["self"]
    value = tensor_of(source)
    if given["dtype"] is not None or value.dtype not in FULL_PRECISION_DTYPES or not value.numel():
        return None
    found = find_linear_map(source)
    if found is None:
        return None
    linear, steps = found
    dims = reduced_dims(node, value.dim())
    count = math.prod(shape_of(source)[dim] for dim in dims)
    reduction = Reduction(node, name == "mean", dims, bool(given.get("keepdim", False)), count, steps)
    uniform = all(all(step.operand_shape()[dim] == 1 for dim in dims) for step in steps)
    per_channel = all(is_per_channel(step, linear.channel_dim) for step in steps)
    return (reduction, linear) if dims and (uniform or per_channel) else None


def _finish(graph: fx.Graph, reduction: Reduction, value: fx.Node, steps: Sequence[AffineStep]) -> bool:
    """Insert the steps behind a result that has all dimensions, and let it replace the reduction."""
    value = insert_steps(graph, value, steps, reduction.shift_factor)
    if not reduction.keepdim:
        value = insert_call(graph, aten.squeeze.dims, value, list(reduction.dims))
    return replace_value(graph, reduction.node, value)


def _split_steps(
    graph: fx.Graph, reduction: Reduction, linear: Product | Convolution
) -> tuple[fx.Node, fx.Node | None, Sequence[AffineStep]]:
    """The weight and bias, with the steps in them that differ between channels that are added, and the other steps."""
    if all(step.operand_shape()[dim] == 1 for step in reduction.steps for dim in reduction.dims):
        return linear.weight, linear.bias, reduction.steps
    return *fold_steps(graph, linear, reduction.steps), ()


def _reduce(graph: fx.Graph, reduction: Reduction, value: fx.Node, dims: Sequence[int], keepdim: bool) -> fx.Node:
    target = aten.mean.dim if reduction.is_mean else aten.sum.dim_IntList
    return insert_call(graph, target, value, list(dims), keepdim)


# ---- products


def _product_saves(reduction: Reduction, linear: Product) -> bool:
    rows, features = tensor_of(linear.input).numel(), shape_of(linear.node)[-1]
    channel = linear.channel_dim
    added_rows = reduction.count // (features if channel in reduction.dims else 1)
    products = 2 * rows // added_rows * (1 if channel in reduction.dims else features)
    sums = (rows if added_rows > 1 else 0) + (tensor_of(linear.weight).numel() if channel in reduction.dims else 0)
    return node_flops(linear.node) >= MIN_FLOPS_RATIO * (products + sums)


def _insert_product(graph: fx.Graph, reduction: Reduction, linear: Product) -> tuple[fx.Node, Sequence[AffineStep]]:
    """The product of the sum of the rows with the weight, or with the sum of the weight over the features."""
    weight, bias, steps = _split_steps(graph, reduction, linear)
    rows = [dim for dim in reduction.dims if dim != linear.channel_dim]
    x = _reduce(graph, reduction, linear.input, rows, True) if rows else linear.input
    added_rows = math.prod(shape_of(linear.node)[dim] for dim in rows)
    if bias is not None and not reduction.is_mean and added_rows > 1:
        bias = insert_call(graph, aten.mul.Tensor, bias, added_rows)
    if linear.channel_dim not in reduction.dims:
        return linear.insert(graph, x, weight, bias), steps
    row = _reduce(graph, reduction, weight, [linear.out_channels_dim], False)
    value = insert_call(graph, aten.unsqueeze.default, insert_call(graph, aten.matmul.default, x, row), -1)
    if bias is not None:
        value = insert_call(graph, aten.add.Tensor, value, _reduce(graph, reduction, bias, [0], False))
    return value, steps


# ---- convolutions


def _plan_windows(reduction: Reduction, linear: Convolution) -> dict[int, list[Window]]:
    """By the dimension that can be reduced before the convolution, what each position of the kernel meets of it."""
    windows = {}
    for dim in reduction.dims:
        if dim >= 2 and (found := find_windows(linear, dim)):
            windows[dim] = found
    return windows


def _left_dims(reduction: Reduction, linear: Convolution, windows: dict[int, list[Window]]) -> list[int]:
    """The dimensions that are reduced after the convolution: with a stride, or channels of several groups."""
    return [dim for dim in reduction.dims if dim not in windows and dim and (dim > 1 or linear.groups > 1)]


def _convolution_saves(reduction: Reduction, linear: Convolution, windows: dict[int, list[Window]]) -> bool:
    left = _left_dims(reduction, linear, windows)
    done = [dim for dim in reduction.dims if dim not in left]
    shape, out = shape_of(linear.input), shape_of(linear.node)
    if not done:
        return False
    ratio = float(math.prod(out[dim] for dim in done if dim < 2))
    for dim in windows:  # of a transposed convolution the FLOPs are those of its input
        positions = len(windows[dim])
        ratio *= shape[dim] / positions if linear.transposed else out[dim]
    flops = node_flops(linear.node)
    sums = tensor_of(linear.input).numel() * (2 if windows or 0 in done else 0)
    return flops >= MIN_FLOPS_RATIO * (flops / ratio + sums)


def _insert_convolution(
    graph: fx.Graph, reduction: Reduction, linear: Convolution, windows: dict[int, list[Window]]
) -> tuple[fx.Node, Sequence[AffineStep]]:
    weight, bias, steps = _split_steps(graph, reduction, linear)
    left = _left_dims(reduction, linear, windows)
    alike = [dim for dim, found in windows.items() if len(set(found)) == 1]
    if alike:  # all positions meet the same, so that their weights are added
        weight = insert_call(graph, aten.sum.dim_IntList, weight, alike, True)
    x = _reduce(graph, reduction, linear.input, [0], True) if 0 in reduction.dims else linear.input
    whole = [dim for dim in alike if windows[dim][0] == (0, shape_of(linear.input)[dim])]
    if whole:
        x = insert_call(graph, aten.sum.dim_IntList, x, whole, True)
    for dim, found in windows.items():
        if dim not in whole:
            x = insert_window_sums(graph, x, dim, found[:1] if dim in alike else found)
    out = shape_of(linear.node)
    added = math.prod(out[dim] for dim in windows)
    if reduction.is_mean and added > 1:
        x = insert_call(graph, aten.div.Tensor, x, added)
    added *= out[0] if 0 in reduction.dims else 1
    if bias is not None and not reduction.is_mean and added > 1:
        bias = insert_call(graph, aten.mul.Tensor, bias, added)
    if 1 in reduction.dims and 1 not in left:
        weight = _reduce(graph, reduction, weight, [linear.out_channels_dim], True)
        bias = None if bias is None else _reduce(graph, reduction, bias, [0], True)
    value = linear.insert(graph, x, weight, bias, **_settings(linear, windows, shape_of(weight)[2:]))
    value.meta[FULL_PRECISION] = True
    return (_reduce(graph, reduction, value, left, True) if left else value), steps


def _settings(
    linear: Convolution, windows: dict[int, list[Window]], kernel: Sequence[int]
) -> dict[str, tuple[int, ...]]:
    """Settings of a convolution whose output has size 1 in the dimensions that are summed."""

    def change(values: tuple[int, ...], other: Sequence[int] | int) -> tuple[int, ...]:
        return tuple(
            (other if isinstance(other, int) else other[index]) if index + 2 in windows else value
            for index, value in enumerate(values)
        )

    padding = [size - 1 for size in kernel] if linear.transposed else 0
    return {
        "stride": change(linear.stride, 1),
        "padding": change(linear.padding, padding),
        "dilation": change(linear.dilation, 1),
        "output_padding": change(linear.output_padding, 0),
    }
