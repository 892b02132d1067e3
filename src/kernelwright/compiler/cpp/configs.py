"""The search space of a region on the CPU."""

from __future__ import annotations

from math import lcm, prod

import msgspec

from kernelwright.compiler.cpp.adjacent_axes import find_adjacent_axes, merge_adjacent_axes
from kernelwright.compiler.cpp.passes import ARG_REDUCTIONS
from kernelwright.compiler.regions.region import Axis, Region, Scan
from kernelwright.core.record import Record
from kernelwright.core.units import DTYPE_BYTES

MIN_PARALLEL_ROWS = 16
"""Fewer rows than this do not keep the threads busy: each row is split."""
MIN_PARALLEL_TASKS = 4
NUM_SPLITS = 64
NONTEMPORAL_BYTES = 32 * 1024 * 1024
"""A result of this size is no longer in a cache when it is read. Epyc 9004: relu(x + y) of 64 MB takes 9.0 ms, with
non-temporal stores 7.0 ms."""
MAX_GATHER_RATIO = 64
"""Vectors along an axis pay off only if at least this fraction (1 / 64) of the bytes is contiguous along it: all other
tensors are gathered."""
LATENCY_HIDING_LANES = 64
"""This many adjacent lanes hide the latency of an addition."""
LONG_ROW_ELEMENTS = 1024
"""From this row length on, one column of vectors along a row no longer fits the L1 and L2 caches."""
MAX_SPLIT_LANES = 320
"""Lanes of a task at most: the accumulators of each split and lane are on the stack."""
MIN_PARALLEL_ELEMENTS = 1 << 14
"""Elements that take longer than starting and joining the threads: some microseconds on an idle machine."""
MIN_TASK_ELEMENTS = 4096
"""Elements of a thread's task where rows are short."""


class CppConfig(Record, frozen=True, kw_only=True):
    """How a region runs on the CPU.

    Attributes:
        vector_axis: the axis of the vectors.
        inner_vector_axis: an axis of the row; vectors run along it and `vector_axis` (see `adjacent_axes`). Needs
            `loop_interchange`.
        loop_interchange: vectors run along an outer axis inside the loop over the row.
        parallel: run on all threads.
        num_splits: splits of each row, one thread per split.
        nontemporal_stores: results bypass the caches.
    """

    vector_axis: str
    inner_vector_axis: str = ""
    loop_interchange: bool = False
    parallel: bool = True
    num_splits: int = 1
    nontemporal_stores: bool = False


def generate_configs(region: Region) -> list[CppConfig]:
    """The configs of a region, most promising first; empty for a single element."""
    if (axes := find_adjacent_axes(region)) and axes[1].size < LATENCY_HIDING_LANES:
        return _adjacent_axis_configs(region, *axes)
    axes, parallel_options = vector_axes(region), _parallel_options(region)
    configs = [CppConfig(vector_axis=axis, parallel=parallel) for axis in axes[:2] for parallel in parallel_options]
    if axes and _can_interchange(region, axes[0]):
        configs.insert(0, CppConfig(vector_axis=axes[0], loop_interchange=True))
    if axes and _can_split(region, axes[0]):
        configs.insert(
            0, CppConfig(vector_axis=axes[0], num_splits=NUM_SPLITS, loop_interchange=_can_interchange(region, axes[0]))
        )
    if axes and _exceeds_caches(region):
        configs.insert(0, CppConfig(vector_axis=axes[0], nontemporal_stores=True))
    return configs


def _adjacent_axis_configs(region: Region, outer: Axis, inner: Axis) -> list[CppConfig]:
    """Vectors along an outer axis and an axis of the row that are one contiguous run."""
    chunk, tasks = plan_lane_tasks(merge_adjacent_axes(region, outer, inner), outer.name, inner.size)
    configs = [
        CppConfig(vector_axis=outer.name, inner_vector_axis=inner.name, loop_interchange=True, parallel=parallel)
        for parallel in _parallel_options(region)
    ]
    if region.row_size // inner.size >= NUM_SPLITS and chunk <= MAX_SPLIT_LANES:
        configs.insert(
            0 if tasks < MIN_PARALLEL_TASKS else 1,
            msgspec.structs.replace(configs[0], parallel=True, num_splits=NUM_SPLITS),
        )
    if _exceeds_caches(region):
        return [msgspec.structs.replace(configs[0], nontemporal_stores=True), *configs]
    return configs


def _exceeds_caches(region: Region) -> bool:
    """Whether a result is so large that it is no longer in a cache when it is read."""
    return any(prod(store.shape) * DTYPE_BYTES[store.dtype] >= NONTEMPORAL_BYTES for store in region.stores)


def _parallel_options(region: Region) -> tuple[bool, bool]:
    """Values of `parallel`, the more promising first."""
    return (True, False) if region.num_rows * region.row_size >= MIN_PARALLEL_ELEMENTS else (False, True)


def vector_axes(region: Region) -> list[str]:
    """Axes along which tensors are contiguous, most elements first; the longest axis if there is none."""
    weight: dict[str, float] = {}
    for access in (*region.loads, *region.stores):
        for axis, stride in access.strides.items():
            if stride == 1:
                weight[axis] = weight.get(axis, 0.0) + prod(
                    a.size for a in (*region.outer, *region.row) if access.strides.get(a.name)
                )
    axes = sorted(weight, key=lambda axis: -weight[axis])
    axes = [axis for axis in axes if weight[axis] * MAX_GATHER_RATIO >= weight[axes[0]]]
    if not axes:
        axes = [axis.name for axis in sorted((*region.outer, *region.row), key=lambda axis: -axis.size)[:1]]
    if not _needs_row_order(region):
        return axes
    last = region.row[-1].name
    usable = [axis for axis in axes if axis == last or axis not in {a.name for a in region.row}]
    return usable if last in usable else [*usable, last]


def plan_lane_tasks(region: Region, vector_axis: str, lanes_per_row: int = 1) -> tuple[int, int]:
    """The tasks of a region whose vectors run along an outer axis.

    Returns:
        (lanes per task, number of tasks).
    """
    sizes = {axis.name: axis.size for axis in region.outer}
    lanes, granularity = max(1, -(-MIN_TASK_ELEMENTS // max(region.row_size, 1))), lcm(64, lanes_per_row)
    chunk = min(sizes[vector_axis], -(-lanes // granularity) * granularity)
    return chunk, region.num_rows // sizes[vector_axis] * -(-sizes[vector_axis] // chunk)


def _can_interchange(region: Region, vector_axis: str) -> bool:
    """Whether long rows can be processed element by element, for many lanes at once."""
    sizes = {axis.name: axis.size for axis in region.outer}
    return (
        not _needs_row_order(region)
        and sizes.get(vector_axis, 0) >= LATENCY_HIDING_LANES
        and region.row_size >= LONG_ROW_ELEMENTS
    )


def _needs_row_order(region: Region) -> bool:
    """Whether the elements of a row have to be processed in order."""
    return any(isinstance(step, Scan) or step.op in ARG_REDUCTIONS for step in region.steps)


def _can_split(region: Region, vector_axis: str) -> bool:
    if any(isinstance(step, Scan) for step in region.steps):
        return False
    if vector_axis in {axis.name for axis in region.row}:
        return region.num_rows < MIN_PARALLEL_ROWS
    longest = max((axis.size for axis in region.row), default=0)
    return (
        not _needs_row_order(region)
        and longest >= NUM_SPLITS
        and region.row_size >= MIN_TASK_ELEMENTS
        and plan_lane_tasks(region, vector_axis)[1] < MIN_PARALLEL_ROWS
    )
