"""What the two ways of running a region on the CPU have in common: threads, positions, values of the whole row."""

from __future__ import annotations

from collections.abc import Iterable

from kernelwright.compiler.cpp.configs import CppConfig
from kernelwright.compiler.cpp.op_templates import COMPUTE_CTYPES, CppValueCodegen, Scope
from kernelwright.compiler.cpp.passes import ARG_REDUCTIONS, Passes
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.region import Load, Reduction, Region, Scan, Step

REDUCTION_STRUCTS = {
    "sum": "Sum", "prod": "Product", "max": "Max", "min": "Min", "any": "Any", "all": "All", "argmax": "Max",
    "argmin": "Min", "least": "Least", "most": "Most",
}  # fmt: skip
"""The struct in folds.h for each reduction and scan."""


class KernelBody:
    """The lines of one function, as they come to be."""

    def __init__(self, region: Region, choice: CppConfig) -> None:
        self.region, self.config = region, choice
        self.passes = Passes(region)
        self.value_codegen = CppValueCodegen(
            self.passes, choice.vector_axis, nontemporal_stores=choice.nontemporal_stores
        )
        self.sizes, self.row, self.vector_axis = self.passes.sizes, self.passes.row, choice.vector_axis
        self.lines: list[str] = []
        self.declared: set[str] = set()
        """Values of the whole row that are written down already."""

    def generate(self) -> list[str]:
        """The lines, all of them."""
        raise NotImplementedError

    def emit_parallel_pragma(self, scope: Scope) -> None:
        if self.config.parallel:
            scope.add("#pragma omp parallel for schedule(static)")

    def emit_outer_indices(self, scope: Scope, names: list[str], index: str) -> None:
        """Outer positions from one running number."""
        rest = index
        for name in reversed(names):
            size = self.sizes[name]
            last = name == names[0]
            scope.add(f"const int64_t {name} = {rest if last else f'{rest} % {size}'};")
            rest = f"({rest} / {size})" if not last else rest

    def row_loop_head(self, name: str, low: str = "", high: str = "") -> str:
        """The head of a loop over one axis of the row, from its end where scans run that way."""
        low, high = low or "0", high or str(self.sizes[name])
        if self.passes.is_reverse:
            return f"for (int64_t {name} = {high} - 1; {name} >= {low}; --{name})"
        return f"for (int64_t {name} = {low}; {name} < {high}; ++{name})"

    def row_index(self, last: str = "") -> str:
        """The running number of an element in its row; `last` stands for the last axis of the row."""
        terms, step = [], 1
        for name in reversed(self.row):
            shown = last or name if name == self.row[-1] else name
            terms.append(shown if step == 1 else f"{step} * {shown}")
            step *= self.sizes[name]
        return " + ".join(reversed(terms))

    def reduction_struct(self, entry: Reduction | Scan) -> str:
        """What a reduction or scan does with two values.

        Raises:
            Misfit: positions in a row that is too long for int32.
        """
        if entry.op in ARG_REDUCTIONS and self.region.row_size >= 2**31:
            raise Unsupported(f"{entry.op} in a row of {self.region.row_size:,}")
        return REDUCTION_STRUCTS[entry.op]

    def accumulator_ctype(self, fold: Reduction | Scan) -> str:
        """The C++ type of what is folded."""
        return COMPUTE_CTYPES[self.value_codegen.compute_dtype(fold.arg) if fold.op in ARG_REDUCTIONS else fold.dtype]

    def scans(self, wanted: Iterable[str], held: Iterable[str] = ()) -> list[Scan]:
        """The scans that a pass runs."""
        return [entry for entry in self.passes.dependencies(wanted, True, held) if isinstance(entry, Scan)]

    def emit_ready_row_values(self, scope: Scope, at: int) -> None:
        """Values of the whole row that can be had before a pass and that a store wants."""
        stored = [store.value for store in self.region.stores if not self.passes.is_stored_per_element(store)]
        self.emit_row_values(scope, [value for value in stored if self.region.pass_of[value] == at])

    def emit_row_values(self, scope: Scope, wanted: Iterable[str], held: Iterable[str] = ()) -> None:
        """Writes down what some values need of the whole row."""
        self.emit_entries(scope, self.passes.row_value_dependencies(wanted, held))

    def emit_entries(self, scope: Scope, entries: Iterable[Load | Step | Scan]) -> None:
        for entry in entries:
            if entry.value not in self.declared:
                self.value_codegen.emit_value(scope, entry)
                self.declared.add(entry.value)

    def emit_row_stores(self, scope: Scope) -> None:
        for store in self.region.stores:
            if not self.passes.is_stored_per_element(store):
                self.value_codegen.emit_store(scope, store)
