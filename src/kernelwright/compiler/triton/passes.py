"""In which sweep over a row each value of a region can be had, and what a kernel needs for what it writes."""

from __future__ import annotations

from collections.abc import Iterable

from kernelwright.compiler.regions.exponentials import Entries
from kernelwright.compiler.regions.gathers import picks
from kernelwright.compiler.regions.region import Load, Reduction, Region, Scan, Step, Store
from kernelwright.compiler.triton.reductions import AnyFold, folds_of
from kernelwright.compiler.triton.tile import Tile

Entry = Load | Step | Reduction | Scan


class Sweeps:
    """The order in which a region is computed by a tile; where the tile is `whole`, all in one."""

    def __init__(self, region: Region, tile: Tile, whole: bool) -> None:
        self.region, self.tile, self.whole = region, tile, whole
        self.picks = picks(region)
        self.folds = folds_of(region, paired=not whole, but=self.picks)
        self.by_value: Entries = {load.value: load for load in region.loads}
        self.by_value |= {step.value: step for step in region.steps}
        self.fold_of = {value: fold for fold in self.folds for value in fold.values}
        self.sweep = self._found()

    def _found(self) -> dict[str, int]:
        """For each value the sweep in which it can be had; a pair of reductions comes out of one."""
        known = {load.value: 0 for load in self.region.loads}
        for step in self.region.steps:
            if pick := self.picks.get(step.value):
                known[step.value] = known[pick.place]
            elif isinstance(step, Reduction):
                known[step.value] = known[self.fold_of[step.value].operand.value] + 1
            elif isinstance(step, Scan):
                known[step.value] = known[step.arg]
            else:
                known[step.value] = max((known.get(value, 0) for value in step.values), default=0)
        return known

    def inner(self, value: str) -> bool:
        return bool(self.region.axes_of[value] & self.tile.inner_names)

    def stored_inside(self, store: Store) -> bool:
        """Whether a value is written element by element."""
        return self.tile.flat or self.inner(store.value) or bool(self.tile.inner_names & store.strides.keys())

    def folds_at(self, at: int) -> list[AnyFold]:
        return [fold for fold in self.folds if self.sweep[fold.operand.value] == at]

    def stores_at(self, at: int, inside: bool) -> list[Store]:
        return [
            store
            for store in self.region.stores
            if self.sweep[store.value] == at and self.stored_inside(store) == inside
        ]

    def wanted(self, at: int) -> list[str]:
        return [fold.operand.value for fold in self.folds_at(at)] + [s.value for s in self.stores_at(at, True)]

    def behind(self, wanted: Iterable[str], made: Iterable[str]) -> set[str]:
        """All that some values need and that is not there yet; a reduction that is not there is where it stops."""
        todo, found, there = list(wanted), set(), set(made)
        while todo:
            value = todo.pop()
            if value in found or value in there:
                continue
            found.add(value)
            entry = self.by_value[value]
            if pick := self.picks.get(value):
                todo.append(pick.place)
            elif isinstance(entry, Step) and entry.op != "index":
                todo += [arg for arg in entry.values if not self.is_constant(arg)]
            elif isinstance(entry, Scan) or (isinstance(entry, Reduction) and self.whole):
                todo.append(entry.arg)
        return found

    def ordered(self, values: set[str]) -> list[Load | Step | Reduction | Scan]:
        return [entry for entry in (*self.region.loads, *self.region.steps) if entry.value in values]

    def is_constant(self, value: str) -> bool:
        entry = self.by_value[value]
        return isinstance(entry, Step) and entry.op == "constant"

    @property
    def last(self) -> int:
        """The last sweep that runs along the row."""
        ends = [self.sweep[fold.operand.value] for fold in self.folds]
        ends += [self.sweep[store.value] for store in self.region.stores if self.stored_inside(store)]
        return max(ends, default=0)
