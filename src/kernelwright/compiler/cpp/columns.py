"""Vectors along an outer axis: each lane is a row, and a reduction is a plain loop. Also used for regions without
reductions."""

from __future__ import annotations

from kernelwright.compiler.cpp.body import KernelBody, split_bounds
from kernelwright.compiler.cpp.configs import CppConfig, plan_lane_tasks
from kernelwright.compiler.cpp.op_templates import COMPUTE_CTYPES, Scope
from kernelwright.compiler.cpp.passes import ARG_REDUCTIONS, target_value
from kernelwright.compiler.regions.region import Load, Reduction, Region, Scan, Step, Store

MIN_VECTOR_LANES = 16
"""Fewer lanes than this do not fill a vector on every machine: the vector size is then their power of two."""


PassTarget = Reduction | Store


class OuterVectorBody(KernelBody):
    """A function whose vectors run along an outer axis; `lanes_per_row` adjacent lanes belong to one row."""

    def __init__(self, region: Region, config: CppConfig, lanes_per_row: int = 1) -> None:
        super().__init__(region, config)
        self.lanes_per_row = lanes_per_row

    def generate(self) -> list[str]:
        """Generate all lines of the body."""
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
        begin = f"(task % {chunks}) * {chunk}" if chunks > 1 else "0"
        end = f"lane_begin + {chunk} < {size} ? lane_begin + {chunk} : {size}"
        inside.add(f"const int64_t lane_begin = {begin}, lane_end = {end};")
        self._emit_lane_invariants(inside)
        self.emit_task(inside, chunk)
        scope.add("}")
        return self.lines

    def _emit_lane_invariants(self, scope: Scope) -> None:
        """Emit, once per task, what depends neither on the lane nor on the element of the row."""
        invariant: set[str] = set()
        for entry in (*self.region.loads, *self.region.steps):
            is_uniform = self.vector_axis not in self.region.axes_of[entry.value] and not self.passes.varies_along_row(
                entry.value
            )
            if is_uniform and isinstance(entry, Load | Step) and invariant.issuperset(self.passes.arguments(entry)):
                invariant.add(entry.value)
        self.value_codegen.scalar_values = invariant
        wanted = [target_value(target) for at in range(self.passes.num_passes) for target in self.passes.targets(at)]
        wanted += [store.value for store in self.region.stores]
        needed = [entry for entry in self.passes.row_value_dependencies(wanted) if entry.value in invariant]
        self.emit_entries(scope, needed)

    def open_lane_loop(self, scope: Scope) -> Scope:
        """Emit the head of a loop over the lanes of a task and return the scope of its body."""
        size = self.sizes[self.vector_axis]
        vector_size = f"<{1 << (size.bit_length() - 1)}>" if 1 < size < MIN_VECTOR_LANES else ""
        if any(load.windows for load in self.region.loads) and self.sizes[self.vector_axis] % MIN_VECTOR_LANES:
            vector_size = "_halving"
        scope.add(
            f"for_each_vector{vector_size}(lane_begin, lane_end, [&]<typename V>(int64_t {self.vector_axis}, int) {{"
        )
        return scope.nested_scope(is_vector=True)

    def emit_task(self, scope: Scope, chunk: int) -> None:
        """Emit all work on the lanes [lane_begin, lane_end) of a task, at most `chunk` of them."""
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

    def _emit_pass(self, scope: Scope, pass_index: int) -> None:
        targets = self.passes.targets(pass_index)
        if not targets:
            return
        self.emit_row_values(scope, [target_value(target) for target in targets])
        reductions = [target for target in targets if isinstance(target, Reduction)]
        self._emit_loops(scope, targets)
        for reduction in reductions:
            scope.add(f"const auto {reduction.value} = {reduction.value}_acc.value();")
            self.declared.add(reduction.value)

    def _emit_loops(self, scope: Scope, targets: list[PassTarget], split_axis: str = "") -> None:
        """Declare the accumulators and loop over the row; over [split_begin, split_end) of `split_axis`."""
        wanted = [target_value(target) for target in targets]
        for reduction in (target for target in targets if isinstance(target, Reduction)):
            scope.add(f"{self._accumulator_declaration(reduction)};")
        inside = scope
        if scans := self.scans(wanted):  # scoped: a later pass declares its own
            scope.add("{")
            inside = scope.nested_scope()
        for scan in scans:
            inside.add(f"{self._accumulator_declaration(scan)};")
        for name in self.row:
            bounds = ("split_begin", "split_end") if name == split_axis else ()
            inside.add(self.row_loop_head(name, *bounds) + " {")
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
            args = f"{self.value_codegen.operand_expr(scope, target.arg, dtype)}, {self.row_index()}"
        else:
            args = self.value_codegen.operand_expr(scope, target.arg, target.dtype)
        return scope.add(f"{target.value}_acc.update({args});")

    def _accumulator_declaration(self, entry: Reduction | Scan) -> str:
        args = f"<{self.reduction_struct(entry)}, Rebind<V, {self.accumulator_ctype(entry)}>>"
        if isinstance(entry, Scan):
            return f"LaneScan{args} {entry.value}_scan"
        name = "LaneArgAccumulator" if entry.op in ARG_REDUCTIONS else "LaneAccumulator"
        return f"{name}{args} {entry.value}_acc"

    # ---- few lanes and long rows: each row is split, one thread per split

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

    def _emit_split_pass(self, scope: Scope, pass_index: int, targets: list[PassTarget], chunk: int) -> None:
        num_splits, split_axis = self.config.num_splits, max(self.region.row, key=lambda axis: axis.size)
        reductions = [target for target in targets if isinstance(target, Reduction)]
        for reduction in reductions:
            ctype, value = COMPUTE_CTYPES[reduction.dtype], reduction.value
            scope.add(f"{ctype} {value}_rows[{chunk}], {value}_splits[{num_splits}][{chunk}];")
        self.emit_parallel_pragma(scope)
        scope.add(f"for (int64_t split = 0; split < {num_splits}; ++split) {{")
        inside = scope.nested_scope()
        inside.add(split_bounds(split_axis.size, num_splits))
        body = self.open_lane_loop(inside)
        self._reload_reductions(body, pass_index)
        self.emit_row_values(body, [target_value(target) for target in targets])
        self._emit_loops(body, targets, split_axis.name)
        for reduction in reductions:
            value = reduction.value
            body.add(f"store({value}_splits[split] + {self.vector_axis} - lane_begin, {value}_acc.value());")
        inside.add("});")
        scope.add("}")
        self._emit_merge(scope, reductions)

    def _reload_reductions(self, scope: Scope, pass_index: int) -> None:
        """Load the results of earlier passes, lane by lane."""
        self.declared = set(self.value_codegen.scalar_values)
        for step in self.region.steps:
            if isinstance(step, Reduction) and self.region.pass_of[step.value] <= pass_index:
                scope.add(f"const auto {step.value} = load<V>({step.value}_rows + {self.vector_axis} - lane_begin);")
                self.declared.add(step.value)

    def _emit_merge(self, scope: Scope, reductions: list[Reduction]) -> None:
        if not reductions:
            return
        inside = self.open_lane_loop(scope)
        for reduction in reductions:
            value, lane = reduction.value, f"{self.vector_axis} - lane_begin"
            inside.add(f"{self._accumulator_declaration(reduction)};")
            inside.add(f"for (auto& split : {value}_splits) {value}_acc.update(load<V>(split + {lane}));")
            inside.add(f"store({value}_rows + {lane}, {value}_acc.value());")
        scope.add("});")
