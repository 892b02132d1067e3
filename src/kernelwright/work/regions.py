"""Which bytes of a storage a view touches, and how many bytes several views touch together."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

MOST_STRIDED = 256
"""Strided regions kept apart for one storage; beyond this they melt into one, so that memory stays bounded."""


class Region(NamedTuple):
    """The bytes from `start` up to `end` of which a view touches `touched`; all of them when it is dense.

    `table` is not 0 where only the data knows which bytes are touched: then they are some of the `table` bytes that a
    whole view of it would touch, and two such regions need not be the same bytes.
    """

    start: int
    end: int
    touched: int
    table: int = 0

    @property
    def dense(self) -> bool:
        return self.touched == self.end - self.start

    @property
    def whole(self) -> Region:
        """What can be touched at all: the table that data picks from, else the region itself."""
        return Region(self.start, self.end, self.table or self.touched)

    def picked(self, picked_bytes: int) -> Region:
        """So many bytes of this region, which of them only the data knows."""
        return self if picked_bytes >= self.touched else self._replace(touched=picked_bytes, table=self.touched)

    def with_more(self, other: Region) -> Region:
        """What two picks from one table touch at most: their sum, until that is the table."""
        return self.whole.picked(self.touched + other.touched)


NOWHERE = Region(0, 0, 0)


@lru_cache(maxsize=65536)
def region_of(
    shape: tuple[int, ...], stride: tuple[int, ...], offset: int, item_bytes: int, storage_bytes: int
) -> Region:
    """The region of a strided view. Expanded dimensions (stride 0) count once, overlapping ones never more than span.

    Args:
        offset: of the first element, in elements.
        storage_bytes: size of the storage, to which the region is clipped.
    """
    if 0 in shape:
        return NOWHERE
    elements = span = 1
    for size, step in zip(shape, stride, strict=True):
        if step and size > 1:
            elements *= size
            span += (size - 1) * step
    start = offset * item_bytes
    end = max(start, min(start + span * item_bytes, storage_bytes))
    return Region(start, end, min(elements * item_bytes, end - start))


class RegionSet:
    """The union of regions of one storage: dense ones exactly, strided ones once each and never beyond their hull.

    What data picks from one table adds up to the whole of it at most.
    """

    __slots__ = ("_ends", "_starts", "_strided")

    def __init__(self, regions: Iterable[Region] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._strided: set[Region] = set()
        self.extend(regions)

    def extend(self, regions: Iterable[Region]) -> None:
        for region in regions:
            self.add(region)

    def add(self, region: Region) -> None:
        if self.covers(region):
            return
        for earlier in [r for r in self._strided if r.table and r.whole == region.whole]:
            self._strided.remove(earlier)
            region = region.with_more(earlier)
        if region.dense:
            self._add_span(region.start, region.end)
            return
        if len(self._strided) >= MOST_STRIDED:
            self._strided = {_melt(self._strided)}
        self._strided.add(region)

    def _add_span(self, start: int, end: int) -> None:
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def covers(self, region: Region) -> bool:
        """Whether every byte of the region is known to be in the union."""
        return not region.touched or region.whole in self._strided or self._in_span(region)

    def missing(self, region: Region) -> list[Region]:
        """The parts of a region that are not in the union; a strided region is missing whole or not at all."""
        if self.covers(region):
            return []
        return [self._thinned(gap) for gap in self._gaps(region)] if region.dense else [region]

    def _gaps(self, region: Region) -> list[Region]:
        gaps, at = [], region.start
        for start, end in zip(self._starts, self._ends, strict=True):
            if end <= at:
                continue
            if start >= region.end:
                break
            if start > at:
                gaps.append(Region(at, start, start - at))
            at = max(at, end)
        if at < region.end:
            gaps.append(Region(at, region.end, region.end - at))
        return gaps

    def _thinned(self, gap: Region) -> Region:
        """A gap without the strided regions inside it."""
        inside = sum(r.touched for r in self._strided if gap.start <= r.start and r.end <= gap.end)
        return gap._replace(touched=max(0, gap.touched - inside))

    @property
    def touched(self) -> int:
        """Bytes in the union."""
        return sum(part.touched for part in self.parts())

    def parts(self) -> list[Region]:
        """The union as regions that do not share bytes; one region when strided ones overlap too much to tell."""
        dense = [Region(start, end, end - start) for start, end in zip(self._starts, self._ends, strict=True)]
        parts = dense + [region for region in self._strided if not self._in_span(region)]
        if len(parts) == len(dense):
            return dense
        start, end = min(part.start for part in parts), max(part.end for part in parts)
        if sum(part.touched for part in parts) >= end - start:
            return [Region(start, end, end - start)]
        return sorted(parts)

    def _in_span(self, region: Region) -> bool:
        at = bisect_right(self._starts, region.start) - 1
        return at >= 0 and region.end <= self._ends[at]


def _melt(regions: set[Region]) -> Region:
    start, end = min(r.start for r in regions), max(r.end for r in regions)
    return Region(start, end, min(sum(r.touched for r in regions), end - start - 1))
