"""Inputs that may change from call to call (`transport.call_chain`) without leaving their domain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.problems.problem import Args, clone_inputs
from kernelwright.verification.accuracy.distributions import is_redrawable
from kernelwright.verification.accuracy.domains import Domain, is_ascending
from kernelwright.verification.transport.call_chain import MANTISSA_BITS, Change, change_tensors

TRIED_DIGESTS = (0x0123456789ABCDEF, 0xFEDCBA9876543210)


def find_changes(inputs: Args, takes: Callable[[Args], bool]) -> list[Change]:
    """For each leaf of the arguments, how it may change.

    Floats that hold integers, rows that sum to one, ascending numbers and booleans stay. Of integers one takes the
    value of the next one, or its place where all are distinct or there are only two values, if the program takes
    that.

    Args:
        takes: whether the program takes these inputs.
    """
    leaves = pytree.tree_leaves(inputs)
    proposals = _propose([_find_change(leaf) for leaf in leaves])
    return next(changes for changes in proposals if _is_taken(inputs, changes, takes))


def _propose(changes: list[Change]) -> Iterator[list[Change]]:
    """The changes; those in which no integer takes the value of another; those of floats only."""
    yield changes
    yield [Change.SWAP if one == Change.COPY else one for one in changes]
    yield [one if one == Change.LOW_BITS else Change.NONE for one in changes]


def _find_change(leaf: Any) -> Change:
    if not isinstance(leaf, Tensor) or leaf.layout != torch.strided or leaf.numel() < 2:
        return Change.NONE
    value = leaf.detach()
    if leaf.dtype in MANTISSA_BITS:
        if not is_redrawable(value) or bool((value == value.round()).all()):
            return Change.NONE
        domain = Domain.of(value)
        return Change.NONE if domain.rows_sum_to_one or domain.ascending else Change.LOW_BITS
    if leaf.dtype.is_floating_point or leaf.is_complex() or leaf.dtype == torch.bool or is_ascending(value):
        return Change.NONE
    values = value.unique().numel()
    return Change.NONE if values < 2 else Change.SWAP if values in (2, value.numel()) else Change.COPY


def _is_taken(inputs: Args, changes: Sequence[Change], takes: Callable[[Args], bool]) -> bool:
    """Whether the program takes inputs with changed integers; changed low bits it always takes."""
    integers = [one if one != Change.LOW_BITS else Change.NONE for one in changes]
    if not any(integers):
        return True
    for digest in TRIED_DIGESTS:
        changed = clone_inputs(inputs)
        leaves = pytree.tree_leaves(changed)
        chosen = [(leaf, change) for leaf, change in zip(leaves, integers, strict=True) if change]
        if not all(leaf.is_contiguous() for leaf, _ in chosen):
            return False
        change_tensors([leaf for leaf, _ in chosen], [change for _, change in chosen], digest)
        if not takes(changed):
            return False
    return True
