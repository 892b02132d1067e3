"""A sum divided by its count becomes `mean`, which is exact if all elements are equal."""

from __future__ import annotations

import math

import torch
from torch import fx

from kernelwright.compiler.regions.nodes import reduced_dims, shape_of
from kernelwright.compiler.regions.operators import VIEWS, op_name
from kernelwright.compiler.rewrites.rewriting import FULL_PRECISION_DTYPES, insert_call

aten = torch.ops.aten


def fuse_means(graph: fx.Graph) -> int:
    """Replace, in place, a sum whose only use is the division by its number of elements by `mean`; return how
    many."""
    count = 0
    for node in list(graph.nodes):
        total = _match_sum(node)
        if total is None:
            continue
        source, *rest = total.args
        dims, keep = [*rest, None, False][:2] if rest else (None, False)
        with graph.inserting_before(total), total.meta["val"].fake_mode, torch.no_grad():
            mean = (
                insert_call(graph, aten.mean.dim, source, dims, keep)
                if rest
                else insert_call(graph, aten.mean.default, source)
            )
        total.replace_all_uses_with(mean)
        node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
        graph.erase_node(node)
        graph.erase_node(total)
        count += 1
    return count


def _match_sum(node: fx.Node) -> fx.Node | None:
    """The sum that a node divides by its number of elements, if nothing else uses it."""
    name, (total, divisor) = op_name(node.target), [*node.args, None, None][:2]
    if name not in ("div", "mul") or node.kwargs or isinstance(divisor, bool) or not isinstance(divisor, int | float):
        return None
    while isinstance(total, fx.Node) and op_name(total.target) in VIEWS and len(total.users) == 1:
        total = total.args[0]
    if not isinstance(total, fx.Node) or op_name(total.target) != "sum" or total.kwargs or len(total.users) != 1:
        return None
    source = total.args[0]
    if not isinstance(source, fx.Node) or source.meta["val"].dtype not in FULL_PRECISION_DTYPES:
        return None
    shape = shape_of(source)
    count = math.prod(shape[dim] for dim in reduced_dims(total, len(shape)))
    return total if count and divisor == (count if name == "div" else 1 / count) else None
