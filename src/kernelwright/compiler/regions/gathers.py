"""One element out of each row is taken from what is loaded, and not from what is computed of all of them: then it
needs no sweep over the row after the reductions that its value depends on."""

from __future__ import annotations

import msgspec

from kernelwright.compiler.regions.region import (
    HALF_DTYPES,
    Load,
    Operand,
    Reduction,
    Region,
    Scan,
    Step,
    required_values,
)
from kernelwright.core.records import Record


class Gather(Record, frozen=True, kw_only=True):
    """The element of `load` whose position along the row is the value `position`; 0 where the row has none there."""

    load: Load
    position: str


def find_gathers(region: Region) -> dict[str, Gather]:
    """The sums over a row that are one element of what is loaded, by the value that they give."""
    looking = _GatherRewriter(region)
    found = {step.value: looking.match_gather(step) for step in region.steps}
    return {value: pick for value, pick in found.items() if pick}


def hoist_gathers(region: Region) -> Region:
    """The same region; a sum of `where(here, v, 0)` over the row is v of the picked elements, wherever v is made of
    element by element."""
    return _GatherRewriter(region).rewrite()


class _GatherRewriter:
    def __init__(self, region: Region) -> None:
        self._region = region
        self._by_value = {entry.value: entry for entry in (*region.loads, *region.steps)}
        self._row = {axis.name for axis in region.row}
        self._steps: list[Step | Reduction | Scan] = []
        self._gathered: dict[tuple[str, str], str] = {}
        self._replacements: dict[str, str] = {}
        """For what was a sum over a row the value that was picked in its stead."""

    def rewrite(self) -> Region:
        for step in self._region.steps:
            choice = self._match_one_hot_sum(step)
            if choice and self._region.pass_of[choice[1]] and self._is_elementwise(choice[1]):
                self._replacements[step.value] = self._gather_value(*choice)
            else:
                self._steps.append(self._rename_operands(step))
        stores = [msgspec.structs.replace(one, value=self._resolve(one.value)) for one in self._region.stores]
        kept = required_values(self._steps, stores)
        steps = tuple(step for step in self._steps if step.value in kept)
        return msgspec.structs.replace(self._region, steps=steps, stores=tuple(stores))

    def _resolve(self, value: str) -> str:
        return self._replacements.get(value, value)

    def _rename_operands(self, step: Step | Reduction | Scan) -> Step | Reduction | Scan:
        if not isinstance(step, Step):
            return msgspec.structs.replace(step, arg=self._resolve(step.arg))
        args = tuple(self._resolve(arg) if isinstance(arg, str) else arg for arg in step.args)
        return msgspec.structs.replace(step, args=args)

    def match_gather(self, step: Step | Reduction | Scan) -> Gather | None:
        """What is picked right from memory, at a whole number that is no constant."""
        here, load = map(self._by_value.get, self._match_one_hot_sum(step) or ("", ""))
        if not isinstance(here, Step) or not isinstance(load, Load) or not self._varies_along_row(load.value):
            return None
        place = self._by_value[str(here.args[1])]
        constant = isinstance(place, Step) and place.op == "constant"
        return None if constant or place.dtype not in ("int32", "int64") else Gather(load=load, position=place.value)

    def _match_one_hot_sum(self, step: Step | Reduction | Scan) -> tuple[str, str] | None:
        """(here, value) of a sum that is a pick."""
        if not isinstance(step, Reduction) or step.op != "sum":
            return None
        where = self._by_value[step.arg]
        if not isinstance(where, Step) or where.op != "where" or where.args[2] != 0:
            return None
        here, value = where.args[:2]
        if not isinstance(here, str) or not isinstance(value, str) or not self._is_one_hot(here):
            return None
        return here, value

    def _is_one_hot(self, here: str) -> bool:
        """Whether it is true for one element of a row at most: its position is some number."""
        test = self._by_value[here]
        if not isinstance(test, Step) or test.op != "eq" or not all(isinstance(arg, str) for arg in test.args):
            return False
        position, place = map(str, test.args)
        return not self._varies_along_row(place) and len(self._row) == 1 and self._is_row_index(position)

    def _is_row_index(self, value: str) -> bool:
        step = self._by_value[value]
        return isinstance(step, Step) and step.op == "index" and step.args[0] in self._row

    def _is_elementwise(self, value: str) -> bool:
        entry = self._by_value[value]
        if not self._varies_along_row(value) or isinstance(entry, Load):
            return True
        return isinstance(entry, Step) and entry.op != "index" and all(map(self._is_elementwise, entry.values))

    def _varies_along_row(self, value: str) -> bool:
        return bool(self._region.axes_of[value] & self._row)

    def _gather_value(self, here: str, value: str) -> str:
        """The name of the value at the picked element."""
        if (here, value) not in self._gathered:
            name, entry = f"{value}_at_{here}", self._by_value[value]
            if isinstance(entry, Load):
                dtype = "float32" if entry.dtype in HALF_DTYPES else entry.dtype
                self._steps.append(Step(value=f"{name}_only", op="where", args=(here, value, 0), dtype=dtype))
                self._steps.append(Reduction(value=name, op="sum", arg=f"{name}_only", dtype=dtype))
            else:
                assert isinstance(entry, Step)
                args: tuple[Operand, ...] = tuple(
                    self._gather_value(here, arg) if isinstance(arg, str) and self._varies_along_row(arg) else arg
                    for arg in entry.args
                )
                self._steps.append(self._rename_operands(msgspec.structs.replace(entry, value=name, args=args)))
            self._gathered[here, value] = name
        return self._gathered[here, value]
