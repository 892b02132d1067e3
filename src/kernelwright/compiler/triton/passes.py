"""In which sweep over a row each value of a region can be had, and what a kernel needs for what it writes."""

from __future__ import annotations

from collections.abc import Iterable

from kernelwright.compiler.regions.exponentials import EntryByValue
from kernelwright.compiler.regions.gathers import find_gathers
from kernelwright.compiler.regions.region import Load, Reduction, Region, Scan, Step, Store
from kernelwright.compiler.triton.reductions import AnyReduction, plan_reductions
from kernelwright.compiler.triton.tile import Tile

Entry = Load | Step | Reduction | Scan


class TilePasses:
    """The order in which a region is computed by a tile; where the tile is `single_tile`, all in one."""

    def __init__(self, region: Region, tile: Tile, single_tile: bool) -> None:
        self.region, self.tile, self.single_tile = region, tile, single_tile
        self.gathers = find_gathers(region)
        self.reductions = plan_reductions(region, fuse_pairs=not single_tile, excluded=self.gathers)
        self.by_value: EntryByValue = {load.value: load for load in region.loads}
        self.by_value |= {step.value: step for step in region.steps}
        self.reduction_of = {value: fold for fold in self.reductions for value in fold.values}
        self.pass_of = self._assign_passes()

    def _assign_passes(self) -> dict[str, int]:
        """For each value the sweep in which it can be had; a pair of reductions comes out of one."""
        known = {load.value: 0 for load in self.region.loads}
        for step in self.region.steps:
            if pick := self.gathers.get(step.value):
                known[step.value] = known[pick.position]
            elif isinstance(step, Reduction):
                known[step.value] = known[self.reduction_of[step.value].operand.value] + 1
            elif isinstance(step, Scan):
                known[step.value] = known[step.arg]
            else:
                known[step.value] = max((known.get(value, 0) for value in step.values), default=0)
        return known

    def varies_along_row(self, value: str) -> bool:
        return bool(self.region.axes_of[value] & self.tile.inner_axis_names)

    def is_stored_per_element(self, store: Store) -> bool:
        """Whether a value is written element by element."""
        return (
            self.tile.is_flat
            or self.varies_along_row(store.value)
            or bool(self.tile.inner_axis_names & store.strides.keys())
        )

    def reductions_at(self, at: int) -> list[AnyReduction]:
        return [fold for fold in self.reductions if self.pass_of[fold.operand.value] == at]

    def stores_at(self, at: int, per_element: bool) -> list[Store]:
        return [
            store
            for store in self.region.stores
            if self.pass_of[store.value] == at and self.is_stored_per_element(store) == per_element
        ]

    def required_at(self, at: int) -> list[str]:
        return [fold.operand.value for fold in self.reductions_at(at)] + [s.value for s in self.stores_at(at, True)]

    def dependencies(self, wanted: Iterable[str], made: Iterable[str]) -> set[str]:
        """All that some values need and that is not there yet; a reduction that is not there is where it stops."""
        todo, found, there = list(wanted), set(), set(made)
        while todo:
            value = todo.pop()
            if value in found or value in there:
                continue
            found.add(value)
            entry = self.by_value[value]
            if pick := self.gathers.get(value):
                todo.append(pick.position)
            elif isinstance(entry, Step) and entry.op != "index":
                todo += [arg for arg in entry.values if not self.is_constant(arg)]
            elif isinstance(entry, Scan) or (isinstance(entry, Reduction) and self.single_tile):
                todo.append(entry.arg)
        return found

    def sort_entries(self, values: set[str]) -> list[Load | Step | Reduction | Scan]:
        return [entry for entry in (*self.region.loads, *self.region.steps) if entry.value in values]

    def is_constant(self, value: str) -> bool:
        entry = self.by_value[value]
        return isinstance(entry, Step) and entry.op == "constant"

    @property
    def last_pass(self) -> int:
        """The last sweep that runs along the row."""
        ends = [self.pass_of[fold.operand.value] for fold in self.reductions]
        ends += [self.pass_of[store.value] for store in self.region.stores if self.is_stored_per_element(store)]
        return max(ends, default=0)
