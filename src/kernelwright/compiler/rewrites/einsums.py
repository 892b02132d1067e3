"""An einsum of two tensors with one dimension each for rows, columns and sums becomes a matrix product."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from kernelwright.compiler.capture.origins import move_call_values
from kernelwright.compiler.rewrites.rewriting import insert_call, inserting_calls_before

aten = torch.ops.aten


def replace_einsums(graph: fx.Graph) -> int:
    """Replace, in place, einsums by products; returns their number."""
    count = 0
    for node in list(graph.find_nodes(op="call_function", target=aten.einsum.default)):
        equation, operands = node.args[:2]
        if orders := _orders(str(equation), [len(one.meta["val"].shape) for one in operands]):  # type: ignore[union-attr]
            _replace(graph, node, orders)
            count += 1
    return count


def _orders(equation: str, ranks: list[int]) -> tuple[bool, list[int], list[int], list[int]] | None:
    """Which operand has the rows, the permutations of it to [batch, row, sum] and of the other to [batch, sum, column],
    and that of the product to the result; None for other einsums."""
    left, _, out = equation.replace(" ", "").partition("->")
    names = left.split(",")
    if "." in equation or len(names) != 2 or not out or any(len(set(one)) != len(one) for one in (*names, out)):
        return None
    first, second = names
    batch = [name for name in out if name in first and name in second]
    rows = [name for name in out if name in first and name not in second]
    columns = [name for name in out if name in second and name not in first]
    summed = [name for name in first if name in second and name not in out]
    complete = {*first, *second} == {*batch, *rows, *columns, *summed} and ranks == [len(first), len(second)]
    if not complete or (len(rows), len(columns), len(summed)) != (1, 1, 1):
        return None
    swapped = out.index(columns[0]) < out.index(rows[0])
    if swapped:
        first, second, rows, columns = second, first, columns, rows
    product = [*batch, *rows, *columns]
    return (
        swapped,
        [first.index(name) for name in (*batch, *rows, *summed)],
        [second.index(name) for name in (*batch, *summed, *columns)],
        [product.index(name) for name in out],
    )


def _replace(graph: fx.Graph, node: fx.Node, orders: tuple[bool, list[int], list[int], list[int]]) -> None:
    swapped, *operand_orders, result_order = orders
    operands: Any = node.args[1]
    with inserting_calls_before(graph, node):
        ordered = operands[::-1] if swapped else operands
        first, second = (_permuted(graph, one, order) for one, order in zip(ordered, operand_orders, strict=True))
        product = insert_call(graph, aten.matmul.default, first, second)
        new = _permuted(graph, product, result_order)
    node.replace_all_uses_with(new)
    move_call_values(node, new)
    graph.erase_node(node)


def _permuted(graph: fx.Graph, node: fx.Node, order: list[int]) -> fx.Node:
    if order == sorted(order):
        return node
    return insert_call(graph, aten.permute.default, node, order)
