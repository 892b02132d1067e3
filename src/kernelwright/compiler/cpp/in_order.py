"""Vectors along an outer axis inside of the loop over the row, so that memory is read in its order: each pass runs over
all lanes of a task before the next, and accumulates into memory, lane by lane. So a row can be several lanes too."""

from __future__ import annotations

from kernelwright.compiler.cpp.columns import Columns, Target
from kernelwright.compiler.cpp.configs import CpuChoice
from kernelwright.compiler.cpp.op_templates import COMPUTED, Scope
from kernelwright.compiler.cpp.passes import argument
from kernelwright.compiler.regions.region import Reduction, Region, Store


class InOrder(Columns):
    """A function whose vectors run along an outer axis, one element of the row after the other."""

    def __init__(self, region: Region, choice: CpuChoice, together: int = 1) -> None:
        super().__init__(region, choice, together)
        self._written: set[str] = set()
        """Values of whole rows that stand in memory, one for each lane."""

    def task(self, scope: Scope, chunk: int) -> None:
        for at in range(self.passes.count):
            if targets := self.passes.targets(at):
                self._whole_pass(scope, targets, chunk)
        if stored := [store.value for store in self.region.stores if not self.passes.stored_inside(store)]:
            inside = self._row_values_in(scope, stored)
            self.store_outer(inside)
            scope.add("});")

    def _whole_pass(self, scope: Scope, targets: list[Target], chunk: int) -> None:
        values = self._used_inside(targets)
        self._write(scope, [value for value in values if value not in self._written], chunk)
        folds = [target for target in targets if isinstance(target, Reduction)]
        kinds = {f.value: f"Lanes<{self.operation(f)}, {self.computed(f)}, {chunk}>" for f in folds}
        for value, kind in kinds.items():
            scope.add(f"{kind} {value}_lanes;")
        if self.choice.parts == 1:
            self._run(scope, targets, values, {value: f"{value}_lanes" for value in kinds})
        else:
            self._run_parts(scope, targets, values, kinds)
        for value in kinds:
            scope.add(f"{value}_lanes.finish({self.together});")

    def _write(self, scope: Scope, values: list[str], chunk: int) -> None:
        """Writes down values of whole rows."""
        for value in values:
            scope.add(f"{COMPUTED[self.forms.dtype(value)]} {value}_all[{chunk}] __attribute__((aligned(64)));")
        if values:
            inside = self._row_values_in(scope, values)
            for value in values:
                inside.add(f"store({value}_all + {self._lane()}, {value});")
            scope.add("});")
        self._written.update(values)

    def _run_parts(self, scope: Scope, targets: list[Target], values: list[str], kinds: dict[str, str]) -> None:
        """The row cut into parts, each with a thread; their results are put together in order."""
        parts, cut = self.choice.parts, max(self.region.row, key=lambda axis: axis.size)
        for value, kind in kinds.items():
            scope.add(f"{kind} {value}_parts[{parts}];")
        self.threads(scope)
        scope.add(f"for (int64_t part = 0; part < {parts}; ++part) {{")
        inside = scope.inside()
        inside.add(f"const int64_t first = {cut.size} * part / {parts}, last = {cut.size} * (part + 1) / {parts};")
        self._run(inside, targets, values, {value: f"{value}_parts[part]" for value in kinds}, cut.name)
        scope.add("}")
        for value in kinds:
            scope.add(f"for (auto& part : {value}_parts) {value}_lanes.merge(part);")

    def _run(
        self, scope: Scope, targets: list[Target], values: list[str], folds: dict[str, str], cut: str = ""
    ) -> None:
        """The loops over the row and the lanes; over [first, last) of the axis `cut`."""
        inside = scope
        for name in self.row:
            inside.add(self.row_loop(name, *(("first", "last") if name == cut else ())) + " {")
            inside = inside.inside()
        body = self.walk(inside)
        for value in values:
            body.add(f"const auto {value} = load<V>({value}_all + {self._lane()});")
        for entry in self.passes.needed([argument(target) for target in targets], True, values):
            self.forms.value(body, entry)
        for target in targets:
            if isinstance(target, Store):
                self.forms.store(body, target)
            else:
                taken = self.forms.operand(body, target.arg, target.dtype)
                body.add(f"{folds[target.value]}.template take<V>({self._lane()}, {taken});")
        inside.add("});")
        for fold in folds.values():
            inside.add(f"{fold}.next();")
        for depth in reversed(range(len(self.row))):
            Scope(self.lines, scope.depth + depth, wide=False).add("}")

    def _lane(self) -> str:
        return f"{self.lanes} - low"

    def _used_inside(self, targets: list[Target]) -> list[str]:
        """The values of whole rows that differ from lane to lane and that a pass uses element by element."""
        wanted = [argument(target) for target in targets]
        behind = [arg for entry in self.passes.needed(wanted, True) for arg in self.passes.arguments(entry)]
        outer = [value for value in (*behind, *wanted) if not self.passes.inner(value)]
        return [value for value in dict.fromkeys(outer) if value not in self.forms.narrow]

    def _row_values_in(self, scope: Scope, values: list[str]) -> Scope:
        """A loop over the lanes in which some values of whole rows are at hand."""
        inside = self.walk(scope)
        self.made = set(self.forms.narrow)
        needed = self.passes.outer_needed(values)
        found = {value for entry in needed for value in self.passes.arguments(entry)} | {*values}
        for step in self.region.steps:
            if isinstance(step, Reduction) and step.value in found:
                v = f"Like<V, {COMPUTED[step.dtype]}>"
                inside.add(f"const auto {step.value} = as<{v}>(load<V>({step.value}_lanes.found + {self._lane()}));")
        self.write_outer(inside, needed)
        return inside
