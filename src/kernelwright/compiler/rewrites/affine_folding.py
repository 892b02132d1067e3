"""Factors and shifts of the channels of a linear map, as of a batch norm in eval mode, become part of its weight and
bias, which are computed in each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from kernelwright.compiler.regions.nodes import DEPTHWISE
from kernelwright.compiler.regions.operators import POOLS, SUPPORTED_OPS, op_name
from kernelwright.compiler.rewrites.affine_chains import AffineStep, fold_steps, is_per_channel, list_steps_after
from kernelwright.compiler.rewrites.linear_maps import LinearMap, match_linear_map
from kernelwright.compiler.rewrites.rewriting import (
    FULL_PRECISION_DTYPES,
    find_static_nodes,
    inserting_calls_before,
    is_alias,
    replace_value,
    tensor_of,
)


def fold_affine_chains(graph: fx.Graph, sources: Any) -> int:
    """Fold, in place, chains of factors and shifts that depend on parameters and constants only into the weight and
    bias before them, where that saves a pass over the output; return how many."""
    static, count = find_static_nodes(graph, sources), 0
    for node in list(graph.nodes):
        linear = None if node._erased or node in static or DEPTHWISE in node.meta else match_linear_map(node)
        if linear is None:
            continue
        steps = list_steps_after(node)
        if steps and _saves_a_pass(linear, steps) and _is_static(linear, steps, static):
            count += _fold(graph, linear, steps)
    return count


def _is_static(linear: LinearMap, steps: Sequence[AffineStep], static: set[fx.Node]) -> bool:
    """Whether all that becomes part of the weight and bias depends on neither the arguments nor the position."""
    operands = [linear.weight, linear.bias, *(step.operand for step in steps)]
    return all(one in static for one in operands if isinstance(one, fx.Node)) and all(
        is_per_channel(step, linear.channel_dim) for step in steps
    )


def _saves_a_pass(linear: LinearMap, steps: Sequence[AffineStep]) -> bool:
    """Whether nothing fuses with the steps, which then read and write the whole output, and the weight is smaller."""
    out, weight = tensor_of(linear.node), tensor_of(linear.weight)
    if out.dtype not in FULL_PRECISION_DTYPES or weight.dtype != out.dtype or weight.numel() >= out.numel():
        return False
    return not is_read_by_regions(steps[-1].node)


def is_read_by_regions(node: fx.Node) -> bool:
    """Whether a kernel of a region can read each element of a node once, itself or through views."""
    once = SUPPORTED_OPS - POOLS.keys()
    return any(is_read_by_regions(user) if is_alias(user) else op_name(user.target) in once for user in node.users)


def _fold(graph: fx.Graph, linear: LinearMap, steps: Sequence[AffineStep]) -> bool:
    last = steps[-1].node
    with inserting_calls_before(graph, last):
        weight, bias = fold_steps(graph, linear, steps)
        return replace_value(graph, last, linear.insert(graph, linear.input, weight, bias))
