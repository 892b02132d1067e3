"""Gathers of one element per row are moved to the loads, before elementwise computation: the gathered value then needs
no further pass over the row after the reductions that it depends on."""

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
from kernelwright.core.record import Record


class Gather(Record, frozen=True, kw_only=True):
    """The element of `load` at the value `position` along the row; 0 if that is out of bounds."""

    load: Load
    position: str


def find_gathers(region: Region) -> dict[str, Gather]:
    """Return the one-hot sums over a row that gather a loaded element, by their value."""
    matcher = _GatherRewriter(region)
    matches = {step.value: matcher.match_gather(step) for step in region.steps}
    return {value: gather for value, gather in matches.items() if gather}


def hoist_gathers(region: Region) -> Region:
    """Return the same region with each one-hot sum of `where(mask, v, 0)` over the row, where v is elementwise,
    replaced by v of the gathered elements."""
    return _GatherRewriter(region).rewrite()


class _GatherRewriter:
    def __init__(self, region: Region) -> None:
        self._region = region
        self._by_value = {entry.value: entry for entry in (*region.loads, *region.steps)}
        self._row = {axis.name for axis in region.row}
        self._steps: list[Step | Reduction | Scan] = []
        self._gathered: dict[tuple[str, str], str] = {}
        self._replacements: dict[str, str] = {}
        """The gathered value that replaces each one-hot sum."""

    def rewrite(self) -> Region:
        for step in self._region.steps:
            match = self._match_one_hot_sum(step)
            if match and self._region.pass_of[match[1]] and self._is_elementwise(match[1]):
                self._replacements[step.value] = self._gather_value(*match)
            else:
                self._steps.append(self._rename_operands(step))
        stores = [msgspec.structs.replace(one, value=self._resolve(one.value)) for one in self._region.stores]
        live = required_values(self._steps, stores)
        steps = tuple(step for step in self._steps if step.value in live)
        return msgspec.structs.replace(self._region, steps=steps, stores=tuple(stores))

    def _resolve(self, value: str) -> str:
        return self._replacements.get(value, value)

    def _rename_operands(self, step: Step | Reduction | Scan) -> Step | Reduction | Scan:
        if not isinstance(step, Step):
            return msgspec.structs.replace(step, arg=self._resolve(step.arg))
        args = tuple(self._resolve(arg) if isinstance(arg, str) else arg for arg in step.args)
        return msgspec.structs.replace(step, args=args)

    def match_gather(self, step: Step | Reduction | Scan) -> Gather | None:
        """Match a gather of a loaded element at an integer position that is not a constant."""
        mask, load = map(self._by_value.get, self._match_one_hot_sum(step) or ("", ""))
        if not isinstance(mask, Step) or not isinstance(load, Load) or not self._varies_along_row(load.value):
            return None
        if load.windows:
            return None
        position = self._by_value[str(mask.args[1])]
        if isinstance(position, Step) and position.op == "constant":
            return None
        return Gather(load=load, position=position.value) if position.dtype in ("int32", "int64") else None

    def _match_one_hot_sum(self, step: Step | Reduction | Scan) -> tuple[str, str] | None:
        """(mask, value) of a one-hot sum."""
        if not isinstance(step, Reduction) or step.op != "sum":
            return None
        where = self._by_value[step.arg]
        if not isinstance(where, Step) or where.op != "where" or where.args[2] != 0:
            return None
        mask, value = where.args[:2]
        if not isinstance(mask, str) or not isinstance(value, str) or not self._is_one_hot(mask):
            return None
        return mask, value

    def _is_one_hot(self, mask: str) -> bool:
        """Whether a mask is true for at most one element of a row: its index equals a value of the row."""
        test = self._by_value[mask]
        if not isinstance(test, Step) or test.op != "eq" or not all(isinstance(arg, str) for arg in test.args):
            return False
        index, position = map(str, test.args)
        return not self._varies_along_row(position) and len(self._row) == 1 and self._is_row_index(index)

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

    def _gather_value(self, mask: str, value: str) -> str:
        """The name of the value at the gathered element."""
        if (mask, value) not in self._gathered:
            name, entry = f"{value}_at_{mask}", self._by_value[value]
            if isinstance(entry, Load):
                dtype = "float32" if entry.dtype in HALF_DTYPES else entry.dtype
                self._steps.append(Step(value=f"{name}_masked", op="where", args=(mask, value, 0), dtype=dtype))
                self._steps.append(Reduction(value=name, op="sum", arg=f"{name}_masked", dtype=dtype))
            else:
                assert isinstance(entry, Step)
                args: tuple[Operand, ...] = tuple(
                    self._gather_value(mask, arg) if isinstance(arg, str) and self._varies_along_row(arg) else arg
                    for arg in entry.args
                )
                self._steps.append(self._rename_operands(msgspec.structs.replace(entry, value=name, args=args)))
            self._gathered[mask, value] = name
        return self._gathered[mask, value]
