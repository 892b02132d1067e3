"""The types that a program's result is made of: what torch's pytree has to know, and what cannot be compared."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelwright.core.pytree import register_types
from kernelwright.verification.transport.tensor_codec import PLAIN_TYPES


def register_result_types(result: Any) -> None:
    """Register the dataclasses and named tuples in a result with torch's pytree, also those in other dataclasses."""
    known: set[type] = set()
    while found := _list_types(result) - known:
        known |= found
        register_types(found)


def find_incomparable(result: Any) -> str:
    """The name of the first type in a result that cannot be compared; empty if all of it can."""
    leaves = pytree.tree_leaves(result)
    return next((type(one).__name__ for one in leaves if not isinstance(one, (torch.Tensor, *PLAIN_TYPES))), "")


def _list_types(tree: Any) -> set[type]:
    """The types of a tree's containers and leaves."""
    types: set[type] = set()

    def note(node: Any) -> bool:
        types.add(type(node))
        return False

    pytree.tree_leaves(tree, is_leaf=note)
    return types - {type}
