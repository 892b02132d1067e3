"""Rows whose innermost contiguous run continues in the next row, as the channels of a channels-last GroupNorm do from
group to group: vectors run along both, and the lanes of one row are combined after each pass."""

from __future__ import annotations

import msgspec

from kernelwright.compiler.cpp.passes import ARG_REDUCTIONS
from kernelwright.compiler.regions.region import Axis, Load, Reduction, Region, Scan, Step, Store


def find_adjacent_axes(region: Region) -> tuple[Axis, Axis] | None:
    """(outer axis, axis of the row) that are one run through memory of every tensor that has either; None where there
    are none, or where elements of a row have to come in their order."""
    if len(region.row) < 2 or not any(isinstance(step, Reduction) for step in region.steps):
        return None
    if any(isinstance(step, Scan) or step.op in ARG_REDUCTIONS for step in region.steps):
        return None
    counted = {step.args[0] for step in region.steps if isinstance(step, Step) and step.op == "index"}
    places = (*region.loads, *region.stores)
    for inner in region.row:
        for outer in region.outer:
            both = [(place.strides.get(outer.name, 0), place.strides.get(inner.name, 0)) for place in places]
            one_run = all(far == inner.size * near for far, near in both) and 1 in {near for _, near in both}
            if one_run and not counted & {outer.name, inner.name}:
                return outer, inner
    return None


def merge_adjacent_axes(region: Region, outer: Axis, inner: Axis) -> Region:
    """The same region with both axes as one outer axis, named as the outer was; its reductions are partial ones, over
    the elements of a row at one position of `inner`."""

    def strides(place: Load | Store) -> dict[str, int]:
        near = place.strides.get(inner.name, 0)
        kept = {name: stride for name, stride in place.strides.items() if name not in (outer.name, inner.name)}
        return kept | ({outer.name: near} if near else {})

    both = Axis(name=outer.name, size=outer.size * inner.size)
    return msgspec.structs.replace(
        region,
        outer=tuple(both if axis == outer else axis for axis in region.outer),
        row=tuple(axis for axis in region.row if axis != inner),
        loads=tuple(msgspec.structs.replace(load, strides=strides(load)) for load in region.loads),
        stores=tuple(msgspec.structs.replace(store, strides=strides(store)) for store in region.stores),
    )
