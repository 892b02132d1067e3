"""Serialization of tensors as raw bytes between verifier and candidate, with exact dtype, shape and strides.

Used in both processes; has no access to the expected values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernelwright.verification.transport.result_containers import ResultContainers

Packed = dict[str, Any]
MAX_CHUNK_BYTES = 1 << 30  # msgpack limits one byte string to 4 GiB
PLAIN_TYPES = (bool, int, float, str, type(None))


def pack(values: list[Any]) -> Packed:
    """The result of `extract_storages` as a msgpack tree: storages as chunks of bytes."""
    packed = extract_storages(values)
    return packed | {"blocks": [to_chunks(block) for block in packed["blocks"]]}


def extract_storages(values: list[Any]) -> Packed:
    """Storages and view metadata of leaves, within this process: each storage once and not copied, every tensor a
    view of one.

    Leaves that are neither tensors nor plain values are left out: the receiver uses its own.
    """
    storages: dict[int, int] = {}
    blocks: list[Tensor] = []
    leaves = []
    for value in values:
        if isinstance(value, Tensor):
            value = to_strided(value)
            key = value.untyped_storage()._cdata
            if key not in storages:
                storages[key] = len(blocks)
                blocks.append(storage_bytes(value))
            leaves.append(_view_metadata(value, storages[key]))
        else:
            leaves.append({"plain": value} if isinstance(value, PLAIN_TYPES) else {})
    return {"blocks": blocks, "leaves": leaves}


def unpack(
    packed: Packed, device: str, local_values: list[Any] | None = None, allocate: Callable[[int], Tensor] | None = None
) -> list[Any]:
    """The leaves of `pack` or `extract_storages` on `device`, in new memory.

    Args:
        local_values: replace the leaves that were left out.
        allocate: allocates this many bytes on the CPU for each block; None for torch's allocator.
    """
    return rebuild_views(
        packed["leaves"],
        [_rebuild_storage(block, device, allocate or _allocate_bytes) for block in packed["blocks"]],
        local_values,
    )


def rebuild_views(
    leaves: list[Packed], blocks: list[torch.UntypedStorage], local_values: list[Any] | None = None
) -> list[Any]:
    """The described leaves as views of existing storages."""
    values = []
    for at, leaf in enumerate(leaves):
        if "dtype" in leaf:
            values.append(_rebuild_view(leaf, blocks[leaf["block"]]))
        else:
            values.append(leaf["plain"] if "plain" in leaf else local_values[at] if local_values else None)
    return values


def storage_bytes(value: Tensor) -> Tensor:
    """All bytes of the tensor's storage, also between and around its elements; not copied."""
    return torch.empty(0, dtype=torch.uint8, device=value.device).set_(value.untyped_storage())


def to_chunks(block: Tensor) -> list[memoryview]:
    """The bytes of a block in chunks, as views if it is on the CPU."""
    data = block.cpu().numpy().data
    return [data[start : start + MAX_CHUNK_BYTES] for start in range(0, len(data), MAX_CHUNK_BYTES)]


def contiguous_copy(value: Tensor) -> Tensor:
    """A contiguous copy of the tensor's values."""
    return to_strided(value.detach()).resolve_conj().resolve_neg().contiguous().clone()


def to_strided(value: Tensor) -> Tensor:
    """A dense strided tensor with the same values."""
    return value if value.layout == torch.strided else value.to_dense()


def describe_structure(tree: Any, containers: ResultContainers | None = None) -> str:
    """The structure of a result as text, equal for equal structures: `(Tensor, {'a': Tensor, 'n': int})`.

    The named tuples of torch.max or topk count as tuples, so that a candidate in C++ can return them.

    Args:
        containers: what is taken apart; None for everything that pytree knows now.
    """
    containers = containers or ResultContainers()

    def describe(value: Any) -> str:
        return describe_structure(value, containers)

    if isinstance(tree, Tensor):
        name = "Tensor" if isinstance(tree, torch.nn.Parameter) else type(tree).__name__
        return name if tree.layout == torch.strided else f"{name} {tree.layout}"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key!r}: {describe(tree[key])}" for key in sorted(tree, key=repr)) + "}"
    if isinstance(tree, tuple) and type(tree) is not tuple and type(tree).__module__ != "torch.return_types":
        return f"{type(tree).__name__}({', '.join(map(describe, tree))})"
    if isinstance(tree, (tuple, list)):
        text = ", ".join(map(describe, tree))
        return f"[{text}]" if isinstance(tree, list) else f"({text})"
    if isinstance(tree, str):
        return repr(tree)
    if (children := containers.children(tree)) is not None:
        return f"{type(tree).__name__}({', '.join(map(describe, children))})"
    return type(tree).__name__


def _view_metadata(value: Tensor, block: int) -> Packed:
    return {
        "dtype": str(value.dtype).removeprefix("torch."),
        "shape": list(value.shape),
        "strides": list(value.stride()),
        "offset": value.storage_offset(),
        "block": block,
        "device": value.device.type,
        "gradient": value.requires_grad,
    }


def _allocate_bytes(size_bytes: int) -> Tensor:
    return torch.empty(size_bytes, dtype=torch.uint8)


def _rebuild_storage(
    block: Tensor | list[bytes], device: str, allocate: Callable[[int], Tensor]
) -> torch.UntypedStorage:
    if isinstance(block, Tensor):
        copied = allocate(len(block)).copy_(block) if device == "cpu" else block.to(device, copy=True)
        return copied.untyped_storage()
    joined = allocate(sum(map(len, block)))
    start = 0
    for chunk in block:
        joined.numpy()[start : start + len(chunk)] = memoryview(chunk)
        start += len(chunk)
    return joined.to(device).untyped_storage()


def _rebuild_view(leaf: Packed, block: torch.UntypedStorage) -> Tensor:
    dtype = getattr(torch, leaf["dtype"])
    value = torch.empty(0, dtype=dtype, device=block.device)
    value.set_(block, leaf["offset"], leaf["shape"], leaf["strides"])
    return value.requires_grad_(leaf["gradient"])
