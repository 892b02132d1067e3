"""Vectors along an outer axis: every lane is a row of its own, and a reduction is a plain loop. Regions without
reductions are run like this too."""

from __future__ import annotations

from kernelwright.compiler.cpp.body import Body
from kernelwright.compiler.cpp.configs import CpuChoice, column_tasks
from kernelwright.compiler.cpp.op_templates import COMPUTED, Scope
from kernelwright.compiler.cpp.passes import POSITIONS, argument
from kernelwright.compiler.regions.region import Load, Reduction, Region, Step, Store

LEAST_LANES = 16
"""Fewer lanes than this do not fill the vectors of every machine: there they are of that power of two."""


Target = Reduction | Store


class Columns(Body):
    """A function whose vectors run along an outer axis; so many neighbouring lanes `together` are one row."""

    def __init__(self, region: Region, choice: CpuChoice, together: int = 1) -> None:
        super().__init__(region, choice)
        self.together = together

    def print(self) -> list[str]:
        outer = [axis.name for axis in self.region.outer if axis.name != self.lanes]
        size = self.sizes[self.lanes]
        chunk, tasks = column_tasks(self.region, self.lanes, self.together)
        chunks = -(-size // chunk)
        scope = Scope(self.lines, 1, wide=False)
        if self.choice.parts == 1:
            self.threads(scope)
        scope.add(f"for (int64_t task = 0; task < {tasks}; ++task) {{")
        inside = scope.inside()
        if outer:
            self.outer_positions(inside, outer, f"(task / {chunks})" if chunks > 1 else "task")
        low = f"(task % {chunks}) * {chunk}" if chunks > 1 else "0"
        inside.add(f"const int64_t low = {low}, high = low + {chunk} < {size} ? low + {chunk} : {size};")
        self._same_for_all_lanes(inside)
        self.task(inside, chunk)
        scope.add("}")
        return self.lines

    def _same_for_all_lanes(self, scope: Scope) -> None:
        """Writes down, once for a task, what depends neither on the lane nor on the row."""
        alone: set[str] = set()
        for entry in (*self.region.loads, *self.region.steps):
            same = self.lanes not in self.region.axes_of[entry.value] and not self.passes.inner(entry.value)
            if same and isinstance(entry, Load | Step) and alone.issuperset(self.passes.arguments(entry)):
                alone.add(entry.value)
        self.forms.narrow = alone
        wanted = [argument(target) for at in range(self.passes.count) for target in self.passes.targets(at)]
        wanted += [store.value for store in self.region.stores]
        needed = [entry for entry in self.passes.outer_needed(wanted) if entry.value in alone]
        self.write_outer(scope, needed)

    def walk(self, scope: Scope) -> Scope:
        """The loop over the lanes of a task; what stands inside of it."""
        size = self.sizes[self.lanes]
        narrow = f"<{1 << (size.bit_length() - 1)}>" if 1 < size < LEAST_LANES else ""
        scope.add(f"walk{narrow}(low, high, [&]<typename V>(int64_t {self.lanes}, int) {{")
        return scope.inside(wide=True)

    def task(self, scope: Scope, chunk: int) -> None:
        """All that is done with the lanes [low, high), of which a task has `chunk`."""
        if self.choice.parts == 1:
            self._lanes(scope)
        else:
            self._in_parts(scope, chunk)

    def _lanes(self, scope: Scope) -> None:
        inside = self.walk(scope)
        for at in range(self.passes.count):
            self.settled(inside, at)
            self._pass(inside, at)
        self.settled(inside, self.passes.count)
        self.store_outer(inside)
        scope.add("});")

    def _pass(self, scope: Scope, at: int) -> None:
        targets = self.passes.targets(at)
        if not targets:
            return
        self.outer_values(scope, [argument(target) for target in targets])
        folds = [target for target in targets if isinstance(target, Reduction)]
        self._loops(scope, targets)
        for fold in folds:
            scope.add(f"const auto {fold.value} = {fold.value}_fold.value();")
            self.made.add(fold.value)

    def _loops(self, scope: Scope, targets: list[Target], cut: str = "") -> None:
        """Declares what is gathered and runs over the row; over [first, last) of the axis `cut`."""
        wanted = [argument(target) for target in targets]
        for fold in (target for target in targets if isinstance(target, Reduction)):
            scope.add(f"{self._running(fold)};")
        inside = scope
        if scans := self.scans(wanted):  # a later pass has its own
            scope.add("{")
            inside = scope.inside()
        for scan in scans:
            inside.add(f"{self._running(scan)};")
        for name in self.row:
            inside.add(self.row_loop(name, *(("first", "last") if name == cut else ())) + " {")
            inside = inside.inside()
        for entry in self.passes.needed(wanted, True):
            self.forms.value(inside, entry)
        for target in targets:
            self._target(inside, target)
        for depth in reversed(range(len(self.row) + bool(scans))):
            Scope(self.lines, scope.depth + depth, wide=True).add("}")

    def _target(self, scope: Scope, target: Reduction | Store) -> None:
        if isinstance(target, Store):
            return self.forms.store(scope, target)
        if target.op in POSITIONS:
            taken = f"{self.forms.operand(scope, target.arg, self.forms.dtype(target.arg))}, {self.row_place()}"
        else:
            taken = self.forms.operand(scope, target.arg, target.dtype)
        return scope.add(f"{target.value}_fold.take({taken});")

    def _running(self, entry: object) -> str:
        if isinstance(entry, Reduction):
            name = "RunningPlace" if entry.op in POSITIONS else "Running"
            return f"{name}<{self.operation(entry)}, Like<V, {self.computed(entry)}>> {entry.value}_fold"
        return f"RunningScan<{self.operation(entry)}, Like<V, {self.computed(entry)}>> {entry.value}_scan"  # type: ignore[arg-type]

    # ---- few lanes and long rows: the rows cut into parts, each with a thread

    def _in_parts(self, scope: Scope, chunk: int) -> None:
        for at in range(self.passes.count):
            targets = self.passes.targets(at)
            if targets:
                self._part_pass(scope, at, targets, chunk)
        inside = self.walk(scope)
        self._again(inside, self.passes.count)
        self.outer_values(inside, [s.value for s in self.region.stores if not self.passes.stored_inside(s)])
        self.store_outer(inside)
        scope.add("});")

    def _part_pass(self, scope: Scope, at: int, targets: list[Target], chunk: int) -> None:
        parts, cut = self.choice.parts, max(self.region.row, key=lambda axis: axis.size)
        folds = [target for target in targets if isinstance(target, Reduction)]
        for fold in folds:
            ctype = COMPUTED[fold.dtype]
            scope.add(f"{ctype} {fold.value}_all[{chunk}], {fold.value}_parts[{parts}][{chunk}];")
        self.threads(scope)
        scope.add(f"for (int64_t part = 0; part < {parts}; ++part) {{")
        inside = scope.inside()
        inside.add(f"const int64_t first = {cut.size} * part / {parts}, last = {cut.size} * (part + 1) / {parts};")
        body = self.walk(inside)
        self._again(body, at)
        self.outer_values(body, [argument(target) for target in targets])
        self._loops(body, targets, cut.name)
        for fold in folds:
            body.add(f"store({fold.value}_parts[part] + {self.lanes} - low, {fold.value}_fold.value());")
        inside.add("});")
        scope.add("}")
        self._merge(scope, folds)

    def _again(self, scope: Scope, at: int) -> None:
        """What earlier passes have found, lane by lane."""
        self.made = set(self.forms.narrow)
        for step in self.region.steps:
            if isinstance(step, Reduction) and self.region.sweep_of[step.value] <= at:
                scope.add(f"const auto {step.value} = load<V>({step.value}_all + {self.lanes} - low);")
                self.made.add(step.value)

    def _merge(self, scope: Scope, folds: list[Reduction]) -> None:
        if not folds:
            return
        inside = self.walk(scope)
        for fold in folds:
            inside.add(f"{self._running(fold)};")
            inside.add(
                f"for (auto& part : {fold.value}_parts) {fold.value}_fold.take(load<V>(part + {self.lanes} - low));"
            )
            inside.add(f"store({fold.value}_all + {self.lanes} - low, {fold.value}_fold.value());")
        scope.add("});")
