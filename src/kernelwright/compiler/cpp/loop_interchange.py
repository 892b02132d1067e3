"""Vectors along an outer axis inside of the loop over the row, so that memory is read in its order: each pass runs over
all lanes of a task before the next, and accumulates into memory, lane by lane. So a row can be several lanes too."""

from __future__ import annotations

from kernelwright.compiler.cpp.columns import OuterVectorBody, PassTarget
from kernelwright.compiler.cpp.configs import CppConfig
from kernelwright.compiler.cpp.op_templates import COMPUTE_CTYPES, Scope
from kernelwright.compiler.cpp.passes import target_value
from kernelwright.compiler.regions.region import Reduction, Region, Store


class InterchangedBody(OuterVectorBody):
    """A function whose vectors run along an outer axis, one element of the row after the other."""

    def __init__(self, region: Region, choice: CppConfig, lanes_per_row: int = 1) -> None:
        super().__init__(region, choice, lanes_per_row)
        self._stored_row_values: set[str] = set()
        """Values of whole rows that stand in memory, one for each lane."""

    def emit_task(self, scope: Scope, chunk: int) -> None:
        for at in range(self.passes.num_passes):
            if targets := self.passes.targets(at):
                self._emit_whole_pass(scope, targets, chunk)
        if stored := [store.value for store in self.region.stores if not self.passes.is_stored_per_element(store)]:
            inside = self._open_row_value_loop(scope, stored)
            self.emit_row_stores(inside)
            scope.add("});")

    def _emit_whole_pass(self, scope: Scope, targets: list[PassTarget], chunk: int) -> None:
        values = self._row_values_used(targets)
        self._store_row_values(scope, [value for value in values if value not in self._stored_row_values], chunk)
        folds = [target for target in targets if isinstance(target, Reduction)]
        kinds = {f.value: f"Lanes<{self.reduction_struct(f)}, {self.accumulator_ctype(f)}, {chunk}>" for f in folds}
        for value, kind in kinds.items():
            scope.add(f"{kind} {value}_lanes;")
        if self.config.num_splits == 1:
            self._emit_loop_nest(scope, targets, values, {value: f"{value}_lanes" for value in kinds})
        else:
            self._emit_split_nests(scope, targets, values, kinds)
        for value in kinds:
            scope.add(f"{value}_lanes.finish({self.lanes_per_row});")

    def _store_row_values(self, scope: Scope, values: list[str], chunk: int) -> None:
        """Writes down values of whole rows."""
        for value in values:
            scope.add(
                f"{COMPUTE_CTYPES[self.value_codegen.compute_dtype(value)]} {value}_all[{chunk}] "
                "__attribute__((aligned(64)));"
            )
        if values:
            inside = self._open_row_value_loop(scope, values)
            for value in values:
                inside.add(f"store({value}_all + {self._lane_index()}, {value});")
            scope.add("});")
        self._stored_row_values.update(values)

    def _emit_split_nests(
        self, scope: Scope, targets: list[PassTarget], values: list[str], kinds: dict[str, str]
    ) -> None:
        """The row cut into parts, each with a thread; their results are put together in order."""
        parts, cut = self.config.num_splits, max(self.region.row, key=lambda axis: axis.size)
        for value, kind in kinds.items():
            scope.add(f"{kind} {value}_parts[{parts}];")
        self.emit_parallel_pragma(scope)
        scope.add(f"for (int64_t part = 0; part < {parts}; ++part) {{")
        inside = scope.nested_scope()
        inside.add(f"const int64_t first = {cut.size} * part / {parts}, last = {cut.size} * (part + 1) / {parts};")
        self._emit_loop_nest(inside, targets, values, {value: f"{value}_parts[part]" for value in kinds}, cut.name)
        scope.add("}")
        for value in kinds:
            scope.add(f"for (auto& part : {value}_parts) {value}_lanes.merge(part);")

    def _emit_loop_nest(
        self, scope: Scope, targets: list[PassTarget], values: list[str], folds: dict[str, str], cut: str = ""
    ) -> None:
        """The loops over the row and the lanes; over [first, last) of the axis `cut`."""
        inside = scope
        for name in self.row:
            inside.add(self.row_loop_head(name, *(("first", "last") if name == cut else ())) + " {")
            inside = inside.nested_scope()
        body = self.open_lane_loop(inside)
        for value in values:
            body.add(f"const auto {value} = load<V>({value}_all + {self._lane_index()});")
        for entry in self.passes.dependencies([target_value(target) for target in targets], True, values):
            self.value_codegen.emit_value(body, entry)
        for target in targets:
            if isinstance(target, Store):
                self.value_codegen.emit_store(body, target)
            else:
                taken = self.value_codegen.operand_expr(body, target.arg, target.dtype)
                body.add(f"{folds[target.value]}.template take<V>({self._lane_index()}, {taken});")
        inside.add("});")
        for fold in folds.values():
            inside.add(f"{fold}.next();")
        for depth in reversed(range(len(self.row))):
            Scope(self.lines, scope.depth + depth, is_vector=False).add("}")

    def _lane_index(self) -> str:
        return f"{self.vector_axis} - low"

    def _row_values_used(self, targets: list[PassTarget]) -> list[str]:
        """The values of whole rows that differ from lane to lane and that a pass uses element by element."""
        wanted = [target_value(target) for target in targets]
        behind = [arg for entry in self.passes.dependencies(wanted, True) for arg in self.passes.arguments(entry)]
        outer = [value for value in (*behind, *wanted) if not self.passes.varies_along_row(value)]
        return [value for value in dict.fromkeys(outer) if value not in self.value_codegen.scalar_values]

    def _open_row_value_loop(self, scope: Scope, values: list[str]) -> Scope:
        """A loop over the lanes in which some values of whole rows are at hand."""
        inside = self.open_lane_loop(scope)
        self.declared = set(self.value_codegen.scalar_values)
        needed = self.passes.row_value_dependencies(values)
        found = {value for entry in needed for value in self.passes.arguments(entry)} | {*values}
        for step in self.region.steps:
            if isinstance(step, Reduction) and step.value in found:
                v = f"Like<V, {COMPUTE_CTYPES[step.dtype]}>"
                inside.add(
                    f"const auto {step.value} = as<{v}>(load<V>({step.value}_lanes.found + {self._lane_index()}));"
                )
        self.emit_entries(inside, needed)
        return inside
