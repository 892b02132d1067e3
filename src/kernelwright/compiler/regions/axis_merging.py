"""Neighbouring axes that run through memory as one become one: longer vectors, fewer divisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from kernelwright.compiler.regions.region import Axis, Load, Region, Step, Store


def merge_axes(region: Region) -> Region:
    """The same region over as few axes as can be."""
    while pair := next(_mergeable_pairs(region), None):
        region = _merge_pair(region, *pair)
    return region


def _mergeable_pairs(region: Region) -> Iterator[tuple[Axis, Axis]]:
    counted = {step.args[0] for step in region.steps if isinstance(step, Step) and step.op == "index"}
    for axes in (region.outer, region.row):
        for left, right in pairwise(axes):
            if not counted & {left.name, right.name} and all(
                place.strides.get(left.name, 0) == right.size * place.strides.get(right.name, 0)
                for place in (*region.loads, *region.stores)
            ):
                yield left, right


def _merge_pair(region: Region, left: Axis, right: Axis) -> Region:
    both = Axis(name=left.name, size=left.size * right.size)

    def axes(given: Sequence[Axis]) -> tuple[Axis, ...]:
        return tuple(both if axis == left else axis for axis in given if axis != right)

    def strides(place: Load | Store) -> dict[str, int]:
        inner = place.strides.get(right.name, 0)
        kept = {name: stride for name, stride in place.strides.items() if name != right.name}
        return kept | ({left.name: inner} if left.name in kept or inner else {})

    return msgspec.structs.replace(
        region,
        outer=axes(region.outer),
        row=axes(region.row),
        loads=tuple(msgspec.structs.replace(load, strides=strides(load)) for load in region.loads),
        stores=tuple(msgspec.structs.replace(store, strides=strides(store)) for store in region.stores),
    )
