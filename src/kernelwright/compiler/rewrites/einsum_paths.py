"""Einsums of several tensors become products of two, of the parts that are used, in the order that costs the least.

Proof: an einsum is the sum over its labels of a product of elements, in which factors and sums can be taken in any
order. One element along a label of the result needs one element along it of each operand. Zeros along a label that is
summed add nothing, as long as what they multiply is finite. An operand that is an einsum itself is a sum of products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from string import ascii_lowercase, ascii_uppercase

import torch
from torch import fx

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.nodes import dim_arg, fill_value, node_arg, shape_of
from kernelwright.compiler.regions.operators import CONSTANTS, PAD, op_name
from kernelwright.compiler.rewrites.einsum_terms import (
    Cut,
    Einsum,
    Pair,
    Term,
    cut_terms,
    find_order,
    is_short,
    match_einsum,
    summed_labels,
)
from kernelwright.compiler.rewrites.rewriting import (
    FULL_PRECISION_DTYPES,
    bind_arguments,
    insert_call,
    inserting_calls_before,
    is_alias,
    replace_value,
    same_layout,
    tensor_of,
)

aten = torch.ops.aten
MAX_TERMS = 6
"""Tensors of an einsum, of which all orders are tried."""
MIN_GAIN = 1.1
"""Cost of the einsum as it is over that of the order found."""


def order_einsums(graph: fx.Graph) -> int:
    """Replace, in place, einsums by cheaper sequences of products; return how many."""
    nodes = list(graph.find_nodes(op="call_function", target=aten.einsum.default))
    return sum(_rewrite(graph, node) for node in reversed(nodes) if not node._erased)


def _rewrite(graph: fx.Graph, node: fx.Node) -> bool:
    einsum = match_einsum(node)
    if einsum is None or len(einsum.terms) > MAX_TERMS or tensor_of(node).dtype not in FULL_PRECISION_DTYPES:
        return False
    result, einsum = _cut_result(node, einsum)
    einsum = _expand(einsum)
    steps, cost = find_order([term.labels for term in einsum.terms], einsum)
    is_same = len(einsum.terms) == 2 and cost * MIN_GAIN > einsum.cost
    if cost > einsum.cost or (is_same and not is_short(*steps[-1], einsum)):
        return False
    with inserting_calls_before(graph, result):
        new = _insert(graph, einsum, steps)
        return replace_value(graph, result, _in_layout_of(graph, result, new))


# ---- factors


def _cut_result(node: fx.Node, einsum: Einsum) -> tuple[fx.Node, Einsum]:
    """The one element along a dimension of the result that is used, and the einsum that computes it."""
    user = next(iter(node.users)) if len(node.users) == 1 else None
    if user is None or op_name(user.target) != "select":
        return node, einsum
    given = bind_arguments(user)
    label = einsum.out[given["dim"]]
    cut = Cut(given["index"] % einsum.sizes[label], 0)
    return user, replace(cut_terms(einsum, label, cut), out=einsum.out.replace(label, ""))


def _expand(einsum: Einsum) -> Einsum:
    """Leave out operands' zeros along labels that are summed, and insert operands that are einsums, if that pays."""
    for term in einsum.terms:
        for better in (_without_zeros(einsum, term), _joined(einsum, term)):
            if better is not None:
                return _expand(better)
    return einsum


def _without_zeros(einsum: Einsum, term: Term) -> Einsum | None:
    found = None if term.cuts or len(term.node.users) > 1 else _match_padding(term.node)
    if found is None:
        return None
    source, dim, start = found
    label, size = term.labels[dim], shape_of(source)[dim]
    if label in einsum.out or not size:
        return None
    others = tuple(one for one in einsum.terms if one is not term)
    cut = cut_terms(replace(einsum, terms=others), label, Cut(start, size))
    position = einsum.terms.index(term)
    terms = (*cut.terms[:position], Term(source, term.labels), *cut.terms[position:])
    copied = tensor_of(term.node).nbytes + tensor_of(source).nbytes
    return replace(cut, terms=terms, cost=cut.cost + copied)


