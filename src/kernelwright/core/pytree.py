"""Traversal and copies of the pytrees that torch programs take and return."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree


def tensor_leaves(tree: Any) -> list[torch.Tensor]:
    """Return all tensors of a tree in order."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def register_types(values: Iterable[Any]) -> None:
    """Make the dataclasses and named tuples among values nodes of trees, for good: the tensors in them are found, and
    torch.export and generated code take them apart and put them together."""
    for cls in [value for value in values if isinstance(value, type)]:
        # torch.export requires a name; a class that is defined anew is another one
        name = f"{cls.__module__}.{cls.__qualname__}@{id(cls):x}"
        if dataclasses.is_dataclass(cls) and cls not in pytree.SUPPORTED_NODES:
            with contextlib.suppress(ValueError):  # an opaque object of torch.library's: it stays a leaf
                pytree.register_dataclass(cls, serialized_type_name=name)
        elif pytree.is_namedtuple_class(cls) and cls not in pytree.SUPPORTED_SERIALIZED_TYPES:
            pytree._register_namedtuple(cls, serialized_type_name=name)


def clone_inputs(inputs: Any) -> Any:
    """Copy a tree and its tensors, preserving strides, dtype, requires_grad and shared storages."""
    return copy.deepcopy(
        pytree.tree_map_only(torch.Tensor, lambda t: t.detach().requires_grad_(t.requires_grad), inputs)
    )


def storage_bytes(tree: Any) -> int:
    """Return the bytes of all storages of a tree, each counted once."""
    handles = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensor_leaves(tree)}
    return sum(handles.values())
