"""Numbers storages, so that a value can be followed from call to call, without keeping any of them alive.

A weak reference keeps the address of a storage's head (not its memory) from being used again, so an address that is
found here still means the same storage, and a freed and reallocated buffer gets a new number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.weak import WeakTensorKeyDictionary

from kernelwright.work.regions import EMPTY_RANGE, ByteRange, ByteRangeSet, view_byte_range

MIN_SWEEP_COUNT = 4096


class TrackedStorage:
    """What is known of one storage: `is_allocated` when the program allocated it, and which of its bytes were touched.

    `is_lifted` when the program brought it in from outside torch: from NumPy, from a list.
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
        """Whether it appeared while the program ran, and no call was seen to write what it holds."""
        return (self.is_allocated or self.is_lifted) and not self.written.touched_bytes

    def record_read(self, region: ByteRange) -> None:
        """Remembers what was read of it before the program itself had written it."""
        if not self.is_allocated:
            self.read.extend(self.written.missing(region))


class InputTraffic(NamedTuple):
    """What one fused pass must move of storages that were there before; `mutated` are those that were written."""

    bytes_read: int
    bytes_written: int
    mutated: tuple[int, ...]

    def with_storages(self, storages: Iterable[TrackedStorage]) -> InputTraffic:
        before = [storage for storage in storages if not storage.is_allocated]
        return InputTraffic(
            self.bytes_read + sum(storage.read.touched_bytes for storage in before),
            self.bytes_written + sum(storage.written.touched_bytes for storage in before),
            self.mutated + tuple(storage.storage_id for storage in before if storage.written.touched_bytes),
        )


class StorageTracker:
    """Every storage that a program touched. Dead ones are swept, after what they add to the totals was kept.

    Attributes:
        inputs: numbers of the storages that were there before.
    """

    def __init__(self) -> None:
        self._live: dict[int, tuple[StorageWeakRef, TrackedStorage]] = {}
        self._without_storage: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._count = 0
        self._sweep_at = MIN_SWEEP_COUNT
        self.inputs: list[int] = []
        self._freed_traffic = InputTraffic(0, 0, ())

    def find(self, tensor: torch.Tensor, *, is_allocated: bool) -> tuple[TrackedStorage, bool]:
        """The storage of a tensor, and whether it was met for the first time; then it is entered as `is_allocated` or
        not."""
        try:
            handle = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return self._find_without_storage(tensor, is_allocated)
        entry = self._live.get(handle._cdata)
        if entry is not None:
            entry[1].bytes = as_int(handle.nbytes())
            return entry[1], False
        if len(self._live) >= self._sweep_at:
            self._sweep()
        storage = self._track(as_int(handle.nbytes()), is_allocated)
        self._live[handle._cdata] = (StorageWeakRef(handle), storage)
        return storage, True

    def _find_without_storage(self, tensor: torch.Tensor, is_allocated: bool) -> tuple[TrackedStorage, bool]:
        """Sparse tensors and other wrappers: the tensor stands for its storage."""
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

    def _sweep(self) -> None:
        dead = [key for key, (reference, _) in self._live.items() if reference.expired()]
        self._freed_traffic = self._freed_traffic.with_storages(self._live.pop(key)[1] for key in dead)
        self._sweep_at = max(MIN_SWEEP_COUNT, 2 * len(self._live))

    def input_traffic(self) -> InputTraffic:
        """Of all storages that were there before, dead or alive."""
        return self._freed_traffic.with_storages(storage for _, storage in self._live.values())

    def live_allocations(self) -> Iterator[TrackedStorage]:
        """The storages that the program allocated and that still exist."""
        for reference, storage in self._live.values():
            if storage.is_allocated and not reference.expired():
                yield storage


def tensor_byte_range(tensor: torch.Tensor, storage: TrackedStorage) -> ByteRange:
    """The bytes of its storage that a tensor touches; of a sparse or nested tensor as many as a dense one would."""
    if tensor.layout is not torch.strided:
        dense_bytes = as_int(tensor.numel()) * tensor.element_size()
        return ByteRange(0, dense_bytes, dense_bytes)
    if not storage.bytes:
        return EMPTY_RANGE
    shape, stride = tuple(map(as_int, tensor.shape)), tuple(map(as_int, tensor.stride()))
    return view_byte_range(shape, stride, as_int(tensor.storage_offset()), tensor.element_size(), storage.bytes)


def as_int(size: Any) -> int:
    """A size as a number: a symbolic one by its hint, and 1 where it has none."""
    if isinstance(size, int):
        return size
    hint = getattr(getattr(size, "node", None), "hint", None)
    return hint if isinstance(hint, int) else 1
