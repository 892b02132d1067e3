"""Traversal and copies of the pytrees that torch programs take and return."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree


def tensor_leaves(tree: Any) -> list[torch.Tensor]:
    """Return all tensors of a tree in order."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def register_dataclasses(module: ModuleType) -> None:
    """Make the dataclasses among a module's globals nodes of trees, so that the tensors in them are found."""
    for value in list(vars(module).values()):
        if isinstance(value, type) and dataclasses.is_dataclass(value) and value not in pytree.SUPPORTED_NODES:
            name = f"{value.__module__}.{value.__qualname__}"  # torch.export requires one
            with contextlib.suppress(ValueError):  # fields that the constructor does not take: it stays a leaf
                pytree.register_dataclass(value, serialized_type_name=name)


def clone_inputs(inputs: Any) -> Any:
    """Copy a tree and its tensors, preserving strides, dtype, requires_grad and shared storages."""
    return copy.deepcopy(
        pytree.tree_map_only(torch.Tensor, lambda t: t.detach().requires_grad_(t.requires_grad), inputs)
    )


def storage_bytes(tree: Any) -> int:
    """Return the bytes of all storages of a tree, each counted once."""
    handles = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensor_leaves(tree)}
    return sum(handles.values())
