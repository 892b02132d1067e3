"""Vectors along an outer axis: every lane is a row of its own, and a reduction is a plain loop. Regions without
reductions are run like this too."""

from __future__ import annotations

from kernelwright.compiler.cpp.body import KernelBody
from kernelwright.compiler.cpp.configs import CppConfig, plan_lane_tasks
from kernelwright.compiler.cpp.op_templates import COMPUTE_CTYPES, Scope
from kernelwright.compiler.cpp.passes import ARG_REDUCTIONS, target_value
from kernelwright.compiler.regions.region import Load, Reduction, Region, Step, Store

MIN_VECTOR_LANES = 16
"""Fewer lanes than this do not fill the vectors of every machine: there they are of that power of two."""


PassTarget = Reduction | Store


class OuterVectorBody(KernelBody):
    """A function whose vectors run along an outer axis; so many neighbouring lanes `lanes_per_row` are one row."""

    def __init__(self, region: Region, choice: CppConfig, lanes_per_row: int = 1) -> None:
        super().__init__(region, choice)
        self.lanes_per_row = lanes_per_row

    def generate(self) -> list[str]:
        outer = [axis.name for axis in self.region.outer if axis.name != self.vector_axis]
        size = self.sizes[self.vector_axis]
        chunk, tasks = plan_lane_tasks(self.region, self.vector_axis, self.lanes_per_row)
        chunks = -(-size // chunk)
        scope = Scope(self.lines, 1, is_vector=False)
        if self.config.num_splits == 1:
            self.emit_parallel_pragma(scope)
        scope.add(f"for (int64_t task = 0; task < {tasks}; ++task) {{")
        inside = scope.nested_scope()
        if outer:
            self.emit_outer_indices(inside, outer, f"(task / {chunks})" if chunks > 1 else "task")
        low = f"(task % {chunks}) * {chunk}" if chunks > 1 else "0"
        inside.add(f"const int64_t low = {low}, high = low + {chunk} < {size} ? low + {chunk} : {size};")
        self._emit_lane_invariants(inside)
        self.emit_task(inside, chunk)
        scope.add("}")
        return self.lines

    def _emit_lane_invariants(self, scope: Scope) -> None:
        """Writes down, once for a task, what depends neither on the lane nor on the row."""
        alone: set[str] = set()
        for entry in (*self.region.loads, *self.region.steps):
            same = self.vector_axis not in self.region.axes_of[entry.value] and not self.passes.varies_along_row(
                entry.value
            )
            if same and isinstance(entry, Load | Step) and alone.issuperset(self.passes.arguments(entry)):
                alone.add(entry.value)
        self.value_codegen.scalar_values = alone
        wanted = [target_value(target) for at in range(self.passes.num_passes) for target in self.passes.targets(at)]
        wanted += [store.value for store in self.region.stores]
        needed = [entry for entry in self.passes.row_value_dependencies(wanted) if entry.value in alone]
        self.emit_entries(scope, needed)

    def open_lane_loop(self, scope: Scope) -> Scope:
        """The loop over the lanes of a task; what stands inside of it."""
        size = self.sizes[self.vector_axis]
        narrow = f"<{1 << (size.bit_length() - 1)}>" if 1 < size < MIN_VECTOR_LANES else ""
        scope.add(f"walk{narrow}(low, high, [&]<typename V>(int64_t {self.vector_axis}, int) {{")
        return scope.nested_scope(is_vector=True)

    def emit_task(self, scope: Scope, chunk: int) -> None:
        """All that is done with the lanes [low, high), of which a task has `chunk`."""
        if self.config.num_splits == 1:
            self._emit_lanes(scope)
        else:
            self._emit_splits(scope, chunk)

    def _emit_lanes(self, scope: Scope) -> None:
        inside = self.open_lane_loop(scope)
        for at in range(self.passes.num_passes):
            self.emit_ready_row_values(inside, at)
            self._emit_pass(inside, at)
        self.emit_ready_row_values(inside, self.passes.num_passes)
        self.emit_row_stores(inside)
        scope.add("});")

    def _emit_pass(self, scope: Scope, at: int) -> None:
        targets = self.passes.targets(at)
        if not targets:
            return
        self.emit_row_values(scope, [target_value(target) for target in targets])
        folds = [target for target in targets if isinstance(target, Reduction)]
        self._emit_loops(scope, targets)
        for fold in folds:
            scope.add(f"const auto {fold.value} = {fold.value}_fold.value();")
            self.declared.add(fold.value)

    def _emit_loops(self, scope: Scope, targets: list[PassTarget], cut: str = "") -> None:
        """Declares what is gathered and runs over the row; over [first, last) of the axis `cut`."""
        wanted = [target_value(target) for target in targets]
        for fold in (target for target in targets if isinstance(target, Reduction)):
            scope.add(f"{self._accumulator_declaration(fold)};")
        inside = scope
        if scans := self.scans(wanted):  # a later pass has its own
            scope.add("{")
            inside = scope.nested_scope()
        for scan in scans:
            inside.add(f"{self._accumulator_declaration(scan)};")
        for name in self.row:
            inside.add(self.row_loop_head(name, *(("first", "last") if name == cut else ())) + " {")
            inside = inside.nested_scope()
        for entry in self.passes.dependencies(wanted, True):
            self.value_codegen.emit_value(inside, entry)
        for target in targets:
            self._emit_target(inside, target)
        for depth in reversed(range(len(self.row) + bool(scans))):
            Scope(self.lines, scope.depth + depth, is_vector=True).add("}")

    def _emit_target(self, scope: Scope, target: Reduction | Store) -> None:
        if isinstance(target, Store):
            return self.value_codegen.emit_store(scope, target)
        if target.op in ARG_REDUCTIONS:
            dtype = self.value_codegen.compute_dtype(target.arg)
            taken = f"{self.value_codegen.operand_expr(scope, target.arg, dtype)}, {self.row_index()}"
        else:
            taken = self.value_codegen.operand_expr(scope, target.arg, target.dtype)
        return scope.add(f"{target.value}_fold.take({taken});")

    def _accumulator_declaration(self, entry: object) -> str:
        if isinstance(entry, Reduction):
            name = "RunningPlace" if entry.op in ARG_REDUCTIONS else "Running"
            return (
                f"{name}<{self.reduction_struct(entry)}, Like<V, {self.accumulator_ctype(entry)}>> {entry.value}_fold"
            )
        return (
            f"RunningScan<{self.reduction_struct(entry)}, Like<V, {self.accumulator_ctype(entry)}>> {entry.value}_scan"  # type: ignore[arg-type]
        )

    # ---- few lanes and long rows: the rows cut into parts, each with a thread

    def _emit_splits(self, scope: Scope, chunk: int) -> None:
        for at in range(self.passes.num_passes):
            targets = self.passes.targets(at)
            if targets:
                self._emit_split_pass(scope, at, targets, chunk)
        inside = self.open_lane_loop(scope)
        self._reload_reductions(inside, self.passes.num_passes)
        self.emit_row_values(inside, [s.value for s in self.region.stores if not self.passes.is_stored_per_element(s)])
        self.emit_row_stores(inside)
        scope.add("});")

    def _emit_split_pass(self, scope: Scope, at: int, targets: list[PassTarget], chunk: int) -> None:
        parts, cut = self.config.num_splits, max(self.region.row, key=lambda axis: axis.size)
        folds = [target for target in targets if isinstance(target, Reduction)]
        for fold in folds:
            ctype = COMPUTE_CTYPES[fold.dtype]
            scope.add(f"{ctype} {fold.value}_all[{chunk}], {fold.value}_parts[{parts}][{chunk}];")
        self.emit_parallel_pragma(scope)
        scope.add(f"for (int64_t part = 0; part < {parts}; ++part) {{")
        inside = scope.nested_scope()
        inside.add(f"const int64_t first = {cut.size} * part / {parts}, last = {cut.size} * (part + 1) / {parts};")
        body = self.open_lane_loop(inside)
        self._reload_reductions(body, at)
        self.emit_row_values(body, [target_value(target) for target in targets])
        self._emit_loops(body, targets, cut.name)
        for fold in folds:
            body.add(f"store({fold.value}_parts[part] + {self.vector_axis} - low, {fold.value}_fold.value());")
        inside.add("});")
        scope.add("}")
        self._emit_merge(scope, folds)

    def _reload_reductions(self, scope: Scope, at: int) -> None:
        """What earlier passes have found, lane by lane."""
        self.declared = set(self.value_codegen.scalar_values)
        for step in self.region.steps:
            if isinstance(step, Reduction) and self.region.pass_of[step.value] <= at:
                scope.add(f"const auto {step.value} = load<V>({step.value}_all + {self.vector_axis} - low);")
                self.declared.add(step.value)

    def _emit_merge(self, scope: Scope, folds: list[Reduction]) -> None:
        if not folds:
            return
        inside = self.open_lane_loop(scope)
        for fold in folds:
            inside.add(f"{self._accumulator_declaration(fold)};")
            inside.add(
                f"for (auto& part : {fold.value}_parts) {fold.value}_fold.take(load<V>(part + "
                f"{self.vector_axis} - low));"
            )
            inside.add(f"store({fold.value}_all + {self.vector_axis} - low, {fold.value}_fold.value());")
        scope.add("});")
