"""Chains of multiplications and additions on a value, as an affine function of each of its elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import dtype_of, shape_of
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.rewrites.linear_maps import Convolution, LinearMap, match_linear_map
from kernelwright.compiler.rewrites.rewriting import has_tensor, insert_call, insert_view, tensor_of

aten = torch.ops.aten
_COMMUTATIVE = ("mul", "add")
MAX_STEPS = 16
"""Steps between a linear map and what reads the last one."""
Operand = fx.Node | int | float | None


class AffineStep(NamedTuple):
    """One step of a chain.

    Attributes:
        node: its value.
        op: `mul`, `div`, `add`, `sub` (value - operand) or `rsub` (operand - value).
        operand: a number, or a node that broadcasts to the value's shape.
    """

    node: fx.Node
    op: str
    operand: Any

    def operand_shape(self) -> tuple[int, ...]:
        """The shape of the operand with the rank of the value."""
        shape = shape_of(self.operand) if isinstance(self.operand, fx.Node) else ()
        return (1,) * (len(shape_of(self.node)) - len(shape)) + shape


def match_step(node: fx.Node, value: fx.Node) -> AffineStep | None:
    """Match an affine step on a value, which it reads once; it has the value's shape and dtype."""
    name, args = op_name(node.target), node.args
    if name not in ("mul", "div", "add", "sub", "rsub") or node.kwargs or len(args) != 2 or not has_tensor(node):
        return None
    if shape_of(node) != shape_of(value) or dtype_of(node) != dtype_of(value):
        return None
    if list(args).count(value) != 1:
        return None
    operand = args[1] if args[0] is value else args[0]
    if args[0] is not value:
        if name not in (*_COMMUTATIVE, "sub"):
            return None
        name = "rsub" if name == "sub" else name
    if isinstance(operand, fx.Node):
        is_operand = has_tensor(operand) and dtype_of(operand) == dtype_of(value)
    else:
        is_operand = isinstance(operand, (int, float)) and not isinstance(operand, bool)
        is_operand = is_operand and (name != "div" or operand != 0)
    return AffineStep(node, name, operand) if is_operand else None


def list_steps_after(value: fx.Node) -> list[AffineStep]:
    """Return the affine steps after a value, as long as each is the only use of the one before."""
    steps: list[AffineStep] = []
    while len(value.users) == 1 and len(steps) < MAX_STEPS:
        step = match_step(next(iter(value.users)), value)
        if step is None:
            break
        steps.append(step)
        value = step.node
    return steps


def find_linear_map(value: fx.Node) -> tuple[LinearMap, list[AffineStep]] | None:
    """Return the linear map of which a value is an affine function, and the steps between; None if there is none.

    Nothing else reads the linear map, the steps and the value.
    """
    steps: list[AffineStep] = []
    while len(value.users) == 1 and len(steps) < MAX_STEPS:
        if found := match_linear_map(value):
            return found, steps[::-1]
        sources = [one for one in value.all_input_nodes if has_tensor(one)]
        matched = [step for one in sources if (step := match_step(value, one)) and _is_computed(one)]
        if len(matched) != 1:
            return None
        steps.append(matched[0])
        value = next(one for one in sources if match_step(value, one) == matched[0])
    return None


def _is_computed(node: fx.Node) -> bool:
    return match_linear_map(node) is not None or bool(
        node.op == "call_function" and any(match_step(node, one) for one in node.all_input_nodes if has_tensor(one))
    )


def is_per_channel(step: AffineStep, channel_dim: int) -> bool:
    """Whether the operand is one number for each channel, or one number."""
    return all(size == 1 or dim == channel_dim for dim, size in enumerate(step.operand_shape()))


def insert_steps(graph: fx.Graph, value: fx.Node, steps: Sequence[AffineStep], shift_factor: int = 1) -> fx.Node:
    """Insert the same steps on another value.

    Args:
        shift_factor: what is added is multiplied by it, as in the sum of so many elements.
    """
    for step in steps:
        operand = step.operand
        if step.op in ("add", "sub", "rsub") and shift_factor != 1:
            operand = _multiply(graph, operand, shift_factor)
        value = _insert_step(graph, step.op, value, operand)
    return value


def _insert_step(graph: fx.Graph, op: str, value: fx.Node, operand: Any) -> fx.Node:
    if op == "rsub":
        if isinstance(operand, fx.Node):
            return insert_call(graph, aten.sub.Tensor, operand, value)
        return insert_call(graph, aten.rsub.Scalar, value, operand)
    return insert_call(graph, getattr(aten, op).Tensor, value, operand)


