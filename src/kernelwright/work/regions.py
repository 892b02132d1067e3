"""Byte ranges of a storage that views touch, and their unions."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

MAX_STRIDED = 256
"""Maximum number of separate strided regions per storage; more are merged into one to bound memory use."""


class ByteRange(NamedTuple):
    """Bytes from `start` up to `end`, of which a view touches `touched_bytes`; all of them if it is dense.

    `table_bytes` is not 0 for indexed accesses: the view touches some of the `table_bytes` bytes of the table. Which of
    them depends on the data, so two such ranges need not be the same bytes.
    """

    start: int
    end: int
    touched_bytes: int
    table_bytes: int = 0

    @property
    def is_dense(self) -> bool:
        """Whether every byte of the range is touched."""
        return self.touched_bytes == self.end - self.start

    @property
    def table_range(self) -> ByteRange:
        """The range that can be touched at all: the whole table of an indexed access, else the range itself."""
        return ByteRange(self.start, self.end, self.table_bytes or self.touched_bytes)

    def with_gathered(self, gathered_bytes: int) -> ByteRange:
        """This range with only `gathered_bytes` touched, at positions that depend on the data."""
        return (
            self
            if gathered_bytes >= self.touched_bytes
            else self._replace(touched_bytes=gathered_bytes, table_bytes=self.touched_bytes)
        )

    def merge_gather(self, other: ByteRange) -> ByteRange:
        """Upper limit of what two gathers from one table touch: their sum, at most the table."""
        return self.table_range.with_gathered(self.touched_bytes + other.touched_bytes)


EMPTY_RANGE = ByteRange(0, 0, 0)


@lru_cache(maxsize=65536)
def view_byte_range(
    shape: tuple[int, ...], stride: tuple[int, ...], offset: int, item_bytes: int, storage_bytes: int
) -> ByteRange:
    """The byte range of a strided view.

    Expanded dimensions (stride 0) count once; overlapping ones count at most the whole span.

    Args:
        offset: storage offset in elements.
        storage_bytes: size of the storage, to which the range is clipped.
    """
    if 0 in shape:
        return EMPTY_RANGE
    elements = span = 1
    for size, step in zip(shape, stride, strict=True):
        if step and size > 1:
            elements *= size
            span += (size - 1) * step
    start = offset * item_bytes
    end = max(start, min(start + span * item_bytes, storage_bytes))
    return ByteRange(start, end, min(elements * item_bytes, end - start))


class ByteRangeSet:
    """Union of byte ranges of one storage: dense ones exactly, strided ones once each and at most their span.

    Gathers from one table add up to the whole table at most.
    """

    __slots__ = ("_ends", "_starts", "_strided")

    def __init__(self, regions: Iterable[ByteRange] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._strided: set[ByteRange] = set()
        self.extend(regions)

    def extend(self, regions: Iterable[ByteRange]) -> None:
        """Add several ranges."""
        for region in regions:
            self.add(region)

    def add(self, region: ByteRange) -> None:
        """Add one range."""
        if self.covers(region):
            return
        for earlier in [r for r in self._strided if r.table_bytes and r.table_range == region.table_range]:
            self._strided.remove(earlier)
            region = region.merge_gather(earlier)
        if region.is_dense:
            self._add_dense(region.start, region.end)
            return
        if len(self._strided) >= MAX_STRIDED:
            self._strided = {_merge_strided(self._strided)}
        self._strided.add(region)

    def _add_dense(self, start: int, end: int) -> None:
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def covers(self, region: ByteRange) -> bool:
        """Whether every byte of the range is known to be in the union."""
        return not region.touched_bytes or region.table_range in self._strided or self._is_in_dense(region)

    def missing(self, region: ByteRange) -> list[ByteRange]:
        """The parts of a range that are not in the union; a strided range is either missing as a whole or not."""
        if self.covers(region):
            return []
        return [self._exclude_strided(gap) for gap in self._gaps(region)] if region.is_dense else [region]

    def _gaps(self, region: ByteRange) -> list[ByteRange]:
        gaps, position = [], region.start
        for start, end in zip(self._starts, self._ends, strict=True):
            if end <= position:
                continue
            if start >= region.end:
                break
            if start > position:
                gaps.append(ByteRange(position, start, start - position))
            position = max(position, end)
        if position < region.end:
            gaps.append(ByteRange(position, region.end, region.end - position))
        return gaps

    def _exclude_strided(self, gap: ByteRange) -> ByteRange:
        """A gap without the strided ranges inside it."""
        inside = sum(r.touched_bytes for r in self._strided if gap.start <= r.start and r.end <= gap.end)
        return gap._replace(touched_bytes=max(0, gap.touched_bytes - inside))

    @property
    def touched_bytes(self) -> int:
        """Bytes in the union."""
        return sum(part.touched_bytes for part in self.disjoint_ranges())

    def disjoint_ranges(self) -> list[ByteRange]:
        """The union as ranges that share no bytes; a single one if strided ranges may overlap."""
        dense = [ByteRange(start, end, end - start) for start, end in zip(self._starts, self._ends, strict=True)]
        parts = dense + [region for region in self._strided if not self._is_in_dense(region)]
        if len(parts) == len(dense):
            return dense
        start, end = min(part.start for part in parts), max(part.end for part in parts)
        if sum(part.touched_bytes for part in parts) >= end - start:
            return [ByteRange(start, end, end - start)]
        return sorted(parts)

    def _is_in_dense(self, region: ByteRange) -> bool:
        position = bisect_right(self._starts, region.start) - 1
        return position >= 0 and region.end <= self._ends[position]


def _merge_strided(regions: set[ByteRange]) -> ByteRange:
    start, end = min(r.start for r in regions), max(r.end for r in regions)
    return ByteRange(start, end, min(sum(r.touched_bytes for r in regions), end - start - 1))
