"""Rows whose innermost contiguous run continues in the next row, such as the channels of a channels-last GroupNorm from
group to group: vectors run along both axes, and the lanes of one row are combined after each pass."""

from __future__ import annotations

import msgspec

from kernelwright.compiler.cpp.passes import ARG_REDUCTIONS
from kernelwright.compiler.regions.region import Axis, Load, Reduction, Region, Scan, Step, Store


def find_adjacent_axes(region: Region) -> tuple[Axis, Axis] | None:
    """Find an outer axis and an axis of the row that together are one contiguous run in every tensor that has either.

    Returns:
        (outer axis, axis of the row), or None if there is no such pair or the order of a row's elements matters.
    """
    if len(region.row) < 2 or not any(isinstance(step, Reduction) for step in region.steps):
        return None
    if any(isinstance(step, Scan) or step.op in ARG_REDUCTIONS for step in region.steps):
        return None
    index_axes = {step.args[0] for step in region.steps if isinstance(step, Step) and step.op == "index"}
    index_axes |= {axis for load in region.loads for index in load.windows for axis in index.steps}
    accesses = (*region.loads, *region.stores)
    for inner in region.row:
        for outer in region.outer:
            strides = [(access.strides.get(outer.name, 0), access.strides.get(inner.name, 0)) for access in accesses]
            is_contiguous = all(
                outer_stride == inner.size * inner_stride for outer_stride, inner_stride in strides
            ) and 1 in {inner_stride for _, inner_stride in strides}
            if is_contiguous and not index_axes & {outer.name, inner.name}:
                return outer, inner
    return None


def merge_adjacent_axes(region: Region, outer: Axis, inner: Axis) -> Region:
    """Merge both axes into one outer axis with the name of `outer`.

    The reductions of the result are partial: each covers the elements of a row at one position of `inner`.
    """

    def merge_strides(access: Load | Store) -> dict[str, int]:
        inner_stride = access.strides.get(inner.name, 0)
        others = {name: stride for name, stride in access.strides.items() if name not in (outer.name, inner.name)}
        return others | ({outer.name: inner_stride} if inner_stride else {})

    merged = Axis(name=outer.name, size=outer.size * inner.size)
    return msgspec.structs.replace(
        region,
        outer=tuple(merged if axis == outer else axis for axis in region.outer),
        row=tuple(axis for axis in region.row if axis != inner),
        loads=tuple(msgspec.structs.replace(load, strides=merge_strides(load)) for load in region.loads),
        stores=tuple(msgspec.structs.replace(store, strides=merge_strides(store)) for store in region.stores),
    )
