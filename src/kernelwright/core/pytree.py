"""Trees of arguments: what torch programs take and return, as several rooms need to walk and copy them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.utils import _pytree as pytree


def tensor_leaves(tree: Any) -> list[torch.Tensor]:
    """Every tensor of a tree, in its order."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def clone_inputs(inputs: Any) -> Any:
    """The same tree with every tensor copied, strides, dtype and requires_grad kept, shared storages kept shared."""
    return copy.deepcopy(
        pytree.tree_map_only(torch.Tensor, lambda t: t.detach().requires_grad_(t.requires_grad), inputs)
    )


def storage_bytes(tree: Any) -> int:
    """Bytes of all storages behind a tree, each counted once."""
    handles = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensor_leaves(tree)}
    return sum(handles.values())
