"""What each pass over the row is for, and what it needs: the same for every way of running a region on the CPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kernelwright.compiler.regions.region import SPECIAL_FUNCTIONS, Load, Reduction, Region, Scan, Step, Store
from kernelwright.core.units import DTYPE_BYTES

MAX_CACHED_ROW_BYTES = 512 * 1024
"""A row of values that are dear to compute again is kept while it fits into the nearer caches."""
ARG_REDUCTIONS = ("argmax", "argmin")


class OneHotSum(NamedTuple):
    """A sum over the row of which only the term at the position `position` counts."""

    result: str
    position: str
    value: str


class Passes:
    """The passes of one region, counted from 0; a value is inner if it differs from element to element of a row."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.row = [axis.name for axis in region.row]
        self.sizes = {axis.name: axis.size for axis in (*region.outer, *region.row)}
        self.by_value: dict[str, Load | Step | Reduction | Scan] = {load.value: load for load in region.loads}
        self.by_value |= {step.value: step for step in region.steps}
        self.num_passes = max(region.pass_of.values(), default=0) + 1
        self.is_reverse = any(isinstance(step, Scan) and step.reverse for step in region.steps)

    def varies_along_row(self, value: str) -> bool:
        return bool(self.region.axes_of[value] & set(self.row))

    def is_stored_per_element(self, store: Store) -> bool:
        """Whether it writes every element of a row, be it the same for all of them."""
        return self.varies_along_row(store.value) or bool(store.strides.keys() & set(self.row))

    def targets(self, at: int) -> list[Reduction | Store]:
        """What a pass is for: reductions, and values that are written element by element."""
        sweep = self.region.pass_of
        found: list[Reduction | Store] = [
            step for step in self.region.steps if isinstance(step, Reduction) and sweep[step.arg] == at
        ]
        return found + [s for s in self.region.stores if sweep[s.value] == at and self.is_stored_per_element(s)]

    def dependencies(self, wanted: Iterable[str], inner: bool, stop: Iterable[str] = ()) -> list[Load | Step | Scan]:
        """What is behind some values, in order, as far as it is of the same depth."""
        todo, found, held = list(wanted), set(), set(stop)
        while todo:
            value = todo.pop()
            source = self.by_value[value]
            if (
                value in found
                or value in held
                or isinstance(source, Reduction)
                or self.varies_along_row(value) != inner
            ):
                continue
            found.add(value)
            todo += self.arguments(source)
        order = [*self.region.loads, *(s for s in self.region.steps if not isinstance(s, Reduction))]
        return [entry for entry in order if entry.value in found]

    def row_value_dependencies(self, wanted: Iterable[str], stop: Iterable[str] = ()) -> list[Load | Step | Scan]:
        """What some values need of the whole row, in order."""
        wanted = list(wanted)
        behind = [arg for entry in self.dependencies(wanted, True, stop) for arg in self.arguments(entry)]
        return self.dependencies([value for value in (*behind, *wanted) if not self.varies_along_row(value)], False)

    def select_cached_values(self) -> list[str]:
        """Dear values that a later pass needs again."""
        sweep, found = self.region.pass_of, []
        for at in range(1, self.num_passes):
            for entry in self.dependencies([target_value(target) for target in self.targets(at)], True):
                dear = isinstance(entry, Scan) or (
                    isinstance(entry, Step) and entry.op in (*SPECIAL_FUNCTIONS, "exp_scaled")
                )
                if dear and sweep[entry.value] < at:
                    found.append(entry.value)
        found = list(dict.fromkeys(found))
        value_bytes = sum(DTYPE_BYTES[self.by_value[value].dtype] for value in found)
        return found if self.region.row_size * value_bytes <= MAX_CACHED_ROW_BYTES else []

    def match_one_hot_sum(self, total: Reduction | Store) -> OneHotSum | None:
        """The sum as a pick, if it is one: `sum(where(index == place, value, 0))`."""
        if not isinstance(total, Reduction) or total.op != "sum" or len(self.row) != 1:
            return None
        match self.by_value[total.arg]:
            case Step(op="where", args=(str(chosen), str(value), 0)):
                match self.by_value[chosen]:
                    case Step(op="eq", args=(str(index), str(place))):
                        counted = self.by_value[index]
                        alone = not any(isinstance(entry, Scan) for entry in self.dependencies([value], True))
                        if isinstance(counted, Step) and counted.op == "index" and counted.args == (self.row[0],):
                            return (
                                OneHotSum(total.value, place, value)
                                if alone and not self.varies_along_row(place)
                                else None
                            )
        return None

    def arguments(self, entry: Load | Step | Reduction | Scan) -> list[str]:
        """The values that an entry is computed from."""
        if isinstance(entry, Step):
            return [] if entry.op == "index" else list(entry.values)
        return [] if isinstance(entry, Load) else [entry.arg]


def target_value(target: Reduction | Store) -> str:
    return target.arg if isinstance(target, Reduction) else target.value
