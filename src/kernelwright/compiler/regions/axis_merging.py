"""Adjacent axes that are contiguous in every load and store become one axis: longer vectors, fewer divisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from kernelwright.compiler.regions.region import Axis, Load, Region, Step, Store


def merge_axes(region: Region) -> Region:
    """Return the same region with as few axes as possible."""
    while pair := next(_mergeable_pairs(region), None):
        region = _merge_pair(region, *pair)
    return region


def _mergeable_pairs(region: Region) -> Iterator[tuple[Axis, Axis]]:
    indexed = {step.args[0] for step in region.steps if isinstance(step, Step) and step.op == "index"}
    indexed |= {axis for load in region.loads for index in load.windows for axis in index.steps}
    for axes in (region.outer, region.row):
        for left, right in pairwise(axes):
            if not indexed & {left.name, right.name} and all(
                access.strides.get(left.name, 0) == right.size * access.strides.get(right.name, 0)
                for access in (*region.loads, *region.stores)
            ):
                yield left, right


def _merge_pair(region: Region, left: Axis, right: Axis) -> Region:
    merged = Axis(name=left.name, size=left.size * right.size)

    def merge(axes: Sequence[Axis]) -> tuple[Axis, ...]:
        return tuple(merged if axis == left else axis for axis in axes if axis != right)

    def merged_strides(access: Load | Store) -> dict[str, int]:
        inner = access.strides.get(right.name, 0)
        strides = {name: stride for name, stride in access.strides.items() if name != right.name}
        return strides | ({left.name: inner} if left.name in strides or inner else {})

    return msgspec.structs.replace(
        region,
        outer=merge(region.outer),
        row=merge(region.row),
        loads=tuple(msgspec.structs.replace(load, strides=merged_strides(load)) for load in region.loads),
        stores=tuple(msgspec.structs.replace(store, strides=merged_strides(store)) for store in region.stores),
    )
