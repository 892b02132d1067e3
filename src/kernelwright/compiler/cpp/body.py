"""What all C++ loop structures share: threads, indices, values of the whole row."""

from __future__ import annotations

from collections.abc import Iterable

from kernelwright.compiler.cpp.configs import CppConfig
from kernelwright.compiler.cpp.op_templates import COMPUTE_CTYPES, CppValueCodegen, Scope
from kernelwright.compiler.cpp.passes import ARG_REDUCTIONS, Passes
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.region import Load, Reduction, Region, Scan, Step

REDUCTION_STRUCTS = {
    "sum": "Sum", "prod": "Product", "max": "Max", "min": "Min", "any": "Any", "all": "All", "argmax": "Max",
    "argmin": "Min", "min_num": "MinNum", "max_num": "MaxNum",
}  # fmt: skip
"""The struct in reductions.h for each reduction and scan."""


def split_bounds(size: int, num_splits: int) -> str:
    """The declaration of the range [split_begin, split_end) of one split along an axis of `size` elements."""
    begin, end = f"{size} * split / {num_splits}", f"{size} * (split + 1) / {num_splits}"
    return f"const int64_t split_begin = {begin}, split_end = {end};"


class KernelBody:
    """Builder of the lines of one C++ function."""

    def __init__(self, region: Region, config: CppConfig) -> None:
        self.region, self.config = region, config
        self.passes = Passes(region)
        self.value_codegen = CppValueCodegen(
            self.passes, config.vector_axis, nontemporal_stores=config.nontemporal_stores
        )
        self.sizes, self.row, self.vector_axis = self.passes.sizes, self.passes.row, config.vector_axis
        self.lines: list[str] = []
        self.declared: set[str] = set()
        """Values of the whole row that the lines so far declare."""

    def generate(self) -> list[str]:
        """Generate all lines of the body."""
        raise NotImplementedError

    def emit_parallel_pragma(self, scope: Scope) -> None:
        """Emit the OpenMP pragma if the config runs on all threads."""
        if self.config.parallel:
            scope.add("#pragma omp parallel for schedule(static)")

    def emit_outer_indices(self, scope: Scope, names: list[str], index: str) -> None:
        """Emit the outer indices, computed from one linear index."""
        remaining = index
        for name in reversed(names):
            size = self.sizes[name]
            is_outermost = name == names[0]
            scope.add(f"const int64_t {name} = {remaining if is_outermost else f'{remaining} % {size}'};")
            remaining = f"({remaining} / {size})" if not is_outermost else remaining

    def row_loop_head(self, name: str, begin: str = "", end: str = "") -> str:
        """The head of a loop over one axis of the row, from its end if the scans are reversed."""
        begin, end = begin or "0", end or str(self.sizes[name])
        if self.passes.is_reverse:
            return f"for (int64_t {name} = {end} - 1; {name} >= {begin}; --{name})"
        return f"for (int64_t {name} = {begin}; {name} < {end}; ++{name})"

    def row_index(self) -> str:
        """The linear index of an element in its row."""
        terms, stride = [], 1
        for name in reversed(self.row):
            terms.append(name if stride == 1 else f"{stride} * {name}")
            stride *= self.sizes[name]
        return " + ".join(reversed(terms))

    def reduction_struct(self, entry: Reduction | Scan) -> str:
        """The struct in reductions.h for a reduction or scan.

        Raises:
            Unsupported: argmax or argmin in a row that is too long for int32 indices.
        """
        if entry.op in ARG_REDUCTIONS and self.region.row_size >= 2**31:
            raise Unsupported(f"{entry.op} in a row of {self.region.row_size:,}")
        return REDUCTION_STRUCTS[entry.op]

    def accumulator_ctype(self, reduction: Reduction | Scan) -> str:
        """The C++ type of the elements that are accumulated."""
        is_arg = reduction.op in ARG_REDUCTIONS
        return COMPUTE_CTYPES[self.value_codegen.compute_dtype(reduction.arg) if is_arg else reduction.dtype]

    def scans(self, wanted: Iterable[str], stop: Iterable[str] = ()) -> list[Scan]:
        """The scans that a pass runs for some values."""
        return [entry for entry in self.passes.dependencies(wanted, True, stop) if isinstance(entry, Scan)]

    def emit_ready_row_values(self, scope: Scope, pass_index: int) -> None:
        """Emit stored values of the whole row that are ready before a pass."""
        stored = [store.value for store in self.region.stores if not self.passes.is_stored_per_element(store)]
        self.emit_row_values(scope, [value for value in stored if self.region.pass_of[value] == pass_index])

    def emit_row_values(self, scope: Scope, wanted: Iterable[str], stop: Iterable[str] = ()) -> None:
        """Emit the values of the whole row that some values depend on."""
        self.emit_entries(scope, self.passes.row_value_dependencies(wanted, stop))

    def emit_entries(self, scope: Scope, entries: Iterable[Load | Step | Scan]) -> None:
        """Emit entries that are not declared yet."""
        for entry in entries:
            if entry.value not in self.declared:
                self.value_codegen.emit_value(scope, entry)
                self.declared.add(entry.value)

    def emit_row_stores(self, scope: Scope) -> None:
        """Emit the stores of one value per row."""
        for store in self.region.stores:
            if not self.passes.is_stored_per_element(store):
                self.value_codegen.emit_store(scope, store)