def _match_padding(node: fx.Node) -> tuple[fx.Node, int, int] | None:
    """The tensor with zeros around it along one dimension, that dimension, and the position of its first element."""
    name = op_name(node.target)
    if name == PAD:
        given = bind_arguments(node)
        pads: list[int] = list(given["pad"])
        padded = [at // 2 for at in range(0, len(pads), 2) if any(pads[at : at + 2])]
        if given["value"] or len(padded) != 1 or min(pads) < 0:
            return None
        return given["self"], len(shape_of(node)) - 1 - padded[0], pads[2 * padded[0]]
    if name != "cat":
        return None
    parts: list[fx.Node] = list(node.args[0])  # type: ignore[arg-type]
    kept = [index for index, part in enumerate(parts) if not _is_zero(part)]
    if len(kept) != 1 or len(parts) < 2 or any(len(shape_of(part)) != len(shape_of(node)) for part in parts):
        return None
    dim = dim_arg(node, 1, len(shape_of(node)))
    return parts[kept[0]], dim, sum(shape_of(part)[dim] for part in parts[: kept[0]])


def _is_zero(node: fx.Node) -> bool:
    try:
        return op_name(node.target) in CONSTANTS and "empty" not in op_name(node.target) and fill_value(node) == 0
    except Unsupported:
        return False


def _joined(einsum: Einsum, term: Term) -> Einsum | None:
    """The einsum with the operands of an operand that is one, if that is cheaper."""
    node, cut = _skip_slice(term.node)
    if node.target != aten.einsum.default or term.cuts or not (_is_read_once(node) and _is_read_once(term.node)):
        return None
    inner = match_einsum(node)
    if inner is None or len(einsum.terms) + len(inner.terms) - 1 > MAX_TERMS:
        return None
    if cut is not None:
        inner = cut_terms(inner, inner.out[cut[0]], cut[1])
    names = dict(zip(inner.out, term.labels, strict=True))
    free = (label for label in ascii_lowercase + ascii_uppercase if label not in einsum.sizes)
    names |= {label: next(free) for label in inner.sizes if label not in names}
    renamed = [
        Term(one.node, "".join(names[label] for label in one.given), tuple((names[at], cut) for at, cut in one.cuts))
        for one in inner.terms
    ]
    position = einsum.terms.index(term)
    joined = Einsum(
        (*einsum.terms[:position], *renamed, *einsum.terms[position + 1 :]),
        einsum.out,
        {**einsum.sizes, **{names[label]: size for label, size in inner.sizes.items()}},
        einsum.cost + inner.cost,
    )
    separate = sum(find_order([one.labels for one in part.terms], part)[1] for part in (einsum, inner))
    return joined if find_order([one.labels for one in joined.terms], joined)[1] < separate else None


def _skip_slice(node: fx.Node) -> tuple[fx.Node, tuple[int, Cut] | None]:
    """The source of a slice of adjacent elements, its dimension, and the cut; of another node itself."""
    if op_name(node.target) != "slice":
        return node, None
    given = bind_arguments(node)
    source, dim = node_arg(node, 0), given["dim"] % len(shape_of(node))
    start, _, step = slice(given["start"], given["end"], None).indices(shape_of(source)[dim])
    return (source, (dim, Cut(start, shape_of(node)[dim]))) if given["step"] == step == 1 else (node, None)


def _is_read_once(node: fx.Node) -> bool:
    """Whether one node reads a value, next to those that read its shape alone, such as zeros like it."""
    return sum(map(_reads_values, node.users)) == 1


def _reads_values(node: fx.Node) -> bool:
    if op_name(node.target) in CONSTANTS:
        return False
    return not (is_alias(node) and node.users) or any(map(_reads_values, node.users))


# ---- insertion


def _insert(graph: fx.Graph, einsum: Einsum, steps: Sequence[Pair]) -> fx.Node:
    """Insert the einsum as products of two factors; the result has its labels in order."""
    values = [(term.labels, _insert_cuts(graph, term)) for term in einsum.terms]
    for one, other, out in steps:
        factors = []
        for labels in (one, other):
            at = next(index for index, (have, _) in enumerate(values) if have == labels)
            factors.append(values.pop(at)[1])
        values.append((out, _insert_pair(graph, (one, other, out), factors, einsum)))
    return values[0][1]


def _insert_cuts(graph: fx.Graph, term: Term) -> fx.Node:
    node, labels = term.node, [*term.given]
    for label, cut in term.cuts:
        dim = labels.index(label)
        if cut.size:
            node = insert_call(graph, aten.slice.Tensor, node, dim, cut.start, cut.start + cut.size)
        else:
            node = insert_call(graph, aten.select.int, node, dim, cut.start)
            labels.pop(dim)
    return node


def _insert_pair(graph: fx.Graph, pair: Pair, factors: Sequence[fx.Node], einsum: Einsum) -> fx.Node:
    one, other, out = pair
    summed = summed_labels(pair)
    if summed and not is_short(one, other, out, einsum):
        return insert_call(graph, aten.einsum.default, f"{one},{other}->{out}", list(factors))
    aligned = [_align(graph, node, labels, out + summed) for node, labels in zip(factors, (one, other), strict=True)]
    product = insert_call(graph, aten.mul.Tensor, *aligned)
    return (
        insert_call(graph, aten.sum.dim_IntList, product, [*range(len(out), len(out + summed))]) if summed else product
    )


def _align(graph: fx.Graph, node: fx.Node, labels: str, order: str) -> fx.Node:
    """The tensor with dimensions in an order, those that it lacks of size 1."""
    dims = sorted(range(len(labels)), key=lambda dim: order.index(labels[dim]))
    if dims != list(range(len(labels))):
        node = insert_call(graph, aten.permute.default, node, dims)
    for position, label in enumerate(order):
        if label not in labels:
            node = insert_call(graph, aten.unsqueeze.default, node, position)
    return node


def _in_layout_of(graph: fx.Graph, old: fx.Node, new: fx.Node) -> fx.Node:
    """A value with the strides of the node that it replaces: those of one element along a dimension of a tensor, too,
    for which the element is repeated."""
    source = old.args[0]
    if op_name(old.target) != "select" or not isinstance(source, fx.Node):
        return _dense_as(graph, old, new)
    given = bind_arguments(old)
    if torch.ops.aten.is_non_overlapping_and_dense(tensor_of(old)):
        return _dense_as(graph, old, new)
    new = insert_call(graph, aten.unsqueeze.default, new, given["dim"] % len(shape_of(source)))
    new = insert_call(graph, aten.expand.default, new, list(shape_of(source)))
    return insert_call(graph, aten.select.int, _dense_as(graph, source, new), given["dim"], given["index"])


def _dense_as(graph: fx.Graph, old: fx.Node, new: fx.Node) -> fx.Node:
    """A value in the memory order of a tensor, which is dense."""
    if same_layout(tensor_of(old), tensor_of(new)):
        return new
    strides = tensor_of(old).stride()
    order = sorted(range(len(strides)), key=lambda dim: -strides[dim])
    new = insert_call(graph, aten.permute.default, new, order)
    new = insert_call(graph, aten.clone.default, new, memory_format=torch.contiguous_format)
    return insert_call(graph, aten.permute.default, new, [order.index(dim) for dim in range(len(order))])
