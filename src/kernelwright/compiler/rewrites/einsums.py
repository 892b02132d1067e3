"""An einsum of two tensors becomes a matrix product, if each has rows or columns, and both have what is summed.

Several labels of the rows, of the columns or of the sum are one dimension of the product where they are in memory.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import NamedTuple

import torch
from torch import fx

from kernelwright.compiler.capture.origins import move_call_values
from kernelwright.compiler.regions.nodes import shape_of
from kernelwright.compiler.rewrites.einsum_terms import match_einsum
from kernelwright.compiler.rewrites.rewriting import insert_call, inserting_calls_before, tensor_of

aten = torch.ops.aten


class _Product(NamedTuple):
    """The two operands with their labels, and those of the dimensions of their product and of the result.

    Attributes:
        batch: labels of both operands and the result.
        rows, columns: of the first and the second operand.
        summed: of both operands alone.
    """

    operands: tuple[tuple[fx.Node, str], tuple[fx.Node, str]]
    batch: str
    rows: str
    columns: str
    summed: str
    out: str

    @property
    def left(self) -> tuple[str, ...]:
        """The labels of each dimension of the first factor."""
        return (*self.batch, self.rows, self.summed)

    @property
    def right(self) -> tuple[str, ...]:
        """The labels of each dimension of the second factor."""
        return (*self.batch, self.summed, self.columns)


def replace_einsums(graph: fx.Graph) -> int:
    """Replace, in place, einsums by products; returns their number."""
    nodes = list(graph.find_nodes(op="call_function", target=aten.einsum.default))
    return sum(_replace(graph, node, product) for node in nodes if (product := _match(node)))


def _match(node: fx.Node) -> _Product | None:
    """Match an einsum of two tensors with rows, columns and sums; None for other einsums."""
    einsum = match_einsum(node)
    if einsum is None or len(einsum.terms) != 2:
        return None
    one, other = einsum.terms
    operands, out = ((one.node, one.given), (other.node, other.given)), einsum.out
    first, second = one.given, other.given
    if _first_position(out, second, first) < _first_position(out, first, second):
        (first, second), operands = (second, first), (operands[1], operands[0])
    batch = "".join(label for label in out if label in first and label in second)
    rows, columns = (
        _in_memory_order(node, labels, {*labels} & {*out} - {*other})
        for (node, labels), (_, other) in zip(operands, operands[::-1], strict=True)
    )
    larger = max(operands, key=lambda one: tensor_of(one[0]).numel())
    summed = _in_memory_order(*larger, {*first} & {*second} - {*out})
    is_complete = {*first, *second} == {*batch, *rows, *columns, *summed} and rows and columns and summed
    return _Product(operands, batch, rows, columns, summed, out) if is_complete else None


def _first_position(out: str, labels: str, others: str) -> int:
    """The position in the result of the first label that one operand alone has."""
    return min((at for at, label in enumerate(out) if label in labels and label not in others), default=len(out))


def _in_memory_order(node: fx.Node, labels: str, wanted: set[str]) -> str:
    strides = dict(zip(labels, tensor_of(node).stride(), strict=True))
    return "".join(sorted((label for label in labels if label in wanted), key=lambda label: -strides[label]))


def _replace(graph: fx.Graph, node: fx.Node, product: _Product) -> bool:
    sizes = {label: size for one, labels in product.operands for label, size in zip(labels, shape_of(one), strict=True)}
    (first, left), (second, right) = product.operands
    if not all(_can_join(*one) for one in ((first, left, product.left), (second, right, product.right))):
        return False
    with inserting_calls_before(graph, node):
        factors = [
            _joined(graph, _permuted(graph, one, [labels.index(label) for label in "".join(dims)]), dims)
            for one, labels, dims in ((first, left, product.left), (second, right, product.right))
        ]
        new = insert_call(graph, aten.matmul.default, *factors)
        made = "".join((product.batch, product.rows, product.columns))
        if len(made) != len(product.batch) + 2:
            new = insert_call(graph, aten.view.default, new, [sizes[label] for label in made])
        new = _permuted(graph, new, [made.index(label) for label in product.out])
    node.replace_all_uses_with(new)
    move_call_values(node, new)
    graph.erase_node(node)
    return True


def _can_join(node: fx.Node, labels: str, dims: tuple[str, ...]) -> bool:
    """Whether the labels of each dimension are one in memory."""
    value = tensor_of(node)
    stride, size = (dict(zip(labels, map(int, given), strict=True)) for given in (value.stride(), value.shape))
    return all(stride[outer] == stride[inner] * size[inner] for dim in dims for outer, inner in pairwise(dim))


def _joined(graph: fx.Graph, node: fx.Node, dims: tuple[str, ...]) -> fx.Node:
    """The tensor with the labels of each dimension as one."""
    if all(len(dim) == 1 for dim in dims):
        return node
    sizes = iter(shape_of(node))
    return insert_call(graph, aten.view.default, node, [prod(next(sizes) for _ in dim) for dim in dims])


def _permuted(graph: fx.Graph, node: fx.Node, order: list[int]) -> fx.Node:
    if order == sorted(order):
        return node
    return insert_call(graph, aten.permute.default, node, order)
