"""Einsums as sums of products: their factors, parts of these, and the order of products that costs the least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import NamedTuple

from torch import fx

from kernelwright.compiler.regions.nodes import shape_of
from kernelwright.compiler.rewrites.rewriting import has_tensor, tensor_of

FLOPS_PER_BYTE = 20
"""FLOPs in the time of a byte of memory traffic: FP32 products on an H100 reach about 60 TFLOP/s at 3 TB/s."""
MAX_SHORT_SUM, MAX_SHORT_ROWS = 16, 4
"""Summands, and rows or columns, of a product that is a sum of products of elements: matrix units need more."""


class Cut(NamedTuple):
    """A part along a dimension: one element, without the dimension, if `size` is 0."""

    start: int
    size: int


@dataclass(frozen=True)
class Term:
    """A factor of an einsum: a tensor, the labels of its dimensions, and the cuts along some, in order."""

    node: fx.Node
    given: str
    cuts: tuple[tuple[str, Cut], ...] = ()

    @property
    def labels(self) -> str:
        """Those that are left after the cuts."""
        selected = {label for label, cut in self.cuts if not cut.size}
        return "".join(label for label in self.given if label not in selected)


@dataclass(frozen=True)
class Einsum:
    """A sum of products.

    Attributes:
        sizes: of each label.
        cost: of the nodes that it replaces, in bytes.
    """

    terms: tuple[Term, ...]
    out: str
    sizes: Mapping[str, int]
    cost: float


def match_einsum(node: fx.Node) -> Einsum | None:
    """Match an einsum of several tensors whose labels occur once in each, and have one size; None for others."""
    left, arrow, out = str(node.args[0]).replace(" ", "").partition("->")
    names, operands = left.split(","), list(node.args[1])  # type: ignore[arg-type]
    if not arrow or "." in left or len(operands) < 2 or not all(map(has_tensor, operands)):
        return None
    if any(len(set(one)) != len(one) for one in (*names, out)):
        return None
    sizes: dict[str, int] = {}
    for name, operand in zip(names, operands, strict=True):
        for label, size in zip(name, shape_of(operand), strict=True):
            if sizes.setdefault(label, size) != size or not size:
                return None
    terms = tuple(Term(operand, name) for name, operand in zip(names, operands, strict=True))
    einsum = Einsum(terms, out, sizes, 0.0)
    return replace(einsum, cost=_cost_from_left(einsum))


def cut_terms(einsum: Einsum, label: str, cut: Cut) -> Einsum:
    """Return the einsum of a part along a label of all its tensors."""

    def cut_term(term: Term) -> Term:
        if label not in term.labels:
            return term
        return replace(term, cuts=(*term.cuts, (label, cut)))

    return replace(
        einsum, terms=tuple(map(cut_term, einsum.terms)), sizes={**einsum.sizes, label: cut.size or einsum.sizes[label]}
    )


# ---- order


Pair = tuple[str, str, str]
"""The labels of two factors and of their product."""


def find_order(terms: Sequence[str], einsum: Einsum) -> tuple[list[Pair], float]:
    """Return the products of two factors that cost the least, and their cost.

    Args:
        terms: the labels of the factors.
    """
    if len(terms) == 1:
        return [], 0.0
    best: tuple[list[Pair], float] | None = None
    for one, other in combinations(range(len(terms)), 2):
        rest = [labels for index, labels in enumerate(terms) if index not in (one, other)]
        pair = _pair(terms[one], terms[other], rest, einsum)
        later, cost = find_order([*rest, pair[2]], einsum)
        cost += _pair_cost(pair, einsum)
        if best is None or cost < best[1]:
            best = [pair, *later], cost
    assert best is not None
    return best


def _pair(one: str, other: str, rest: Sequence[str], einsum: Einsum) -> Pair:
    """The product of two factors: without the labels that nothing else has; the result's have its order."""
    if not rest:
        return one, other, einsum.out
    larger, smaller = sorted((one, other), key=lambda labels: -_numel(labels, einsum))
    labels = dict.fromkeys(larger + smaller)
    return one, other, "".join(label for label in labels if any(label in kept for kept in (*rest, einsum.out)))


def _pair_cost(pair: Pair, einsum: Einsum) -> float:
    """Bytes, and FLOPs as bytes."""
    itemsize = tensor_of(einsum.terms[0].node).element_size()
    flops = _numel("".join({*pair[0], *pair[1]}), einsum) * (2 if summed_labels(pair) else 1)
    return itemsize * sum(_numel(labels, einsum) for labels in pair) + flops / FLOPS_PER_BYTE


def _cost_from_left(einsum: Einsum) -> float:
    """The cost of the order in which torch multiplies."""
    terms, cost = [term.labels for term in einsum.terms], 0.0
    while len(terms) > 1:
        pair = _pair(terms[0], terms[1], terms[2:], einsum)
        cost += _pair_cost(pair, einsum)
        terms = [pair[2], *terms[2:]]
    return cost


def _numel(labels: str, einsum: Einsum) -> int:
    return prod(einsum.sizes[label] for label in labels)


def summed_labels(pair: Pair) -> str:
    """Return the labels of two factors that their product has not."""
    return "".join(label for label in dict.fromkeys(pair[0] + pair[1]) if label not in pair[2])


def is_short(one: str, other: str, out: str, einsum: Einsum) -> bool:
    """Whether a product of two factors has few summands, and few rows or columns."""
    rows, columns = (
        _numel("".join(label for label in out if (label in one, label in other) == sides), einsum)
        for sides in ((True, False), (False, True))
    )
    summed = _numel(summed_labels((one, other, out)), einsum)
    return summed <= MAX_SHORT_SUM and min(rows, columns) <= MAX_SHORT_ROWS