def fold_steps(graph: fx.Graph, linear: LinearMap, steps: Sequence[AffineStep]) -> tuple[fx.Node, fx.Node | None]:
    """Insert the weight and bias of the linear map with steps per channel behind it.

    Returns:
        The weight, in the form that the map has, and the bias.
    """
    channels = shape_of(linear.node)[linear.channel_dim]
    scale: Operand = None
    bias: Operand = linear.bias
    for step in steps:
        operand = _as_vector(graph, step.operand)
        match step.op:
            case "mul":
                scale, bias = (_multiply(graph, one, operand) for one in (1 if scale is None else scale, bias))
            case "div":
                scale, bias = (_divide(graph, one, operand) for one in (1 if scale is None else scale, bias))
            case "add":
                bias = _add(graph, bias, operand)
            case "sub":
                bias = _subtract(graph, bias, operand)
            case "rsub":
                scale, bias = _multiply(graph, 1 if scale is None else scale, -1), _subtract(graph, operand, bias)
    if bias is not None and (not isinstance(bias, fx.Node) or shape_of(bias) != (channels,)):
        bias = _full_vector(graph, linear, bias, channels)
    return _scale_weight(graph, linear, scale), bias


def _scale_weight(graph: fx.Graph, linear: LinearMap, scale: Operand) -> fx.Node:
    weight = linear.weight
    if scale is None:
        return weight
    if not isinstance(scale, fx.Node) or shape_of(scale) == (1,):
        return insert_call(graph, aten.mul.Tensor, weight, scale)
    shape = shape_of(weight)
    if isinstance(linear, Convolution) and linear.transposed:
        groups, per_group = linear.groups, shape[1]
        ones = [1] * (len(shape) - 2)
        if groups == 1:
            row = insert_call(graph, aten.view.default, scale, [1, per_group, *ones])
            return insert_call(graph, aten.mul.Tensor, weight, row)
        split = insert_call(graph, aten.view.default, scale, [groups, 1, per_group, *ones])
        grouped = insert_call(graph, aten.expand.default, split, [groups, shape[0] // groups, per_group, *ones])
        per_input = insert_view(graph, grouped, [shape[0], per_group, *ones])
        return insert_call(graph, aten.mul.Tensor, weight, per_input)
    if linear.out_channels_dim == 0:
        scale = insert_call(graph, aten.view.default, scale, [-1, *[1] * (len(shape) - 1)])
    return insert_call(graph, aten.mul.Tensor, weight, scale)


def _as_vector(graph: fx.Graph, operand: Any) -> Any:
    """An operand as a vector of one element for each channel, or of one element; a number stays one."""
    if not isinstance(operand, fx.Node):
        return operand
    count = tensor_of(operand).numel()
    if shape_of(operand) == (count,):
        return operand
    return insert_view(graph, operand, [count])


def _full_vector(graph: fx.Graph, linear: LinearMap, value: Any, channels: int) -> fx.Node:
    if isinstance(value, fx.Node):
        expanded = insert_call(graph, aten.expand.default, value, [channels])
        return insert_call(graph, aten.clone.default, expanded, memory_format=torch.contiguous_format)
    like = tensor_of(linear.node)
    return insert_call(graph, aten.full.default, [channels], value, dtype=like.dtype, device=like.device)


def _multiply(graph: fx.Graph, one: Any, other: Any) -> Any:
    if one is None:
        return None
    if isinstance(one, fx.Node):
        return insert_call(graph, aten.mul.Tensor, one, other)
    if isinstance(other, fx.Node):
        return other if one == 1 else insert_call(graph, aten.mul.Tensor, other, one)
    return one * other


def _divide(graph: fx.Graph, one: Any, other: Any) -> Any:
    if one is None:
        return None
    if isinstance(one, fx.Node):
        return insert_call(graph, aten.div.Tensor, one, other)
    if isinstance(other, fx.Node):
        inverse = insert_call(graph, aten.reciprocal.default, other)
        return _multiply(graph, one, inverse)
    return one / other


def _add(graph: fx.Graph, one: Any, other: Any) -> Any:
    if one is None:
        return other
    if isinstance(one, fx.Node):
        return insert_call(graph, aten.add.Tensor, one, other)
    return insert_call(graph, aten.add.Tensor, other, one) if isinstance(other, fx.Node) else one + other


def _subtract(graph: fx.Graph, one: Any, other: Any) -> Any:
    if other is None:
        return one
    if one is None:
        return _multiply(graph, other, -1)
    if isinstance(one, fx.Node):
        return insert_call(graph, aten.sub.Tensor, one, other)
    return insert_call(graph, aten.rsub.Scalar, other, one) if isinstance(other, fx.Node) else one - other
