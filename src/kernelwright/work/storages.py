"""Number storages, so that a value can be tracked from call to call, without keeping any of them alive.

A weak reference keeps the address of a storage's head (not its memory) from being reused, so an address identifies one
storage, and a freed and reallocated buffer gets a new number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.weak import WeakTensorKeyDictionary

from kernelwright.work.regions import EMPTY_RANGE, ByteRange, ByteRangeSet, view_byte_range

MIN_PURGE_COUNT = 4096


class TrackedStorage:
    """A storage that the program used, and which of its bytes were read and written.

    Attributes:
        is_allocated: the program allocated it.
        is_lifted: the program created it from data outside torch: NumPy, a list.
    """

    __slots__ = ("bytes", "is_allocated", "is_lifted", "read", "storage_id", "written")

    def __init__(self, storage_id: int, storage_bytes: int, is_allocated: bool, is_lifted: bool = False) -> None:
        self.storage_id, self.bytes, self.is_allocated, self.is_lifted = (
            storage_id,
            storage_bytes,
            is_allocated,
            is_lifted,
        )
        self.read, self.written = ByteRangeSet(), ByteRangeSet()

    @property
    def is_unwritten(self) -> bool:
        """Whether it was created while the program ran, and no traced call wrote it."""
        return (self.is_allocated or self.is_lifted) and not self.written.touched_bytes

    def record_read(self, region: ByteRange) -> None:
        """Record a read of bytes that the program itself has not written."""
        if not self.is_allocated:
            self.read.extend(self.written.missing(region))


class InputTraffic(NamedTuple):
    """Bytes that one fused pass must move of storages that existed before; `mutated` are those that were written."""

    bytes_read: int
    bytes_written: int
    mutated: tuple[int, ...]

    def with_storages(self, storages: Iterable[TrackedStorage]) -> InputTraffic:
        """Add the traffic of more storages."""
        inputs = [storage for storage in storages if not storage.is_allocated]
        return InputTraffic(
            self.bytes_read + sum(storage.read.touched_bytes for storage in inputs),
            self.bytes_written + sum(storage.written.touched_bytes for storage in inputs),
            self.mutated + tuple(storage.storage_id for storage in inputs if storage.written.touched_bytes),
        )


class StorageTracker:
    """All storages that a program used. Freed ones are removed after their traffic was added to the totals.

    Attributes:
        inputs: numbers of the storages that existed before.
    """

    def __init__(self) -> None:
        self._live: dict[int, tuple[StorageWeakRef, TrackedStorage]] = {}
        self._without_storage: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._count = 0
        self._purge_at = MIN_PURGE_COUNT
        self.inputs: list[int] = []
        self._freed_traffic = InputTraffic(0, 0, ())

    def find(self, tensor: torch.Tensor, *, is_allocated: bool) -> tuple[TrackedStorage, bool]:
        """The storage of a tensor, and whether it is new; a new one is recorded with this `is_allocated`."""
        try:
            handle = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return self._find_without_storage(tensor, is_allocated)
        entry = self._live.get(handle._cdata)
        if entry is not None:
            entry[1].bytes = as_int(handle.nbytes())
            return entry[1], False
        if len(self._live) >= self._purge_at:
            self._purge()
        storage = self._track(as_int(handle.nbytes()), is_allocated)
        self._live[handle._cdata] = (StorageWeakRef(handle), storage)
        return storage, True

    def _find_without_storage(self, tensor: torch.Tensor, is_allocated: bool) -> tuple[TrackedStorage, bool]:
        """The record of a sparse tensor or wrapper, which has no storage: the tensor itself is the key."""
        if (known := self._without_storage.get(tensor)) is not None:
            return known, False
        self._without_storage[tensor] = storage = self._track(0, is_allocated)
        return storage, True

    def _track(self, storage_bytes: int, is_allocated: bool) -> TrackedStorage:
        storage = TrackedStorage(self._count, storage_bytes, is_allocated)
        self._count += 1
        if not is_allocated:
            self.inputs.append(storage.storage_id)
        return storage

    def _purge(self) -> None:
        dead = [key for key, (reference, _) in self._live.items() if reference.expired()]
        self._freed_traffic = self._freed_traffic.with_storages(self._live.pop(key)[1] for key in dead)
        self._purge_at = max(MIN_PURGE_COUNT, 2 * len(self._live))

    def input_traffic(self) -> InputTraffic:
        """Traffic of all storages that existed before, freed or alive."""
        return self._freed_traffic.with_storages(storage for _, storage in self._live.values())

    def live_allocations(self) -> Iterator[TrackedStorage]:
        """The storages that the program allocated and that are still alive."""
        for reference, storage in self._live.values():
            if storage.is_allocated and not reference.expired():
                yield storage


def tensor_byte_range(tensor: torch.Tensor, storage: TrackedStorage) -> ByteRange:
    """The bytes of its storage that a tensor touches; a sparse or nested tensor counts as a dense one."""
    if tensor.layout is not torch.strided:
        dense_bytes = as_int(tensor.numel()) * tensor.element_size()
        return ByteRange(0, dense_bytes, dense_bytes)
    if not storage.bytes:
        return EMPTY_RANGE
    shape, stride = tuple(map(as_int, tensor.shape)), tuple(map(as_int, tensor.stride()))
    return view_byte_range(shape, stride, as_int(tensor.storage_offset()), tensor.element_size(), storage.bytes)


def as_int(size: Any) -> int:
    """A size as an int: of a symbolic one the hint, or 1 if it has none."""
    if isinstance(size, int):
        return size
    hint = getattr(getattr(size, "node", None), "hint", None)
    return hint if isinstance(hint, int) else 1
