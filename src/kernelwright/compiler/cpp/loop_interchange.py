"""Vectors along an outer axis inside the loop over the row, so that memory is read in order: each pass covers all lanes
of a task before the next pass, with one accumulator per lane in memory. A row can therefore span several lanes."""

from __future__ import annotations

from kernelwright.compiler.cpp.body import split_bounds
from kernelwright.compiler.cpp.columns import OuterVectorBody, PassTarget
from kernelwright.compiler.cpp.configs import CppConfig
from kernelwright.compiler.cpp.op_templates import COMPUTE_CTYPES, Scope
from kernelwright.compiler.cpp.passes import target_value
from kernelwright.compiler.regions.region import Reduction, Region, Store


class InterchangedBody(OuterVectorBody):
    """A function whose vectors run along an outer axis inside the loop over the row."""

    def __init__(self, region: Region, config: CppConfig, lanes_per_row: int = 1) -> None:
        super().__init__(region, config, lanes_per_row)
        self._stored_row_values: set[str] = set()
        """Values of the whole row that are in memory, one per lane."""

    def emit_task(self, scope: Scope, chunk: int) -> None:
        """Emit all work on the lanes of a task, at most `chunk` of them."""
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
        types = {
            target.value: f"LaneArrayAccumulator<{self.reduction_struct(target)}, {self.accumulator_ctype(target)}, "
            f"{chunk}>"
            for target in targets
            if isinstance(target, Reduction)
        }
        for value, kind in types.items():
            scope.add(f"{kind} {value}_lanes;")
        if self.config.num_splits == 1:
            self._emit_loop_nest(scope, targets, values, {value: f"{value}_lanes" for value in types})
        else:
            self._emit_split_nests(scope, targets, values, types)
        for value in types:
            scope.add(f"{value}_lanes.finish({self.lanes_per_row});")

    def _store_row_values(self, scope: Scope, values: list[str], chunk: int) -> None:
        """Emit values of the whole row and store them in memory, one per lane."""
        for value in values:
            scope.add(
                f"{COMPUTE_CTYPES[self.value_codegen.compute_dtype(value)]} {value}_rows[{chunk}] "
                "__attribute__((aligned(64)));"
            )
        if values:
            inside = self._open_row_value_loop(scope, values)
            for value in values:
                inside.add(f"store({value}_rows + {self._lane_index()}, {value});")
            scope.add("});")
        self._stored_row_values.update(values)

    def _emit_split_nests(
        self, scope: Scope, targets: list[PassTarget], values: list[str], types: dict[str, str]
    ) -> None:
        """Emit one loop nest per split of the row, each on its own thread; the results are merged in order."""
        num_splits, split_axis = self.config.num_splits, max(self.region.row, key=lambda axis: axis.size)
        for value, kind in types.items():
            scope.add(f"{kind} {value}_splits[{num_splits}];")
        self.emit_parallel_pragma(scope)
        scope.add(f"for (int64_t split = 0; split < {num_splits}; ++split) {{")
        inside = scope.nested_scope()
        inside.add(split_bounds(split_axis.size, num_splits))
        accumulators = {value: f"{value}_splits[split]" for value in types}
        self._emit_loop_nest(inside, targets, values, accumulators, split_axis.name)
        scope.add("}")
        for value in types:
            scope.add(f"for (auto& split : {value}_splits) {value}_lanes.merge(split);")

    def _emit_loop_nest(
        self,
        scope: Scope,
        targets: list[PassTarget],
        values: list[str],
        accumulators: dict[str, str],
        split_axis: str = "",
    ) -> None:
        """Emit the loops over the row and the lanes; over [split_begin, split_end) of `split_axis`."""
        inside = scope
        for name in self.row:
            bounds = ("split_begin", "split_end") if name == split_axis else ()
            inside.add(self.row_loop_head(name, *bounds) + " {")
            inside = inside.nested_scope()
        body = self.open_lane_loop(inside)
        for value in values:
            body.add(f"const auto {value} = load<V>({value}_rows + {self._lane_index()});")
        for entry in self.passes.dependencies([target_value(target) for target in targets], True, values):
            self.value_codegen.emit_value(body, entry)
        for target in targets:
            if isinstance(target, Store):
                self.value_codegen.emit_store(body, target)
            else:
                operand = self.value_codegen.operand_expr(body, target.arg, target.dtype)
                body.add(f"{accumulators[target.value]}.template update<V>({self._lane_index()}, {operand});")
        inside.add("});")
        for accumulator in accumulators.values():
            inside.add(f"{accumulator}.next();")
        for depth in reversed(range(len(self.row))):
            Scope(self.lines, scope.depth + depth, is_vector=False).add("}")

    def _lane_index(self) -> str:
        return f"{self.vector_axis} - lane_begin"

    def _row_values_used(self, targets: list[PassTarget]) -> list[str]:
        """The values of the whole row that differ between lanes and that a pass reads per element."""
        wanted = [target_value(target) for target in targets]
        sources = [arg for entry in self.passes.dependencies(wanted, True) for arg in self.passes.arguments(entry)]
        row_values = [value for value in (*sources, *wanted) if not self.passes.varies_along_row(value)]
        return [value for value in dict.fromkeys(row_values) if value not in self.value_codegen.scalar_values]

    def _open_row_value_loop(self, scope: Scope, values: list[str]) -> Scope:
        """Open a loop over the lanes in which some values of the whole row are available."""
        inside = self.open_lane_loop(scope)
        self.declared = set(self.value_codegen.scalar_values)
        entries = self.passes.row_value_dependencies(values)
        used = {value for entry in entries for value in self.passes.arguments(entry)} | {*values}
        for step in self.region.steps:
            if isinstance(step, Reduction) and step.value in used:
                v = f"Rebind<V, {COMPUTE_CTYPES[step.dtype]}>"
                total = f"load<V>({step.value}_lanes.totals + {self._lane_index()})"
                inside.add(f"const auto {step.value} = convert<{v}>({total});")
        self.emit_entries(inside, entries)
        return inside
