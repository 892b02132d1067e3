"""The ways in which a region can be run on the CPU, as data."""

from __future__ import annotations

from math import prod

from kernelwright.core.records import Record
from kernelwright.core.units import DTYPE_BYTES
from kernelwright.optimize.cpp.passes import POSITIONS
from kernelwright.optimize.regions.region import Region, Scan

FEW_ROWS = 16
"""Fewer rows than this do not keep the threads busy: then a row is cut into parts."""
PARTS = 64
PAST_CACHES_BYTES = 32 * 1024 * 1024
"""A result of this size will not be in a cache when it is read. Epyc 9004: relu(x + y) of 64 MB 9.0 ms, past the caches
7.0 ms."""
LEAST_TASK = 4096
"""Elements that a thread takes at a time, where rows are short."""


class CpuChoice(Record, frozen=True, kw_only=True):
    """How a region is run: the axis of the vectors, whether on all threads, into how many parts a row is cut, whether
    results are written past the caches."""

    lanes: str
    threads: bool = True
    parts: int = 1
    past_caches: bool = False


def choices(region: Region) -> list[CpuChoice]:
    """The space of one region, the likeliest first; nothing for a single element."""
    axes = lane_axes(region)
    found = [CpuChoice(lanes=axis, threads=threads) for axis in axes[:2] for threads in (True, False)]
    if axes and _can_be_cut(region, axes[0]):
        found.insert(0, CpuChoice(lanes=axes[0], parts=PARTS))
    if axes and any(prod(store.shape) * DTYPE_BYTES[store.dtype] >= PAST_CACHES_BYTES for store in region.stores):
        found.insert(0, CpuChoice(lanes=axes[0], past_caches=True))
    return found


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
    if not found:
        found = [axis.name for axis in sorted((*region.outer, *region.row), key=lambda axis: -axis.size)[:1]]
    if not _in_order(region):
        return found
    last = region.row[-1].name
    fit = [axis for axis in found if axis == last or axis not in {a.name for a in region.row}]
    return fit if last in fit else [*fit, last]


def column_tasks(region: Region, lanes: str) -> tuple[int, int]:
    """(chunk, tasks) where every lane is a row: lanes that a task takes, and how many tasks there are."""
    sizes = {axis.name: axis.size for axis in region.outer}
    each = max(1, -(-LEAST_TASK // max(region.row_size, 1)))
    chunk = min(sizes[lanes], -(-each // 64) * 64)
    return chunk, region.rows // sizes[lanes] * -(-sizes[lanes] // chunk)


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
