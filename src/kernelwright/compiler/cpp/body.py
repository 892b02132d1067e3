"""What the two ways of running a region on the CPU have in common: threads, positions, values of the whole row."""

from __future__ import annotations

from collections.abc import Iterable

from kernelwright.compiler.cpp.configs import CpuChoice
from kernelwright.compiler.cpp.op_templates import COMPUTED, Forms, Scope
from kernelwright.compiler.cpp.passes import POSITIONS, Passes
from kernelwright.compiler.regions.axes import Misfit
from kernelwright.compiler.regions.region import Load, Reduction, Region, Scan, Step

OPERATIONS = {
    "sum": "Sum", "prod": "Product", "max": "Max", "min": "Min", "any": "Any", "all": "All", "argmax": "Max",
    "argmin": "Min", "least": "Least", "most": "Most",
}  # fmt: skip
"""The struct in folds.h for each reduction and scan."""


class Body:
    """The lines of one function, as they come to be."""

    def __init__(self, region: Region, choice: CpuChoice) -> None:
        self.region, self.choice = region, choice
        self.passes = Passes(region)
        self.forms = Forms(self.passes, choice.lanes, past_caches=choice.past_caches)
        self.sizes, self.row, self.lanes = self.passes.sizes, self.passes.row, choice.lanes
        self.lines: list[str] = []
        self.made: set[str] = set()
        """Values of the whole row that are written down already."""

    def print(self) -> list[str]:
        """The lines, all of them."""
        raise NotImplementedError

    def threads(self, scope: Scope) -> None:
        if self.choice.threads:
            scope.add("#pragma omp parallel for schedule(static)")

    def outer_positions(self, scope: Scope, names: list[str], index: str) -> None:
        """Outer positions from one running number."""
        rest = index
        for name in reversed(names):
            size = self.sizes[name]
            last = name == names[0]
            scope.add(f"const int64_t {name} = {rest if last else f'{rest} % {size}'};")
            rest = f"({rest} / {size})" if not last else rest

    def row_loop(self, name: str, low: str = "", high: str = "") -> str:
        """The head of a loop over one axis of the row, from its end where scans run that way."""
        low, high = low or "0", high or str(self.sizes[name])
        if self.passes.backwards:
            return f"for (int64_t {name} = {high} - 1; {name} >= {low}; --{name})"
        return f"for (int64_t {name} = {low}; {name} < {high}; ++{name})"

    def row_place(self, last: str = "") -> str:
        """The running number of an element in its row; `last` stands for the last axis of the row."""
        terms, step = [], 1
        for name in reversed(self.row):
            shown = last or name if name == self.row[-1] else name
            terms.append(shown if step == 1 else f"{step} * {shown}")
            step *= self.sizes[name]
        return " + ".join(reversed(terms))

    def operation(self, entry: Reduction | Scan) -> str:
        """What a reduction or scan does with two values.

        Raises:
            Misfit: positions in a row that is too long for int32.
        """
        if entry.op in POSITIONS and self.region.row_size >= 2**31:
            raise Misfit(f"{entry.op} in a row of {self.region.row_size:,}")
        return OPERATIONS[entry.op]

    def computed(self, fold: Reduction | Scan) -> str:
        """The C++ type of what is folded."""
        return COMPUTED[self.forms.dtype(fold.arg) if fold.op in POSITIONS else fold.dtype]

    def scans(self, wanted: Iterable[str], held: Iterable[str] = ()) -> list[Scan]:
        """The scans that a pass runs."""
        return [entry for entry in self.passes.needed(wanted, True, held) if isinstance(entry, Scan)]

    def settled(self, scope: Scope, at: int) -> None:
        """Values of the whole row that can be had before a pass and that a store wants."""
        stored = [store.value for store in self.region.stores if not self.passes.stored_inside(store)]
        self.outer_values(scope, [value for value in stored if self.region.sweep_of[value] == at])

    def outer_values(self, scope: Scope, wanted: Iterable[str], held: Iterable[str] = ()) -> None:
        """Writes down what some values need of the whole row."""
        self.write_outer(scope, self.passes.outer_needed(wanted, held))

    def write_outer(self, scope: Scope, entries: Iterable[Load | Step | Scan]) -> None:
        for entry in entries:
            if entry.value not in self.made:
                self.forms.value(scope, entry)
                self.made.add(entry.value)

    def store_outer(self, scope: Scope) -> None:
        for store in self.region.stores:
            if not self.passes.stored_inside(store):
                self.forms.store(scope, store)
