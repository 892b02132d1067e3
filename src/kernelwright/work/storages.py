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

from kernelwright.work.regions import NOWHERE, Region, RegionSet, region_of

FIRST_SWEEP = 4096


class Storage:
    """What is known of one storage: `fresh` when the program allocated it, and which of its bytes were touched.

    `lifted` when the program brought it in from outside torch: from NumPy, from a list.
    """

    __slots__ = ("bytes", "fresh", "lifted", "number", "read", "written")

    def __init__(self, number: int, storage_bytes: int, fresh: bool, lifted: bool = False) -> None:
        self.number, self.bytes, self.fresh, self.lifted = number, storage_bytes, fresh, lifted
        self.read, self.written = RegionSet(), RegionSet()

    @property
    def blank(self) -> bool:
        """Whether it appeared while the program ran, and no call was seen to write what it holds."""
        return (self.fresh or self.lifted) and not self.written.touched

    def note_read(self, region: Region) -> None:
        """Remembers what was read of it before the program itself had written it."""
        if not self.fresh:
            self.read.extend(self.written.missing(region))


class InputTraffic(NamedTuple):
    """What one fused pass must move of storages that were there before; `mutated` are those that were written."""

    bytes_read: int
    bytes_written: int
    mutated: tuple[int, ...]

    def with_storages(self, storages: Iterable[Storage]) -> InputTraffic:
        before = [storage for storage in storages if not storage.fresh]
        return InputTraffic(
            self.bytes_read + sum(storage.read.touched for storage in before),
            self.bytes_written + sum(storage.written.touched for storage in before),
            self.mutated + tuple(storage.number for storage in before if storage.written.touched),
        )


class Storages:
    """Every storage that a program touched. Dead ones are swept, after what they add to the totals was kept.

    Attributes:
        inputs: numbers of the storages that were there before.
    """

    def __init__(self) -> None:
        self._live: dict[int, tuple[StorageWeakRef, Storage]] = {}
        self._without_storage: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._count = 0
        self._sweep_at = FIRST_SWEEP
        self.inputs: list[int] = []
        self._settled = InputTraffic(0, 0, ())

    def find(self, tensor: torch.Tensor, *, fresh: bool) -> tuple[Storage, bool]:
        """The storage of a tensor, and whether it was met for the first time; then it is entered as `fresh` or not."""
        try:
            handle = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return self._find_without_storage(tensor, fresh)
        entry = self._live.get(handle._cdata)
        if entry is not None:
            entry[1].bytes = as_int(handle.nbytes())
            return entry[1], False
        if len(self._live) >= self._sweep_at:
            self._sweep()
        storage = self._enter(as_int(handle.nbytes()), fresh)
        self._live[handle._cdata] = (StorageWeakRef(handle), storage)
        return storage, True

    def _find_without_storage(self, tensor: torch.Tensor, fresh: bool) -> tuple[Storage, bool]:
        """Sparse tensors and other wrappers: the tensor stands for its storage."""
        if (known := self._without_storage.get(tensor)) is not None:
            return known, False
        self._without_storage[tensor] = storage = self._enter(0, fresh)
        return storage, True

    def _enter(self, storage_bytes: int, fresh: bool) -> Storage:
        storage = Storage(self._count, storage_bytes, fresh)
        self._count += 1
        if not fresh:
            self.inputs.append(storage.number)
        return storage

    def _sweep(self) -> None:
        dead = [key for key, (reference, _) in self._live.items() if reference.expired()]
        self._settled = self._settled.with_storages(self._live.pop(key)[1] for key in dead)
        self._sweep_at = max(FIRST_SWEEP, 2 * len(self._live))

    def input_traffic(self) -> InputTraffic:
        """Of all storages that were there before, dead or alive."""
        return self._settled.with_storages(storage for _, storage in self._live.values())

    def fresh_and_alive(self) -> Iterator[Storage]:
        """The storages that the program allocated and that still exist."""
        for reference, storage in self._live.values():
            if storage.fresh and not reference.expired():
                yield storage


def region(tensor: torch.Tensor, storage: Storage) -> Region:
    """The bytes of its storage that a tensor touches; of a sparse or nested tensor as many as a dense one would."""
    if tensor.layout is not torch.strided:
        dense_bytes = as_int(tensor.numel()) * tensor.element_size()
        return Region(0, dense_bytes, dense_bytes)
    if not storage.bytes:
        return NOWHERE
    shape, stride = tuple(map(as_int, tensor.shape)), tuple(map(as_int, tensor.stride()))
    return region_of(shape, stride, as_int(tensor.storage_offset()), tensor.element_size(), storage.bytes)


def as_int(size: Any) -> int:
    """A size as a number: a symbolic one by its hint, and 1 where it has none."""
    if isinstance(size, int):
        return size
    hint = getattr(getattr(size, "node", None), "hint", None)
    return hint if isinstance(hint, int) else 1
