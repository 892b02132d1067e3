"""The ways in which a region can be run on the CPU, as data."""

from __future__ import annotations

from math import lcm, prod

import msgspec

from kernelwright.compiler.cpp.adjacent_axes import find_adjacent_axes, merge_adjacent_axes
from kernelwright.compiler.cpp.passes import ARG_REDUCTIONS
from kernelwright.compiler.regions.region import Axis, Region, Scan
from kernelwright.core.record import Record
from kernelwright.core.units import DTYPE_BYTES

MIN_PARALLEL_ROWS = 16
"""Fewer rows than this do not keep the threads busy: then a row is cut into parts."""
MIN_PARALLEL_TASKS = 4
NUM_SPLITS = 64
NONTEMPORAL_BYTES = 32 * 1024 * 1024
"""A result of this size will not be in a cache when it is read. Epyc 9004: relu(x + y) of 64 MB 9.0 ms, past the caches
7.0 ms."""
MAX_GATHER_RATIO = 64
"""Along an axis where a smaller share of memory lies together nothing is won: all else is gathered."""
LATENCY_HIDING_LANES = 64
"""So many lanes beside each other that no addition waits for the last."""
LONG_ROW_ELEMENTS = 1024
"""Elements of a row from which on a column of vectors along it leaves the nearest caches."""
MAX_SPLIT_LANES = 320
"""What each part accumulates of each lane stands on the stack."""
MIN_PARALLEL_ELEMENTS = 1 << 14
"""Elements that take longer than threads take to start and to meet: some microseconds where nothing else runs."""
MIN_TASK_ELEMENTS = 4096
"""Elements that a thread takes at a time, where rows are short."""


class CppConfig(Record, frozen=True, kw_only=True):
    """How a region is run: the axis of the vectors, whether on all threads, into how many parts a row is cut, whether
    results are written past the caches. Where `loop_interchange`, vectors run along an outer axis and one element of
    the row comes after the other; with `inner_vector_axis`, an axis of the row, along both: `neighbours`."""

    vector_axis: str
    inner_vector_axis: str = ""
    loop_interchange: bool = False
    parallel: bool = True
    num_splits: int = 1
    nontemporal_stores: bool = False


def generate_configs(region: Region) -> list[CppConfig]:
    """The space of one region, the likeliest first; nothing for a single element."""
    if (axes := find_adjacent_axes(region)) and axes[1].size < LATENCY_HIDING_LANES:
        return _adjacent_axis_configs(region, *axes)
    axes, threaded = vector_axes(region), _parallel_options(region)
    found = [CppConfig(vector_axis=axis, parallel=threads) for axis in axes[:2] for threads in threaded]
    if axes and _can_interchange(region, axes[0]):
        found.insert(0, CppConfig(vector_axis=axes[0], loop_interchange=True))
    if axes and _can_split(region, axes[0]):
        found.insert(
            0, CppConfig(vector_axis=axes[0], num_splits=NUM_SPLITS, loop_interchange=_can_interchange(region, axes[0]))
        )
    if axes and _exceeds_caches(region):
        found.insert(0, CppConfig(vector_axis=axes[0], nontemporal_stores=True))
    return found


def _adjacent_axis_configs(region: Region, outer: Axis, inner: Axis) -> list[CppConfig]:
    """Vectors along an outer axis and one of the row, where those are one run through memory."""
    chunk, tasks = plan_lane_tasks(merge_adjacent_axes(region, outer, inner), outer.name, inner.size)
    threaded = _parallel_options(region)
    found = [
        CppConfig(vector_axis=outer.name, inner_vector_axis=inner.name, loop_interchange=True, parallel=threads)
        for threads in threaded
    ]
    if region.row_size // inner.size >= NUM_SPLITS and chunk <= MAX_SPLIT_LANES:
        found.insert(
            0 if tasks < MIN_PARALLEL_TASKS else 1,
            msgspec.structs.replace(found[0], parallel=True, num_splits=NUM_SPLITS),
        )
    return [msgspec.structs.replace(found[0], nontemporal_stores=True), *found] if _exceeds_caches(region) else found


def _exceeds_caches(region: Region) -> bool:
    """Whether a result is so large that it will not be in a cache when it is read."""
    return any(prod(store.shape) * DTYPE_BYTES[store.dtype] >= NONTEMPORAL_BYTES for store in region.stores)


def _parallel_options(region: Region) -> tuple[bool, bool]:
    """On all threads and on one, the likelier first."""
    return (True, False) if region.num_rows * region.row_size >= MIN_PARALLEL_ELEMENTS else (False, True)


def vector_axes(region: Region) -> list[str]:
    """Axes along which memory lies together, by the bytes that do; the longest where there is none."""
    weight: dict[str, float] = {}
    for place in (*region.loads, *region.stores):
        for axis, stride in place.strides.items():
            if stride == 1:
                weight[axis] = weight.get(axis, 0.0) + prod(
                    a.size for a in (*region.outer, *region.row) if place.strides.get(a.name)
                )
    found = sorted(weight, key=lambda axis: -weight[axis])
    found = [axis for axis in found if weight[axis] * MAX_GATHER_RATIO >= weight[found[0]]]
    if not found:
        found = [axis.name for axis in sorted((*region.outer, *region.row), key=lambda axis: -axis.size)[:1]]
    if not _needs_row_order(region):
        return found
    last = region.row[-1].name
    fit = [axis for axis in found if axis == last or axis not in {a.name for a in region.row}]
    return fit if last in fit else [*fit, last]


def plan_lane_tasks(region: Region, vector_axis: str, lanes_per_row: int = 1) -> tuple[int, int]:
    """(chunk, tasks) where every lane is a row, or so many `lanes_per_row` are: lanes that a task takes, and how many
    tasks there are."""
    sizes = {axis.name: axis.size for axis in region.outer}
    each, least = max(1, -(-MIN_TASK_ELEMENTS // max(region.row_size, 1))), lcm(64, lanes_per_row)
    chunk = min(sizes[vector_axis], -(-each // least) * least)
    return chunk, region.num_rows // sizes[vector_axis] * -(-sizes[vector_axis] // chunk)


def _can_interchange(region: Region, lanes: str) -> bool:
    """Whether elements of long rows can come one after another, for many lanes each."""
    sizes = {axis.name: axis.size for axis in region.outer}
    return (
        not _needs_row_order(region)
        and sizes.get(lanes, 0) >= LATENCY_HIDING_LANES
        and region.row_size >= LONG_ROW_ELEMENTS
    )


def _needs_row_order(region: Region) -> bool:
    """Whether the elements of a row have to come one after another."""
    return any(isinstance(step, Scan) or step.op in ARG_REDUCTIONS for step in region.steps)


def _can_split(region: Region, lanes: str) -> bool:
    if any(isinstance(step, Scan) for step in region.steps):
        return False
    if lanes in {axis.name for axis in region.row}:
        return region.num_rows < MIN_PARALLEL_ROWS
    ordered, longest = _needs_row_order(region), max((axis.size for axis in region.row), default=0)
    return (
        not ordered
        and longest >= NUM_SPLITS
        and region.row_size >= MIN_TASK_ELEMENTS
        and plan_lane_tasks(region, lanes)[1] < MIN_PARALLEL_ROWS
    )
