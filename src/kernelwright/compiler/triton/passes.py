"""The passes over a row: in which pass each value is available, and what each pass has to compute."""

from __future__ import annotations

from collections.abc import Iterable

from kernelwright.compiler.regions.exponentials import EntryByValue
from kernelwright.compiler.regions.gathers import find_gathers
from kernelwright.compiler.regions.region import Load, Reduction, Region, Scan, Step, Store
from kernelwright.compiler.triton.reduction_grouping import plan_reductions
from kernelwright.compiler.triton.reductions import AnyReduction
from kernelwright.compiler.triton.tile import Tile

Entry = Load | Step | Reduction | Scan


class TilePasses:
    """The passes in which a tile computes a region; with `single_tile` there is only one."""

    def __init__(self, region: Region, tile: Tile, single_tile: bool) -> None:
        self.region, self.tile, self.single_tile = region, tile, single_tile
        self.gathers = find_gathers(region)
        self.reductions = plan_reductions(region, fuse_pairs=not single_tile, excluded=self.gathers)
        self.by_value: EntryByValue = {load.value: load for load in region.loads}
        self.by_value |= {step.value: step for step in region.steps}
        self.reduction_of = {value: reduction for reduction in self.reductions for value in reduction.values}
        self.pass_of = self._assign_passes()

    def _assign_passes(self) -> dict[str, int]:
        """The pass in which each value is available; both reductions of a pair come from the same pass."""
        pass_of = {load.value: 0 for load in self.region.loads}
        for step in self.region.steps:
            if gather := self.gathers.get(step.value):
                pass_of[step.value] = pass_of[gather.position]
            elif isinstance(step, Reduction):
                pass_of[step.value] = pass_of[self.reduction_of[step.value].operand.value] + 1
            elif isinstance(step, Scan):
                pass_of[step.value] = pass_of[step.arg]
            else:
                pass_of[step.value] = max((pass_of.get(value, 0) for value in step.values), default=0)
        return pass_of

    def varies_along_row(self, value: str) -> bool:
        """Whether a value differs between the elements of a row."""
        return bool(self.region.axes_of[value] & self.tile.inner_axis_names)

    def is_stored_per_element(self, store: Store) -> bool:
        """Whether a store writes each element of a row."""
        return (
            self.tile.is_flat
            or self.varies_along_row(store.value)
            or bool(self.tile.inner_axis_names & store.strides.keys())
        )

    def reductions_at(self, pass_index: int) -> list[AnyReduction]:
        """The reductions that a pass accumulates."""
        return [reduction for reduction in self.reductions if self.pass_of[reduction.operand.value] == pass_index]

    def stores_at(self, pass_index: int, per_element: bool) -> list[Store]:
        """The stores of values that a pass makes available, per element or per row."""
        return [
            store
            for store in self.region.stores
            if self.pass_of[store.value] == pass_index and self.is_stored_per_element(store) == per_element
        ]

    def required_at(self, pass_index: int) -> list[str]:
        """The values that a pass reduces or stores per element."""
        operands = [reduction.operand.value for reduction in self.reductions_at(pass_index)]
        return operands + [store.value for store in self.stores_at(pass_index, True)]

    def dependencies(self, wanted: Iterable[str], computed: Iterable[str]) -> set[str]:
        """The values that have to be computed for some values; reductions end the search unless in a single tile.

        Args:
            wanted: the values.
            computed: values that are available already.
        """
        todo, reached, available = list(wanted), set(), set(computed)
        while todo:
            value = todo.pop()
            if value in reached or value in available:
                continue
            reached.add(value)
            entry = self.by_value[value]
            if gather := self.gathers.get(value):
                todo.append(gather.position)
            elif isinstance(entry, Step) and entry.op != "index":
                todo += [arg for arg in entry.values if not self.is_constant(arg)]
            elif isinstance(entry, Scan) or (isinstance(entry, Reduction) and self.single_tile):
                todo.append(entry.arg)
        return reached

    def sort_entries(self, values: set[str]) -> list[Load | Step | Reduction | Scan]:
        """The entries of some values in program order."""
        return [entry for entry in (*self.region.loads, *self.region.steps) if entry.value in values]

    def is_constant(self, value: str) -> bool:
        """Whether a value is a constant of the program."""
        entry = self.by_value[value]
        return isinstance(entry, Step) and entry.op == "constant"

    @property
    def last_pass(self) -> int:
        """The last pass that runs along the row."""
        passes = [self.pass_of[reduction.operand.value] for reduction in self.reductions]
        passes += [self.pass_of[store.value] for store in self.region.stores if self.is_stored_per_element(store)]
        return max(passes, default=0)
