"""Inputs whose low bits may be changed from call to call (`transport.call_chain`) without leaving their domain."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.problems.problem import Args
from kernelwright.verification.accuracy.distributions import is_redrawable
from kernelwright.verification.accuracy.domains import Domain
from kernelwright.verification.transport.call_chain import MANTISSA_BITS


def chained_leaves(inputs: Args) -> list[bool]:
    """For each leaf of the arguments, whether its low bits may change.

    Not those of integers and masks, of floats that hold integers, of rows that sum to one, and of ascending numbers.
    """
    return [_may_change(leaf) for leaf in pytree.tree_leaves(inputs)]


def _may_change(leaf: Any) -> bool:
    if not isinstance(leaf, Tensor) or leaf.dtype not in MANTISSA_BITS or not leaf.numel():
        return False
    value = leaf.detach()
    if not is_redrawable(value) or bool((value == value.round()).all()):
        return False
    domain = Domain.of(value)
    return not (domain.rows_sum_to_one or domain.ascending)
