"""Vectors along the row: every row by itself, its lanes put together at the end of a pass."""

from __future__ import annotations

from kernelwright.compiler.cpp.body import Body
from kernelwright.compiler.cpp.configs import CpuChoice
from kernelwright.compiler.cpp.op_templates import COMPUTED, Scope
from kernelwright.compiler.cpp.passes import POSITIONS, Pick, argument
from kernelwright.compiler.regions.region import Reduction, Region, Store

SETTLE = 1 << 12
"""After so many elements, as in folds.h, sums are added up in FP64."""


class Rows(Body):
    """A function whose vectors run along the row."""

    def __init__(self, region: Region, choice: CpuChoice) -> None:
        super().__init__(region, choice)
        self.kept = self.passes.kept() if choice.parts == 1 else []

    def print(self) -> list[str]:
        scope = Scope(self.lines, 1, wide=False)
        if self.choice.parts == 1:
            self.threads(scope)
        scope.add(f"for (int64_t row = 0; row < {self.region.rows}; ++row) {{")
        inside = scope.inside()
        if self.region.outer:
            self.outer_positions(inside, [axis.name for axis in self.region.outer], "row")
        for value in self.kept:
            ctype = COMPUTED[self.forms.dtype(value)]
            inside.add(
                f"static thread_local {ctype} kept_{value}[{self.region.row_size}] __attribute__((aligned(64)));"
            )
        for at in range(self.passes.count):
            self.settled(inside, at)
            self._pass(inside, at)
        self.settled(inside, self.passes.count)
        self.store_outer(inside)
        scope.add("}")
        return self.lines

    def _pass(self, scope: Scope, at: int) -> None:
        targets = self.passes.targets(at)
        picks = [pick for pick in map(self.passes.pick, targets) if pick]
        targets = [target for target in targets if not self.passes.pick(target)]
        wanted = [argument(target) for target in targets]
        wanted += [v for v in self.kept if self.region.sweep_of[v] == at]
        if targets:
            held = [value for value in self.kept if self.region.sweep_of[value] < at]
            self.outer_values(scope, wanted, held)
            self._walks(scope, targets, wanted, held)
        for pick in picks:
            self._pick(scope, pick)

    def _pick(self, scope: Scope, pick: Pick) -> None:
        """The one term at a position: nothing of the row is read but it."""
        (axis,) = self.row
        dtype = self.forms.dtype(pick.value)
        self.outer_values(scope, [pick.value, pick.place])
        scope.add(f"{COMPUTED[dtype]} {pick.total} = 0;")
        scope.add(f"if (const int64_t {axis} = {pick.place}; {axis} >= 0 && {axis} < {self.sizes[axis]}) {{")
        inside = scope.inside()
        for entry in self.passes.needed([pick.value], True):
            self.forms.value(inside, entry)
        inside.add(f"{pick.total} = {pick.value};")
        scope.add("}")
        self.made.add(pick.total)

    def _walks(self, scope: Scope, targets: list[Reduction | Store], wanted: list[str], held: list[str]) -> None:
        folds = [target for target in targets if isinstance(target, Reduction)]
        if self.choice.parts > 1:
            self._parts(scope, targets, wanted, folds)
        else:
            self._declare(scope, wanted, held, folds)
            self._loops(scope, targets, wanted, held)
        for fold in folds:
            scope.add(f"const {COMPUTED[fold.dtype]} {fold.value} = {fold.value}_fold.value();")
            self.made.add(fold.value)

    def _declare(self, scope: Scope, wanted: list[str], held: list[str], folds: list[Reduction]) -> None:
        for fold in folds:
            scope.add(f"{self._fold(fold)} {fold.value}_fold;")
        back = ", true" if self.passes.backwards else ""
        for scan in self.scans(wanted, held):
            scope.add(f"Scan<{self.operation(scan)}, {self.computed(scan)}{back}> {scan.value}_scan;")

    def _parts(self, scope: Scope, targets: list[Reduction | Store], wanted: list[str], folds: list[Reduction]) -> None:
        """The row cut along its longest axis into parts, each with a thread; their results are combined in order."""
        parts, cut = self.choice.parts, max(self.row, key=self.sizes.__getitem__)
        for fold in folds:
            scope.add(f"{self._fold(fold)} {fold.value}_fold, {fold.value}_parts[{parts}];")
        self.threads(scope)
        scope.add(f"for (int64_t part = 0; part < {parts}; ++part) {{")
        inside = scope.inside()
        self._declare(inside, wanted, [], folds)
        size = self.sizes[cut]
        inside.add(f"const int64_t first = {size} * part / {parts}, last = {size} * (part + 1) / {parts};")
        self._loops(inside, targets, wanted, [], cut)
        for fold in folds:
            inside.add(f"{fold.value}_parts[part] = {fold.value}_fold;")
        scope.add("}")
        for fold in folds:
            scope.add(f"for (auto& part : {fold.value}_parts) {fold.value}_fold.merge(part);")

    def _loops(
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
            if name != self.lanes:
                head.add(f"{self.row_loop(name, *(part if name == cut else ()))} {{")
                head = head.inside()
        walk = "walk_back" if self.passes.backwards else "walk"
        low, high = part if self.lanes == cut else ("0", self.sizes[self.lanes])
        head.add(f"{walk}({low}, {high}, [&]<typename V>(int64_t {self.lanes}, int u) {{")
        inside = head.inside(wide=True)
        for value in held:
            inside.add(f"const auto {value} = load<V>(kept_{value} + {self.row_place()});")
        for entry in self.passes.needed(wanted, True, held):
            self.forms.value(inside, entry)
        for value in self.kept:
            if value in wanted and value not in held:
                inside.add(f"store(kept_{value} + {self.row_place()}, {value});")
        for target in targets:
            self._target(inside, target)
        folds = [f"{target.value}_fold" for target in targets if isinstance(target, Reduction)]
        head.add(f"{', '.join(['}', *folds])});")
        around = [name for name in self.row if name != self.lanes]
        if folds and around and self.region.row_size > SETTLE:
            every = max(1, SETTLE // self.sizes[self.lanes])
            head.add(f"if ({around[-1]} % {every} == 0) {{ {' '.join(f'{fold}.settle();' for fold in folds)} }}")
        for depth in reversed(range(len(around))):
            Scope(self.lines, scope.depth + depth, wide=False).add("}")

    def _target(self, scope: Scope, target: Reduction | Store) -> None:
        if isinstance(target, Store):
            return self.forms.store(scope, target)
        position = target.op in POSITIONS
        dtype = self.forms.dtype(target.arg) if position else target.dtype
        taken = self.forms.operand(scope, target.arg, dtype) + (f", {self.row_place()}" if position else "")
        return scope.add(f"{target.value}_fold.template take<V>({taken}, u);")

    def _fold(self, fold: Reduction) -> str:
        name = "Place" if fold.op in POSITIONS else "Fold"
        return f"{name}<{self.operation(fold)}, {self.computed(fold)}>"
