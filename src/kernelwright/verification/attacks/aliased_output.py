"""Outputs that are not new values: views of an input or of each other, expanded or lazily negated ones, and pages that
are mapped several times. What the reference returns in memory of its own, a candidate does too."""

from __future__ import annotations

import math
import os
import random
import struct
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from kernelwright.core.verdict import Reason
from kernelwright.sandbox import process_memory

MAX_ENUMERATED = 1 << 18
"""Elements of a tensor whose addresses are compared one by one, where their strides do not decide."""
PAGE_BYTES, MAX_TAGGED_PAGES = 4096, 4096
MAX_FILE_PAGES, FILE_PAGE = 64, 1 << 61
"""Pages whose kind is looked up, and the bit of it (the kernel's admin-guide/mm/pagemap)."""
_TAG = struct.Struct("=Q")


class TensorMemory(NamedTuple):
    """Where the elements of a tensor are: strides in elements; `lazy` if they are negated or conjugated when read."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item_bytes: int
    lazy: bool = False

    @classmethod
    def of(cls, value: Tensor) -> TensorMemory:
        """The memory of a strided tensor of this process."""
        is_lazy = value.is_neg() or value.is_conj()
        return cls(value.data_ptr(), tuple(value.shape), tuple(value.stride()), value.element_size(), is_lazy)

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)

    @property
    def end(self) -> int:
        """The address behind the last element."""
        last = sum((size - 1) * stride for size, stride in self._dims())
        return self.address + (last + 1) * self.item_bytes if self.num_elements else self.address

    def overlaps_itself(self) -> bool:
        """Whether two elements may be at one address."""
        reach = 0
        for size, stride in sorted(self._dims(), key=lambda dim: dim[1]):
            if stride <= reach:
                return self.num_elements > MAX_ENUMERATED or len(set(self._offsets())) < self.num_elements
            reach += (size - 1) * stride
        return False

    def shares_elements(self, other: TensorMemory) -> bool:
        """Whether an element of each may be at one address."""
        if self.address >= other.end or other.address >= self.end:
            return False
        strides = [stride * one.item_bytes for one in (self, other) for _, stride in one._dims()]
        step = math.gcd(*strides) if strides else 0
        apart = (other.address - self.address) % step if step else abs(other.address - self.address)
        if apart >= self.item_bytes and (not step or step - apart >= other.item_bytes):
            return False
        if max(self.num_elements, other.num_elements) > MAX_ENUMERATED or self.item_bytes != other.item_bytes:
            return True
        mine = {self.address + offset * self.item_bytes for offset in self._offsets()}
        return any(other.address + offset * other.item_bytes in mine for offset in other._offsets())

    def orders_dims_like(self, other: TensorMemory) -> bool:
        """Whether dimensions are stored in the order of another tensor of this shape, or in that of their numbers."""
        return any(
            all(
                self.strides[outer] >= self.strides[inner]
                for outer in range(len(self.shape))
                for inner in range(len(self.shape))
                if self.shape[outer] > 1 and self.shape[inner] > 1 and ranks[outer] > ranks[inner]
            )
            for ranks in (other.strides, range(len(self.shape), 0, -1))
        )

    def _dims(self) -> list[tuple[int, int]]:
        return [(size, stride) for size, stride in zip(self.shape, self.strides, strict=True) if size > 1]

    def _offsets(self) -> list[int]:
        offsets = [0]
        for size, stride in self._dims():
            offsets = [offset + at * stride for offset in offsets for at in range(size)]
        return offsets


class _Span(NamedTuple):
    """Addresses of an output, or of an input, whose path is None."""

    start: int
    end: int
    path: str | None = None
    input_index: int = -1


@dataclass(frozen=True)
class OutputMemory:
    """What the memory of an output is shared with.

    Attributes:
        inputs: indices of input tensors in whose storage it is.
        outputs: paths of other outputs with which it shares elements.
        overlaps_itself: some of its elements are at one address.
    """

    memory: TensorMemory
    inputs: frozenset[int] = frozenset()
    outputs: frozenset[str] = frozenset()
    overlaps_itself: bool = False


def describe_outputs(outputs: Mapping[str, TensorMemory], inputs: Iterable[tuple[int, int]]) -> dict[str, OutputMemory]:
    """What each output shares its memory with.

    Args:
        outputs: by path.
        inputs: address and bytes of the storage of each input tensor.
    """
    named = [(path, memory) for path, memory in outputs.items() if memory.num_elements]
    shared: dict[str, set[str]] = {path: set() for path, _ in named}
    within: dict[str, set[int]] = {path: set() for path, _ in named}
    spans = [_Span(memory.address, memory.end, path) for path, memory in named]
    spans += [_Span(start, start + size, input_index=at) for at, (start, size) in enumerate(inputs) if size]
    open_spans: list[_Span] = []
    for span in sorted(spans, key=lambda one: one.start):
        open_spans = [one for one in open_spans if one.end > span.start]
        for one, other in ((first, second) for each in open_spans for first, second in ((span, each), (each, span))):
            if one.path is None:
                continue
            if other.path is None:
                within[one.path].add(other.input_index)
            elif outputs[one.path].shares_elements(outputs[other.path]):
                shared[one.path].add(other.path)
        open_spans.append(span)
    return {
        path: OutputMemory(memory, frozenset(within[path]), frozenset(shared[path]), memory.overlaps_itself())
        for path, memory in named
    }


def find_aliasing(got: Mapping[str, OutputMemory], expected: Mapping[str, OutputMemory]) -> Reason | None:
    """The reason to reject outputs that share memory where the reference's do not."""
    for path, one in got.items():
        if not (other := expected.get(path)):
            continue
        detail = ""
        if more := one.inputs - other.inputs:
            detail = f"is in the memory of input {min(more)}"
        elif more := one.outputs - other.outputs:
            detail = f"shares its memory with output{min(more)}"
        elif one.overlaps_itself and not other.overlaps_itself:
            detail = f"has several elements at one address: shape {one.memory.shape}, strides {one.memory.strides}"
        elif one.memory.lazy and not other.memory.lazy:
            detail = "is negated or conjugated only when it is read"
        if detail:
            return Reason(code="aliased-output", detail=f"output{path} {detail}; the reference returns new values")
    return None


