"""The passes over a row: the targets and dependencies of each, common to all C++ loop structures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kernelwright.compiler.regions.region import SPECIAL_FUNCTIONS, Load, Reduction, Region, Scan, Step, Store
from kernelwright.core.units import DTYPE_BYTES

MAX_CACHED_ROW_BYTES = 512 * 1024
"""Expensive values of a row are cached in memory while they fit the L1 and L2 caches."""
ARG_REDUCTIONS = ("argmax", "argmin")


class OneHotSum(NamedTuple):
    """A sum over the row of which only the term at index `position` is not zero."""

    result: str
    position: str
    value: str


class Passes:
    """The passes of one region, counted from 0."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.row = [axis.name for axis in region.row]
        self.sizes = {axis.name: axis.size for axis in (*region.outer, *region.row)}
        self.by_value: dict[str, Load | Step | Reduction | Scan] = {load.value: load for load in region.loads}
        self.by_value |= {step.value: step for step in region.steps}
        self.num_passes = max(region.pass_of.values(), default=0) + 1
        self.is_reverse = any(isinstance(step, Scan) and step.reverse for step in region.steps)

    def varies_along_row(self, value: str) -> bool:
        """Whether a value differs between the elements of a row."""
        return bool(self.region.axes_of[value] & set(self.row))

    def is_stored_per_element(self, store: Store) -> bool:
        """Whether a store writes each element of a row, even if the value is the same for all of them."""
        return self.varies_along_row(store.value) or bool(store.strides.keys() & set(self.row))

    def targets(self, pass_index: int) -> list[Reduction | Store]:
        """The reductions and the per-element stores that a pass computes."""
        pass_of = self.region.pass_of
        reductions: list[Reduction | Store] = [
            step for step in self.region.steps if isinstance(step, Reduction) and pass_of[step.arg] == pass_index
        ]
        stores = [
            store
            for store in self.region.stores
            if pass_of[store.value] == pass_index and self.is_stored_per_element(store)
        ]
        return reductions + stores

    def dependencies(self, wanted: Iterable[str], inner: bool, stop: Iterable[str] = ()) -> list[Load | Step | Scan]:
        """The entries that some values depend on, in program order.

        Args:
            wanted: the values.
            inner: follow only values that vary along the row; else only those that do not.
            stop: values that are available already.
        """
        todo, reached, available = list(wanted), set(), set(stop)
        while todo:
            value = todo.pop()
            source = self.by_value[value]
            if (
                value in reached
                or value in available
                or isinstance(source, Reduction)
                or self.varies_along_row(value) != inner
            ):
                continue
            reached.add(value)
            todo += self.arguments(source)
        order = [*self.region.loads, *(s for s in self.region.steps if not isinstance(s, Reduction))]
        return [entry for entry in order if entry.value in reached]

    def row_value_dependencies(self, wanted: Iterable[str], stop: Iterable[str] = ()) -> list[Load | Step | Scan]:
        """The entries of the whole row that some values depend on, in program order."""
        wanted = list(wanted)
        sources = [arg for entry in self.dependencies(wanted, True, stop) for arg in self.arguments(entry)]
        return self.dependencies([value for value in (*sources, *wanted) if not self.varies_along_row(value)], False)

    def select_cached_values(self) -> list[str]:
        """Expensive values that a later pass reads; empty if they do not fit the caches."""
        pass_of, values = self.region.pass_of, []
        for at in range(1, self.num_passes):
            for entry in self.dependencies([target_value(target) for target in self.targets(at)], True):
                is_expensive = isinstance(entry, Scan) or (
                    isinstance(entry, Step) and entry.op in (*SPECIAL_FUNCTIONS, "exp_scaled")
                )
                if is_expensive and pass_of[entry.value] < at:
                    values.append(entry.value)
        values = list(dict.fromkeys(values))
        element_bytes = sum(DTYPE_BYTES[self.by_value[value].dtype] for value in values)
        return values if self.region.row_size * element_bytes <= MAX_CACHED_ROW_BYTES else []

    def match_one_hot_sum(self, total: Reduction | Store) -> OneHotSum | None:
        """Match `sum(where(index == position, value, 0))`."""
        if not isinstance(total, Reduction) or total.op != "sum" or len(self.row) != 1:
            return None
        match self.by_value[total.arg]:
            case Step(op="where", args=(str(condition), str(value), 0)):
                match self.by_value[condition]:
                    case Step(op="eq", args=(str(index), str(position))):
                        source = self.by_value[index]
                        if isinstance(source, Step) and source.op == "index" and source.args == (self.row[0],):
                            has_scan = any(isinstance(entry, Scan) for entry in self.dependencies([value], True))
                            is_one_hot = not has_scan and not self.varies_along_row(position)
                            return OneHotSum(total.value, position, value) if is_one_hot else None
        return None

    def arguments(self, entry: Load | Step | Reduction | Scan) -> list[str]:
        """The values that an entry is computed from."""
        if isinstance(entry, Step):
            return [] if entry.op == "index" else list(entry.values)
        return [] if isinstance(entry, Load) else [entry.arg]


def target_value(target: Reduction | Store) -> str:
    """The value that a pass computes for a target."""
    return target.arg if isinstance(target, Reduction) else target.value
