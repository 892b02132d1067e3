"""Takes results and arguments apart without running code of the candidate: only containers that were known before it
was loaded, named tuples and dataclasses.

Used in both processes; has no access to the expected values.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

Path = tuple[Any, ...]


class ResultContainers:
    """The containers that pytree knows now; one that the candidate registers later counts as a leaf."""

    def __init__(self) -> None:
        self._nodes = dict(pytree.SUPPORTED_NODES)

    def leaves(self, result: Any) -> list[Any]:
        """The leaves in order."""
        if type(result) is Tensor:
            return [result]
        children = self._children(result)
        return [result] if children is None else [leaf for _, child in children for leaf in self.leaves(child)]

    def have_changed(self, arguments: Any, leaves: list[Any]) -> bool:
        """Whether the leaves of arguments are other objects than these, which they had before a call."""
        after = self.leaves(arguments)
        return len(after) != len(leaves) or any(one is not other for one, other in zip(after, leaves, strict=True))

    def leaves_by_path(self, result: Any) -> dict[str, Any]:
        """The leaves by path, such as `[0]['sum']`."""
        return {pytree.keystr(path): leaf for path, leaf in self._walk(result, ())}

    def children(self, value: Any) -> list[Any] | None:
        """The children of a container, or None for a leaf."""
        keyed = self._children(value)
        return None if keyed is None else [child for _, child in keyed]

    def _walk(self, value: Any, path: Path) -> list[tuple[Path, Any]]:
        children = self._children(value)
        if children is None:
            return [(path, value)]
        return [found for key, child in children for found in self._walk(child, (*path, key))]

    def _children(self, value: Any) -> list[tuple[Any, Any]] | None:
        """Keys and children of a container, or None for a leaf."""
        cls = type(value)
        if cls is tuple or cls is list:
            return [(pytree.SequenceKey(at), child) for at, child in enumerate(value)]
        if cls is dict:
            return [(pytree.MappingKey(key), child) for key, child in value.items()]
        if issubclass(cls, tuple) and cls not in self._nodes:
            if not (fields := _field_names(cls)):
                return None
            return [(pytree.GetAttrKey(name), child) for name, child in zip(fields, tuple.__iter__(value), strict=True)]
        node = self._nodes.get(cls)
        if node is None:
            return _dataclass_children(value)
        if node.flatten_with_keys_fn is not None:
            return [*node.flatten_with_keys_fn(value)[0]]
        return [(pytree.SequenceKey(at), child) for at, child in enumerate(node.flatten_fn(value)[0])]


def _dataclass_children(value: Any) -> list[tuple[Any, Any]] | None:
    """The fields of a dataclass that are not None, as torch registers it, or None for another object."""
    fields = type(value).__dict__.get("__dataclass_fields__")
    if type(fields) is not dict:
        return None
    children = [(pytree.GetAttrKey(str(name)), object.__getattribute__(value, name)) for name in fields]
    return [(key, child) for key, child in children if child is not None]


def _field_names(cls: type) -> tuple[str, ...]:
    """The fields of a named tuple, or nothing for another class."""
    fields = cls.__dict__.get("_fields", ())
    return fields if isinstance(fields, tuple) and all(isinstance(one, str) for one in fields) else ()