def find_other_order(got: Mapping[str, OutputMemory], expected: Mapping[str, OutputMemory]) -> str:
    """A note on an output whose dimensions are stored neither in the order of the reference's nor in that of a
    contiguous tensor, or an empty string."""
    for path, one in got.items():
        other = expected.get(path)
        if other and len(one.memory.shape) == len(other.memory.shape) and not one.memory.orders_dims_like(other.memory):
            strides = f"{one.memory.strides} instead of {other.memory.strides}"
            return f"output{path} is stored in another order than the reference's: strides {strides}"
    return ""


def find_shared_page(pid: int, extents: Iterable[tuple[int, int]]) -> str:
    """Why the pages of these extents of a stopped process are not memory of their own, or an empty string.

    Writes a tag to each page, or to a random choice of them, reads all tags back and restores the pages.
    """
    starts = sorted(
        {  # several outputs may be views of one buffer
            page
            for address, size in extents
            for page in range(-(-address // PAGE_BYTES) * PAGE_BYTES, address + size - _TAG.size + 1, PAGE_BYTES)
        }
    )
    if len(starts) < 2:
        return ""
    rng = random.SystemRandom()
    if _is_private_copy_of_file(pid, rng.sample(starts, min(len(starts), MAX_FILE_PAGES))):
        return "is a private mapping of a file"
    pages = [(start, _TAG.size) for start in rng.sample(starts, min(len(starts), MAX_TAGGED_PAGES))]
    before = process_memory.read_extents(pid, pages)
    tags = bytearray(rng.randbytes(len(before)))
    try:
        process_memory.write_extents(pid, memoryview(tags), pages)
        after = process_memory.read_extents(pid, pages)
    except OSError:
        return "cannot be written"
    finally:
        _restore(pid, before, pages)
    return "" if after == tags else "has one page of memory at several addresses"


def _is_private_copy_of_file(pid: int, pages: Iterable[int]) -> bool:
    """Whether some of these pages belong to a file and are copied when they are written to: until then, one page may
    be at several addresses. The kernel counts its huge page of zeros, which stands for memory that was only read, as of
    a file, but its mapping has no inode."""
    try:
        with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
            entries = {page: os.pread(pagemap.fileno(), 8, page // PAGE_BYTES * 8) for page in pages}
        in_file = [page for page, entry in entries.items() if int.from_bytes(entry, sys.byteorder) & FILE_PAGE]
        if not in_file:
            return False
        maps = [line.split(maxsplit=5)[:5] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    except OSError:
        return False
    of_files = [span for span, mode, _, _, inode in maps if mode.endswith("p") and inode != "0"]
    ranges = [[int(end, 16) for end in span.split("-")] for span in of_files]
    return any(start <= page < end for page in in_file for start, end in ranges)


def _restore(pid: int, data: bytearray, pages: list[tuple[int, int]]) -> None:
    try:
        process_memory.write_extents(pid, memoryview(data), pages)
    except OSError:
        return
