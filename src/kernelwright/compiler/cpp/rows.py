"""Vectors along the row: rows are processed one by one, and lanes are combined at the end of each pass."""

from __future__ import annotations

from kernelwright.compiler.cpp.body import KernelBody, split_bounds
from kernelwright.compiler.cpp.configs import CppConfig
from kernelwright.compiler.cpp.op_templates import COMPUTE_CTYPES, Scope
from kernelwright.compiler.cpp.passes import ARG_REDUCTIONS, OneHotSum, target_value
from kernelwright.compiler.regions.region import Reduction, Region, Store

FLUSH_INTERVAL = 1 << 12
"""Elements after which partial sums are flushed into FP64; `kFlushInterval` in reductions.h."""


class RowVectorBody(KernelBody):
    """A function whose vectors run along the row."""

    def __init__(self, region: Region, config: CppConfig) -> None:
        super().__init__(region, config)
        self.cached_values = self.passes.select_cached_values() if config.num_splits == 1 else []

    def generate(self) -> list[str]:
        """Generate all lines of the body."""
        scope = Scope(self.lines, 1, is_vector=False)
        if self.config.num_splits == 1:
            self.emit_parallel_pragma(scope)
        scope.add(f"for (int64_t row = 0; row < {self.region.num_rows}; ++row) {{")
        inside = scope.nested_scope()
        if self.region.outer:
            self.emit_outer_indices(inside, [axis.name for axis in self.region.outer], "row")
        for value in self.cached_values:
            ctype, size = COMPUTE_CTYPES[self.value_codegen.compute_dtype(value)], self.region.row_size
            inside.add(f"static thread_local {ctype} cached_{value}[{size}] __attribute__((aligned(64)));")
        for at in range(self.passes.num_passes):
            self.emit_ready_row_values(inside, at)
            self._emit_pass(inside, at)
        self.emit_ready_row_values(inside, self.passes.num_passes)
        self.emit_row_stores(inside)
        scope.add("}")
        return self.lines

    def _emit_pass(self, scope: Scope, pass_index: int) -> None:
        targets = self.passes.targets(pass_index)
        one_hot_sums = [match for match in map(self.passes.match_one_hot_sum, targets) if match]
        targets = [target for target in targets if not self.passes.match_one_hot_sum(target)]
        wanted = [target_value(target) for target in targets]
        wanted += [v for v in self.cached_values if self.region.pass_of[v] == pass_index]
        if targets:
            cached = [value for value in self.cached_values if self.region.pass_of[value] < pass_index]
            self.emit_row_values(scope, wanted, cached)
            self._emit_reductions(scope, targets, wanted, cached)
        for match in one_hot_sums:
            self._emit_one_hot_sum(scope, match)

    def _emit_one_hot_sum(self, scope: Scope, match: OneHotSum) -> None:
        """Emit the one term that is not zero; no other element of the row is read."""
        (axis,) = self.row
        dtype = self.value_codegen.compute_dtype(match.value)
        self.emit_row_values(scope, [match.value, match.position])
        scope.add(f"{COMPUTE_CTYPES[dtype]} {match.result} = 0;")
        scope.add(f"if (const int64_t {axis} = {match.position}; {axis} >= 0 && {axis} < {self.sizes[axis]}) {{")
        inside = scope.nested_scope()
        for entry in self.passes.dependencies([match.value], True):
            self.value_codegen.emit_value(inside, entry)
        inside.add(f"{match.result} = {match.value};")
        scope.add("}")
        self.declared.add(match.result)

    def _emit_reductions(
        self, scope: Scope, targets: list[Reduction | Store], wanted: list[str], cached: list[str]
    ) -> None:
        reductions = [target for target in targets if isinstance(target, Reduction)]
        if self.config.num_splits > 1:
            self._emit_splits(scope, targets, wanted, reductions)
        else:
            self._declare_accumulators(scope, wanted, cached, reductions)
            self._emit_loops(scope, targets, wanted, cached)
        for reduction in reductions:
            scope.add(f"const {COMPUTE_CTYPES[reduction.dtype]} {reduction.value} = {reduction.value}_acc.value();")
            self.declared.add(reduction.value)

    def _declare_accumulators(
        self, scope: Scope, wanted: list[str], cached: list[str], reductions: list[Reduction]
    ) -> None:
        for reduction in reductions:
            scope.add(f"{self._accumulator_type(reduction)} {reduction.value}_acc;")
        reverse = ", true" if self.passes.is_reverse else ""
        for scan in self.scans(wanted, cached):
            args = f"<{self.reduction_struct(scan)}, {self.accumulator_ctype(scan)}{reverse}>"
            scope.add(f"RowScan{args} {scan.value}_scan;")

    def _emit_splits(
        self, scope: Scope, targets: list[Reduction | Store], wanted: list[str], reductions: list[Reduction]
    ) -> None:
        """Split the row along its longest axis, one thread per split; the results are merged in order."""
        num_splits, split_axis = self.config.num_splits, max(self.row, key=self.sizes.__getitem__)
        for reduction in reductions:
            value = reduction.value
            scope.add(f"{self._accumulator_type(reduction)} {value}_acc, {value}_splits[{num_splits}];")
        self.emit_parallel_pragma(scope)
        scope.add(f"for (int64_t split = 0; split < {num_splits}; ++split) {{")
        inside = scope.nested_scope()
        self._declare_accumulators(inside, wanted, [], reductions)
        inside.add(split_bounds(self.sizes[split_axis], num_splits))
        self._emit_loops(inside, targets, wanted, [], split_axis)
        for reduction in reductions:
            inside.add(f"{reduction.value}_splits[split] = {reduction.value}_acc;")
        scope.add("}")
        for reduction in reductions:
            scope.add(f"for (auto& split : {reduction.value}_splits) {reduction.value}_acc.merge(split);")

    def _emit_loops(
        self,
        scope: Scope,
        targets: list[Reduction | Store],
        wanted: list[str],
        cached: list[str],
        split_axis: str = "",
    ) -> None:
        """Emit the loops over the row; over [split_begin, split_end) of `split_axis`."""
        loop, bounds = scope, ("split_begin", "split_end")
        for name in self.row:
            if name != self.vector_axis:
                loop.add(f"{self.row_loop_head(name, *(bounds if name == split_axis else ()))} {{")
                loop = loop.nested_scope()
        function = "for_each_vector_reverse" if self.passes.is_reverse else "for_each_vector"
        begin, end = bounds if self.vector_axis == split_axis else ("0", self.sizes[self.vector_axis])
        loop.add(f"{function}({begin}, {end}, [&]<typename V>(int64_t {self.vector_axis}, int unroll) {{")
        inside = loop.nested_scope(is_vector=True)
        for value in cached:
            inside.add(f"const auto {value} = load<V>(cached_{value} + {self.row_index()});")
        for entry in self.passes.dependencies(wanted, True, cached):
            self.value_codegen.emit_value(inside, entry)
        for value in self.cached_values:
            if value in wanted and value not in cached:
                inside.add(f"store(cached_{value} + {self.row_index()}, {value});")
        for target in targets:
            self._emit_target(inside, target)
        accumulators = [f"{target.value}_acc" for target in targets if isinstance(target, Reduction)]
        loop.add(f"{', '.join(['}', *accumulators])});")
        other_axes = [name for name in self.row if name != self.vector_axis]
        if accumulators and other_axes and self.region.row_size > FLUSH_INTERVAL:
            interval = max(1, FLUSH_INTERVAL // self.sizes[self.vector_axis])
            flushes = " ".join(f"{accumulator}.flush();" for accumulator in accumulators)
            loop.add(f"if ({other_axes[-1]} % {interval} == 0) {{ {flushes} }}")
        for depth in reversed(range(len(other_axes))):
            Scope(self.lines, scope.depth + depth, is_vector=False).add("}")

    def _emit_target(self, scope: Scope, target: Reduction | Store) -> None:
        if isinstance(target, Store):
            return self.value_codegen.emit_store(scope, target)
        is_arg = target.op in ARG_REDUCTIONS
        dtype = self.value_codegen.compute_dtype(target.arg) if is_arg else target.dtype
        operand = self.value_codegen.operand_expr(scope, target.arg, dtype)
        args = f"{operand}, {self.row_index()}" if is_arg else operand
        return scope.add(f"{target.value}_acc.template update<V>({args}, unroll);")

    def _accumulator_type(self, reduction: Reduction) -> str:
        name = "RowArgAccumulator" if reduction.op in ARG_REDUCTIONS else "RowAccumulator"
        return f"{name}<{self.reduction_struct(reduction)}, {self.accumulator_ctype(reduction)}>"
