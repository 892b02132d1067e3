"""The types that a program's result is made of: what torch's pytree has to know, and what cannot be compared."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelwright.verification.transport.tensor_codec import PLAIN_TYPES


def register_result_types(result: Any) -> None:
    """Register the dataclasses and named tuples in a result with torch's pytree, if they are not, for good: capture and
    generated code take results apart and put them together."""
    known: set[type] = set()
    while found := _list_types(result) - known:
        known |= found
        for cls in found:
            name = f"{cls.__module__}.{cls.__qualname__}@{id(cls):x}"  # a class that is defined anew is another one
            if dataclasses.is_dataclass(cls) and cls not in pytree.SUPPORTED_NODES:
                pytree.register_dataclass(cls, serialized_type_name=name)
            elif pytree.is_namedtuple_class(cls) and cls not in pytree.SUPPORTED_SERIALIZED_TYPES:
                pytree._register_namedtuple(cls, serialized_type_name=name)


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
