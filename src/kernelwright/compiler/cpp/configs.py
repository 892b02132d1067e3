"""The ways in which a region can be run on the CPU, as data."""

from __future__ import annotations

from math import lcm, prod

import msgspec

from kernelwright.compiler.cpp.neighbours import neighbour_axes, with_one_axis
from kernelwright.compiler.cpp.passes import POSITIONS
from kernelwright.compiler.regions.region import Axis, Region, Scan
from kernelwright.core.records import Record
from kernelwright.core.units import DTYPE_BYTES

FEW_ROWS = 16
"""Fewer rows than this do not keep the threads busy: then a row is cut into parts."""
FEW_TASKS = 4
PARTS = 64
PAST_CACHES_BYTES = 32 * 1024 * 1024
"""A result of this size will not be in a cache when it is read. Epyc 9004: relu(x + y) of 64 MB 9.0 ms, past the caches
7.0 ms."""
MOST_GATHERED = 64
"""Along an axis where a smaller share of memory lies together nothing is won: all else is gathered."""
MANY_LANES = 64
"""So many lanes beside each other that no addition waits for the last."""
LONG_ROW = 1024
"""Elements of a row from which on a column of vectors along it leaves the nearest caches."""
MOST_LANES_IN_PARTS = 320
"""What each part accumulates of each lane stands on the stack."""
LEAST_FOR_THREADS = 1 << 14
"""Elements that take longer than threads take to start and to meet: some microseconds where nothing else runs."""
LEAST_TASK = 4096
"""Elements that a thread takes at a time, where rows are short."""


class CpuChoice(Record, frozen=True, kw_only=True):
    """How a region is run: the axis of the vectors, whether on all threads, into how many parts a row is cut, whether
    results are written past the caches. Where `in_order`, vectors run along an outer axis and one element of the row
    comes after the other; with `inner`, an axis of the row, along both: `neighbours`."""

    lanes: str
    inner: str = ""
    in_order: bool = False
    threads: bool = True
    parts: int = 1
    past_caches: bool = False


def choices(region: Region) -> list[CpuChoice]:
    """The space of one region, the likeliest first; nothing for a single element."""
    if (axes := neighbour_axes(region)) and axes[1].size < MANY_LANES:
        return _beside_each_other(region, *axes)
    axes, threaded = lane_axes(region), _ways_of_threads(region)
    found = [CpuChoice(lanes=axis, threads=threads) for axis in axes[:2] for threads in threaded]
    if axes and _can_be_in_order(region, axes[0]):
        found.insert(0, CpuChoice(lanes=axes[0], in_order=True))
    if axes and _can_be_cut(region, axes[0]):
        found.insert(0, CpuChoice(lanes=axes[0], parts=PARTS, in_order=_can_be_in_order(region, axes[0])))
    if axes and _leaves_caches(region):
        found.insert(0, CpuChoice(lanes=axes[0], past_caches=True))
    return found


def _beside_each_other(region: Region, outer: Axis, inner: Axis) -> list[CpuChoice]:
    """Vectors along an outer axis and one of the row, where those are one run through memory."""
    chunk, tasks = column_tasks(with_one_axis(region, outer, inner), outer.name, inner.size)
    threaded = _ways_of_threads(region)
    found = [CpuChoice(lanes=outer.name, inner=inner.name, in_order=True, threads=threads) for threads in threaded]
    if region.row_size // inner.size >= PARTS and chunk <= MOST_LANES_IN_PARTS:
        found.insert(0 if tasks < FEW_TASKS else 1, msgspec.structs.replace(found[0], threads=True, parts=PARTS))
    return [msgspec.structs.replace(found[0], past_caches=True), *found] if _leaves_caches(region) else found


def _leaves_caches(region: Region) -> bool:
    """Whether a result is so large that it will not be in a cache when it is read."""
    return any(prod(store.shape) * DTYPE_BYTES[store.dtype] >= PAST_CACHES_BYTES for store in region.stores)


def _ways_of_threads(region: Region) -> tuple[bool, bool]:
    """On all threads and on one, the likelier first."""
    return (True, False) if region.rows * region.row_size >= LEAST_FOR_THREADS else (False, True)


def lane_axes(region: Region) -> list[str]:
    """Axes along which memory lies together, by the bytes that do; the longest where there is none."""
    weight: dict[str, float] = {}
    for place in (*region.loads, *region.stores):
        for axis, stride in place.strides.items():
            if stride == 1:
                weight[axis] = weight.get(axis, 0.0) + prod(
                    a.size for a in (*region.outer, *region.row) if place.strides.get(a.name)
                )
    found = sorted(weight, key=lambda axis: -weight[axis])
    found = [axis for axis in found if weight[axis] * MOST_GATHERED >= weight[found[0]]]
    if not found:
        found = [axis.name for axis in sorted((*region.outer, *region.row), key=lambda axis: -axis.size)[:1]]
    if not _in_order(region):
        return found
    last = region.row[-1].name
    fit = [axis for axis in found if axis == last or axis not in {a.name for a in region.row}]
    return fit if last in fit else [*fit, last]


def column_tasks(region: Region, lanes: str, together: int = 1) -> tuple[int, int]:
    """(chunk, tasks) where every lane is a row, or so many `together` are: lanes that a task takes, and how many tasks
    there are."""
    sizes = {axis.name: axis.size for axis in region.outer}
    each, least = max(1, -(-LEAST_TASK // max(region.row_size, 1))), lcm(64, together)
    chunk = min(sizes[lanes], -(-each // least) * least)
    return chunk, region.rows // sizes[lanes] * -(-sizes[lanes] // chunk)


def _can_be_in_order(region: Region, lanes: str) -> bool:
    """Whether elements of long rows can come one after another, for many lanes each."""
    sizes = {axis.name: axis.size for axis in region.outer}
    return not _in_order(region) and sizes.get(lanes, 0) >= MANY_LANES and region.row_size >= LONG_ROW


def _in_order(region: Region) -> bool:
    """Whether the elements of a row have to come one after another."""
    return any(isinstance(step, Scan) or step.op in POSITIONS for step in region.steps)


def _can_be_cut(region: Region, lanes: str) -> bool:
    if any(isinstance(step, Scan) for step in region.steps):
        return False
    if lanes in {axis.name for axis in region.row}:
        return region.rows < FEW_ROWS
    ordered, longest = _in_order(region), max((axis.size for axis in region.row), default=0)
    return (
        not ordered and longest >= PARTS and region.row_size >= LEAST_TASK and column_tasks(region, lanes)[1] < FEW_ROWS
    )
