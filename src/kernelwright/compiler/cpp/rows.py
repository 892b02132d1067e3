"""Vectors along the row: every row by itself, its lanes put together at the end of a pass."""

from __future__ import annotations

from kernelwright.compiler.cpp.body import KernelBody
from kernelwright.compiler.cpp.configs import CppConfig
from kernelwright.compiler.cpp.op_templates import COMPUTE_CTYPES, Scope
from kernelwright.compiler.cpp.passes import ARG_REDUCTIONS, OneHotSum, target_value
from kernelwright.compiler.regions.region import Reduction, Region, Store

FLUSH_INTERVAL = 1 << 12
"""After so many elements, as in folds.h, sums are added up in FP64."""


class RowVectorBody(KernelBody):
    """A function whose vectors run along the row."""

    def __init__(self, region: Region, choice: CppConfig) -> None:
        super().__init__(region, choice)
        self.cached_values = self.passes.select_cached_values() if choice.num_splits == 1 else []

    def generate(self) -> list[str]:
        scope = Scope(self.lines, 1, is_vector=False)
        if self.config.num_splits == 1:
            self.emit_parallel_pragma(scope)
        scope.add(f"for (int64_t row = 0; row < {self.region.num_rows}; ++row) {{")
        inside = scope.nested_scope()
        if self.region.outer:
            self.emit_outer_indices(inside, [axis.name for axis in self.region.outer], "row")
        for value in self.cached_values:
            ctype = COMPUTE_CTYPES[self.value_codegen.compute_dtype(value)]
            inside.add(
                f"static thread_local {ctype} kept_{value}[{self.region.row_size}] __attribute__((aligned(64)));"
            )
        for at in range(self.passes.num_passes):
            self.emit_ready_row_values(inside, at)
            self._emit_pass(inside, at)
        self.emit_ready_row_values(inside, self.passes.num_passes)
        self.emit_row_stores(inside)
        scope.add("}")
        return self.lines

    def _emit_pass(self, scope: Scope, at: int) -> None:
        targets = self.passes.targets(at)
        picks = [pick for pick in map(self.passes.match_one_hot_sum, targets) if pick]
        targets = [target for target in targets if not self.passes.match_one_hot_sum(target)]
        wanted = [target_value(target) for target in targets]
        wanted += [v for v in self.cached_values if self.region.pass_of[v] == at]
        if targets:
            held = [value for value in self.cached_values if self.region.pass_of[value] < at]
            self.emit_row_values(scope, wanted, held)
            self._emit_reductions(scope, targets, wanted, held)
        for pick in picks:
            self._emit_one_hot_sum(scope, pick)

    def _emit_one_hot_sum(self, scope: Scope, pick: OneHotSum) -> None:
        """The one term at a position: nothing of the row is read but it."""
        (axis,) = self.row
        dtype = self.value_codegen.compute_dtype(pick.value)
        self.emit_row_values(scope, [pick.value, pick.position])
        scope.add(f"{COMPUTE_CTYPES[dtype]} {pick.result} = 0;")
        scope.add(f"if (const int64_t {axis} = {pick.position}; {axis} >= 0 && {axis} < {self.sizes[axis]}) {{")
        inside = scope.nested_scope()
        for entry in self.passes.dependencies([pick.value], True):
            self.value_codegen.emit_value(inside, entry)
        inside.add(f"{pick.result} = {pick.value};")
        scope.add("}")
        self.declared.add(pick.result)

    def _emit_reductions(
        self, scope: Scope, targets: list[Reduction | Store], wanted: list[str], held: list[str]
    ) -> None:
        folds = [target for target in targets if isinstance(target, Reduction)]
        if self.config.num_splits > 1:
            self._emit_splits(scope, targets, wanted, folds)
        else:
            self._declare_accumulators(scope, wanted, held, folds)
            self._emit_loops(scope, targets, wanted, held)
        for fold in folds:
            scope.add(f"const {COMPUTE_CTYPES[fold.dtype]} {fold.value} = {fold.value}_fold.value();")
            self.declared.add(fold.value)

    def _declare_accumulators(self, scope: Scope, wanted: list[str], held: list[str], folds: list[Reduction]) -> None:
        for fold in folds:
            scope.add(f"{self._accumulator_type(fold)} {fold.value}_fold;")
        back = ", true" if self.passes.is_reverse else ""
        for scan in self.scans(wanted, held):
            scope.add(f"Scan<{self.reduction_struct(scan)}, {self.accumulator_ctype(scan)}{back}> {scan.value}_scan;")

    def _emit_splits(
        self, scope: Scope, targets: list[Reduction | Store], wanted: list[str], folds: list[Reduction]
    ) -> None:
        """The row cut along its longest axis into parts, each with a thread; their results are combined in order."""
        parts, cut = self.config.num_splits, max(self.row, key=self.sizes.__getitem__)
        for fold in folds:
            scope.add(f"{self._accumulator_type(fold)} {fold.value}_fold, {fold.value}_parts[{parts}];")
        self.emit_parallel_pragma(scope)
        scope.add(f"for (int64_t part = 0; part < {parts}; ++part) {{")
        inside = scope.nested_scope()
        self._declare_accumulators(inside, wanted, [], folds)
        size = self.sizes[cut]
        inside.add(f"const int64_t first = {size} * part / {parts}, last = {size} * (part + 1) / {parts};")
        self._emit_loops(inside, targets, wanted, [], cut)
        for fold in folds:
            inside.add(f"{fold.value}_parts[part] = {fold.value}_fold;")
        scope.add("}")
        for fold in folds:
            scope.add(f"for (auto& part : {fold.value}_parts) {fold.value}_fold.merge(part);")

    def _emit_loops(
        self,
        scope: Scope,
        targets: list[Reduction | Store],
        wanted: list[str],
        held: list[str],
        cut: str = "",
    ) -> None:
        """Runs over the row; over [first, last) of the axis `cut`."""
        head, part = scope, ("first", "last")
        for name in self.row:
            if name != self.vector_axis:
                head.add(f"{self.row_loop_head(name, *(part if name == cut else ()))} {{")
                head = head.nested_scope()
        walk = "walk_back" if self.passes.is_reverse else "walk"
        low, high = part if self.vector_axis == cut else ("0", self.sizes[self.vector_axis])
        head.add(f"{walk}({low}, {high}, [&]<typename V>(int64_t {self.vector_axis}, int u) {{")
        inside = head.nested_scope(is_vector=True)
        for value in held:
            inside.add(f"const auto {value} = load<V>(kept_{value} + {self.row_index()});")
        for entry in self.passes.dependencies(wanted, True, held):
            self.value_codegen.emit_value(inside, entry)
        for value in self.cached_values:
            if value in wanted and value not in held:
                inside.add(f"store(kept_{value} + {self.row_index()}, {value});")
        for target in targets:
            self._emit_target(inside, target)
        folds = [f"{target.value}_fold" for target in targets if isinstance(target, Reduction)]
        head.add(f"{', '.join(['}', *folds])});")
        around = [name for name in self.row if name != self.vector_axis]
        if folds and around and self.region.row_size > FLUSH_INTERVAL:
            every = max(1, FLUSH_INTERVAL // self.sizes[self.vector_axis])
            head.add(f"if ({around[-1]} % {every} == 0) {{ {' '.join(f'{fold}.settle();' for fold in folds)} }}")
        for depth in reversed(range(len(around))):
            Scope(self.lines, scope.depth + depth, is_vector=False).add("}")

    def _emit_target(self, scope: Scope, target: Reduction | Store) -> None:
        if isinstance(target, Store):
            return self.value_codegen.emit_store(scope, target)
        position = target.op in ARG_REDUCTIONS
        dtype = self.value_codegen.compute_dtype(target.arg) if position else target.dtype
        taken = self.value_codegen.operand_expr(scope, target.arg, dtype) + (
            f", {self.row_index()}" if position else ""
        )
        return scope.add(f"{target.value}_fold.template take<V>({taken}, u);")

    def _accumulator_type(self, fold: Reduction) -> str:
        name = "Place" if fold.op in ARG_REDUCTIONS else "Fold"
        return f"{name}<{self.reduction_struct(fold)}, {self.accumulator_ctype(fold)}>"
