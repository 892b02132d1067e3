"""Generates Triton for a region on NVIDIA GPUs, in one of four loop structures.

Single tile: a tile holds whole rows, and all values stay in registers. Looped: a tile runs along its rows, once for
each pass that the reductions need. Split: as looped, but each row is split over programs that run in parallel; each
pass is a launch, which first combines the splits of the earlier passes unless a separate combine kernel did. Grid sync:
as split, but in one launch in which the splits of a row wait for each other between passes. A partial last tile of a
row is emitted separately, so that no other tile needs its mask.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.region import Load, Region, Scan, Store
from kernelwright.compiler.triton.configs import generate_configs
from kernelwright.compiler.triton.loops import RowLoops
from kernelwright.compiler.triton.op_templates import select_helpers
from kernelwright.compiler.triton.partials import Partials, Scratch
from kernelwright.compiler.triton.passes import TilePasses
from kernelwright.compiler.triton.reduction_grouping import partials_fit_32_bits
from kernelwright.compiler.triton.reductions import AnyReduction, ExactMean, RowReduction
from kernelwright.compiler.triton.scans import init_carry
from kernelwright.compiler.triton.source_lines import remove_dead_lines, select_definitions, wrap_line
from kernelwright.compiler.triton.tile import Tile, TritonConfig
from kernelwright.compiler.triton.triton_source import TritonSource
from kernelwright.compiler.triton.value_codegen import PREFETCH_SUFFIX, REGISTER_TILE_SUFFIX, TritonValueCodegen
from kernelwright.core.record import Record

__all__ = ["TritonConfig", "TritonSource", "generate_configs", "print_triton"]


def print_triton(region: Region, config: TritonConfig) -> TritonSource:
    """Generate the kernels of a region and the function that launches them.

    Raises:
        Unsupported: the Triton backend does not support a step, or not in the loop structure of the config.
    """
    return _Printer(region, config).generate()


class _EmittedKernel(Record, frozen=True, kw_only=True):
    """A kernel with its tensor arguments and number of programs."""

    name: str
    source: str
    tensors: tuple[str, ...]
    num_programs: int


class _Printer:
    def __init__(self, region: Region, config: TritonConfig) -> None:
        self.region, self.config = region, config
        self.tile = Tile(region, config)
        self.single_tile = self.tile.is_flat or not region.row or self.tile.block_n >= self.tile.size_n
        self.loops = RowLoops(self.tile, config.num_stages)
        self.num_splits, self.split_size = self.tile.num_splits, self.tile.split_size
        self.passes = TilePasses(region, self.tile, self.single_tile)
        self.value_codegen, self.partials = TritonValueCodegen(self.passes, config), Partials(self.passes, config)
        self.scans = [step for step in region.steps if isinstance(step, Scan)]
        if self.scans and self.num_splits > 1:
            raise Unsupported("scan along a split row")
        is_launch_per_pass = self.num_splits > 1 and not self.config.grid_sync
        if self.tile.register_tiles and (
            self.single_tile or self.scans or is_launch_per_pass or self.passes.last_pass == 0
        ):
            raise Unsupported("register tiles that no later pass of this launch reads")
        if self.scans and not self.single_tile and len({scan.reverse for scan in self.scans}) > 1:
            raise Unsupported("scans in opposite directions along a row longer than one tile")

    # ---- the four loop structures

    def generate(self) -> TritonSource:
        inputs, outputs = self.region.reads, self.region.writes
        if self.region.row and self.num_splits > 1:
            kernels = [self._emit_grid_sync_kernel()] if self.config.grid_sync else self._emit_split_kernels()
            scratch = self.partials.scratch()
        else:
            body = self._emit_single_tile() if self.single_tile else self._emit_looped()
            kernels, scratch = [self._build_kernel(f"{self.region.name}_kernel", body, self._describe())], []
        source = "\n\n".join(kernel.source for kernel in kernels)
        name = f"launch_{self.region.name}"
        return TritonSource(
            launcher_name=name,
            helpers=select_helpers(source),
            kernels=source,
            kernel_names=tuple(kernel.name for kernel in kernels),
            scratch={one.name: one.dtype for one in scratch},
            launcher=self._emit_launcher(name, [*inputs, *outputs], kernels, scratch),
        )

    def _describe(self) -> str:
        """The shape and the loop structure, for the docstring of a kernel."""
        if self.tile.is_flat:
            return f"{self.tile.size_m:,} elements"
        if not self.region.row:
            return f"{self.tile.size_m:,} by {self.tile.size_n:,} elements in tiles"
        return f"{self._describe_rows()}, {self._describe_passes()}"

    def _describe_rows(self) -> str:
        return f"{self.tile.size_m:,} row{'s' * (self.tile.size_m > 1)} of {self.tile.size_n:,}"

    def _describe_passes(self) -> str:
        if self.single_tile:
            return "one tile per row"
        num_passes = self.passes.last_pass + 1
        passes = {1: "one pass", 2: "two passes"}.get(num_passes, f"{num_passes} passes")
        if self.tile.register_tiles:
            passes += f", {self.tile.register_tiles} of {self.tile.num_steps} tiles kept in registers"
        return passes

    def _emit_single_tile(self) -> list[str]:
        stores = self.region.stores
        lines = []
        for entry in self.passes.sort_entries(self.passes.dependencies([store.value for store in stores], [])):
            reduction = self.passes.reduction_of.get(entry.value)
            if isinstance(reduction, ExactMean):
                lines += reduction.emit_single_tile(self.tile)
                lines += self.value_codegen.emit_reciprocals(reduction.values)
            elif isinstance(reduction, RowReduction):
                lines += self._finish_reduction(reduction, reduction.tile_accumulators(self.tile), "")
            else:
                lines += self.value_codegen.emit_lines(entry, 0)
        lines += [self.value_codegen.emit_store(store) for store in stores]
        start = "split * BLOCK_N" if self.num_splits > 1 else ""
        return [*select_definitions(self.tile.row_index_definitions(start), lines), *lines]

    def _emit_looped(self) -> list[str]:
        lines: list[str] = []
        computed: set[str] = set()
        for at in range(self.passes.last_pass + 1):
            lines += self._emit_pass(at, computed)
            for reduction in self.passes.reductions_at(at):
                states = [f"{state.name}_acc" for state in reduction.accumulators]
                lines += self._finish_reduction(reduction, states, self._lane_count("N"))
                computed |= set(reduction.values)
        row_stores = [store for store in self.region.stores if not self.passes.is_stored_per_element(store)]
        return [*lines, *self._emit_row_values(row_stores, computed), *map(self.value_codegen.emit_store, row_stores)]

    def _emit_split_kernels(self) -> list[_EmittedKernel]:
        kernels = []
        row_store_passes = [
            self.passes.pass_of[store.value]
            for store in self.region.stores
            if not self.passes.is_stored_per_element(store)
        ]
        for at in range(max([self.passes.last_pass, *row_store_passes]) + 1):
            reductions, element_stores, row_stores = (
                self.passes.reductions_at(at),
                self.passes.stores_at(at, True),
                self.passes.stores_at(at, False),
            )
            wanted = [one.operand.value for one in reductions] + [one.value for one in (*element_stores, *row_stores)]
            computed: set[str] = set()
            dependencies = self.passes.dependencies(wanted, [])
            earlier = [one for one in self.passes.reductions if set(one.values) & dependencies]
            if self.config.combine_kernel:
                lines = self._load_combined(earlier, computed)
            else:
                lines = self._combine_partials(earlier, computed)
            num_splits = self.num_splits if reductions or element_stores else 1
            if num_splits > 1:
                lines += self._emit_split_pass(at, reductions, computed)
            lines += self._emit_row_values(row_stores, computed)
            if num_splits > 1:
                lines += self._emit_first_split_stores(row_stores)
                docstring = f"{self._describe_rows()}, pass {at + 1} in {num_splits} splits"
            else:
                lines += map(self.value_codegen.emit_store, row_stores)
                docstring = "Combines all splits"
            name = f"{self.region.name}_pass_{at + 1}_kernel"
            kernels.append(self._build_kernel(name, lines, docstring, num_splits, at % 2 == 1))
            if reductions and self.config.combine_kernel:
                kernels.append(self._emit_combine_kernel(at, reductions))
        return kernels

    def _emit_combine_kernel(self, pass_index: int, reductions: Sequence[AnyReduction]) -> _EmittedKernel:
        """The kernel that combines the splits of a pass, one program per row."""
        if not partials_fit_32_bits(self.region):
            raise Unsupported("the combine kernel supports 32-bit partial results only")
        printer = _Printer(self.region, msgspec.structs.replace(self.config, BLOCK_M=1))
        lines = printer._combine_partials(reductions, set())
        row = printer.tile.offs_m if printer.tile.size_m > 1 else "0"
        values = [value for reduction in reductions for value in reduction.values]
        lines += [f"tl.store({printer._combined_pointer(value)} + {row}, {value})" for value in values]
        docstring = f"Combines the splits of pass {pass_index + 1}, one row per program"
        return printer._build_kernel(f"{self.region.name}_combine_{pass_index + 1}_kernel", lines, docstring, 1)

    def _load_combined(self, reductions: Sequence[AnyReduction], computed: set[str]) -> list[str]:
        """The loads of what combine kernels have stored."""
        values = [value for reduction in reductions for value in reduction.values]
        computed |= set(values)
        row, mask = self.tile.offs_m if self.tile.size_m > 1 else "0", ", mask=mask_m" if self.tile.needs_mask_m else ""
        loads = [f"{value} = tl.load({self._combined_pointer(value)} + {row}{mask})" for value in values]
        return [*loads, *self.value_codegen.emit_reciprocals(values)]

    def _combined_pointer(self, value: str) -> str:
        return self.tile.use_pointer(f"{value}_combined")

    def _emit_grid_sync_kernel(self) -> _EmittedKernel:
        if self.passes.last_pass == 0:
            raise Unsupported("grid sync of a row that needs one pass")
        if self.tile.block_m > 1:
            raise Unsupported("grid sync with BLOCK_M > 1: Triton 3.6 fails an assertion")
        if not partials_fit_32_bits(self.region):
            raise Unsupported("grid sync supports 32-bit partial results only")
        lines: list[str] = []
        computed: set[str] = set()
        for at in range(self.passes.last_pass + 1):
            reductions = self.passes.reductions_at(at)
            lines += self._emit_split_pass(at, reductions, computed)
            lines += self._combine_partials(reductions, computed)
        row_stores = [store for store in self.region.stores if not self.passes.is_stored_per_element(store)]
        lines += [*self._emit_row_values(row_stores, computed), *self._emit_first_split_stores(row_stores)]
        docstring = f"{self._describe()}, {self.num_splits} splits, grid-synchronised"
        return self._build_kernel(f"{self.region.name}_kernel", lines, docstring)

    def _emit_first_split_stores(self, stores: Sequence[Store]) -> list[str]:
        """The stores of values of the whole row, by the first split."""
        if not stores:
            return []
        return ["if split == 0:", *(f"    {self.value_codegen.emit_store(store)}" for store in stores)]

    def _emit_split_pass(self, pass_index: int, reductions: Sequence[AnyReduction], computed: set[str]) -> list[str]:
        """One split of a pass, and the stores of its partial results."""
        lines = self._emit_pass(pass_index, computed)
        end: list[str] = []
        for reduction in reductions:
            states = [f"{state.name}_acc" for state in reduction.accumulators]
            end += reduction.finish(self.tile, states, self._lane_count("split_len"), False)
            end += [self.partials.store_partial(state) for state in reduction.accumulators]
        definitions = [("split_len", f"split_len = {self.loops.split_length}")]
        return [*lines, *select_definitions(definitions, end), *end]

    def _combine_partials(self, reductions: Sequence[AnyReduction], computed: set[str]) -> list[str]:
        """The results of earlier passes, from the partial results of all splits."""
        if not reductions:
            return []
        lines: list[str] = []
        for reduction in reductions:
            states = [f"{state.name}_partials" for state in reduction.accumulators]
            lines += [line for state in reduction.accumulators for line in self.partials.load_partials(state)]
            count = f"tl.maximum(tl.minimum({self.split_size}, N - offs_split * {self.split_size}), 0)"
            lines += self._finish_reduction(reduction, states, count)
            computed |= set(reduction.values)
        return lines

    def _finish_reduction(self, reduction: AnyReduction, states: list[str], count: str) -> list[str]:
        """The results of a reduction over the whole row."""
        lines = reduction.finish(self.tile, states, count, True)
        return [*lines, *self.value_codegen.emit_reciprocals(reduction.values)]

    # ---- one pass

    def _lane_count(self, size: str) -> str:
        """The number of elements of a row of `size` that each lane of a tile accumulates."""
        if not self.tile.needs_mask_n:
            return f"tl.full({self.tile.shape(False)}, 0, tl.int32) + {size} // BLOCK_N"
        return f"({size} - tl.arange(0, BLOCK_N){self.tile.broadcast_suffix} + BLOCK_N - 1) // BLOCK_N"

    def _emit_pass(self, pass_index: int, computed: set[str]) -> list[str]:
        """One pass over a row or a split, with the results of its reductions left in their accumulators."""
        reductions, stores = self.passes.reductions_at(pass_index), self.passes.stores_at(pass_index, True)
        if not reductions and not stores:
            return []
        dependencies = self.passes.dependencies(self.passes.required_at(pass_index), computed)
        entries = self.passes.sort_entries(dependencies)
        inner = [entry for entry in entries if self.passes.varies_along_row(entry.value)]
        lines = []
        for entry in entries:
            if entry not in inner:
                lines += self.value_codegen.emit_lines(entry, pass_index)
                computed.add(entry.value)
            elif isinstance(entry, Scan):
                lines.append(init_carry(self.tile, entry))
        for reduction in reductions:
            lines += reduction.start(self.tile, self.loops.split_start)
        backwards = any(isinstance(entry, Scan) and entry.reverse for entry in entries)
        if backwards and any(isinstance(one, RowReduction) and one.tracks_index for one in reductions):
            raise Unsupported("argmax/argmin in a reversed pass")
        if pass_index > 0 and not reductions and not self.scans and self.config.num_stages == self.num_splits == 1:
            backwards = True  # the caches still hold the end of the row
        reused = [
            entry for entry in inner if isinstance(entry, Load) and len(self.value_codegen.reading_passes(entry)) > 1
        ]

        def emit_tile(suffix: str = "") -> list[str]:
            values = [line for entry in inner for line in self.value_codegen.emit_lines(entry, pass_index, suffix)]
            updates = [line for one in reductions for line in one.update(self.tile, self.loops.split_start)]
            return [*values, *updates, *(self.value_codegen.emit_store(store) for store in stores)]

        loops = []
        if not reductions and reused and 0 < self.tile.register_tiles == self.tile.num_steps - 1:
            # the loads are in flight while the register tiles are processed
            lines += self.loops.emit_single_step(lambda: self._emit_prefetch(reused, pass_index))
            loops.append(self.loops.emit_single_step(lambda: emit_tile(PREFETCH_SUFFIX)))
        elif self.tile.register_tiles < self.tile.num_steps:
            loops.append(self.loops.emit_loop(emit_tile, backwards, peel_last=not self.scans))
        if self.tile.register_tiles:
            lines += self._load_register_tiles(
                [load for load in reused if self.value_codegen.reading_passes(load)[0] == pass_index]
            )
            loops.append(self.loops.emit_register_tile_loop(lambda: emit_tile(REGISTER_TILE_SUFFIX)))
        # a pass that only stores processes the register tiles first, so that their registers are free for more loads
        for loop in loops if reductions else reversed(loops):
            lines += loop
        return lines

    def _emit_prefetch(self, loads: Sequence[Load], pass_index: int) -> list[str]:
        lines = []
        for load in loads:
            expr = self.value_codegen.load_expr(load, self.value_codegen.eviction_policy(load, pass_index))
            lines.append(f"{load.value}{PREFETCH_SUFFIX} = {expr}")
        return lines

    def _load_register_tiles(self, loads: Sequence[Load]) -> list[str]:
        """The loads of the register tiles, before a loop during which they are in flight."""
        if not loads:
            return []

        def emit_loads() -> list[str]:
            policy = self.value_codegen.single_read_policy
            return [f"{load.value}_tiles += ({self.value_codegen.load_expr(load, policy)},)" for load in loads]

        return [*(f"{load.value}_tiles = ()" for load in loads), *self.loops.emit_register_tile_loop(emit_loads)]

    def _emit_row_values(self, stores: Sequence[Store], computed: set[str]) -> list[str]:
        """The values of whole rows that some stores write."""
        lines = []
        for entry in self.passes.sort_entries(self.passes.dependencies([store.value for store in stores], computed)):
            lines += self.value_codegen.emit_lines(entry, 0)
            computed.add(entry.value)
        return lines

    # ---- kernels and their launch

    def _build_kernel(
        self, name: str, body: list[str], docstring: str, num_splits: int | None = None, backwards: bool = False
    ) -> _EmittedKernel:
        num_splits = self.num_splits if num_splits is None else num_splits
        body = remove_dead_lines(body)
        width = 1 << (self.num_splits - 1).bit_length()
        definitions = [*self.tile.definitions(num_splits, backwards), *self.value_codegen.table_definitions()]
        definitions.append(("offs_split", f"offs_split = tl.arange(0, {width}){self.tile.broadcast_suffix}"))
        in_bounds = f"offs_split < {self.num_splits}"
        split_mask = f"mask_m & ({in_bounds})" if self.tile.needs_mask_m else in_bounds
        definitions.append(("split_mask", f"split_mask = {split_mask}"))
        lines = [*select_definitions(definitions, body), *body]
        inputs, outputs = self.region.reads, self.region.writes
        names = [*inputs, *outputs, *(scratch.name for scratch in self.partials.scratch())]
        tensors = tuple(tensor for tensor in names if tensor in self.tile.used_tensors)
        self.tile.used_tensors.clear()
        signature = f"def {name}({', '.join(f'{tensor}_ptr' for tensor in tensors)}):"
        function = ["@triton.jit", signature, f'    """{docstring}."""', *(f"    {line}" for line in lines)]
        source = "\n".join(wrapped for line in function for wrapped in wrap_line(line)) + "\n"
        num_programs = self.tile.num_tiles * num_splits
        return _EmittedKernel(name=name, source=source, tensors=tensors, num_programs=num_programs)

    def _emit_launcher(
        self, name: str, tensors: list[str], kernels: Sequence[_EmittedKernel], scratch: Sequence[Scratch]
    ) -> str:
        inputs, outputs = self.region.reads, self.region.writes
        resident = f", resident_programs={self.num_splits}" if self.config.grid_sync else ""
        launchers = [
            f"launch_{kernel.name} = make_launcher({kernel.name}, {kernel.num_programs}, "
            f"{self.config.num_warps}{resident})"
            for kernel in kernels
        ]
        lines = [*launchers, "", "", f"def {name}({', '.join(tensors)}):"]
        lines += [f'    """Computes {", ".join(outputs)} from {", ".join(inputs) or "nothing"}."""']
        for one in scratch:
            shape, strides = f"({one.num_rows}, {one.num_splits})", f"({one.num_splits}, 1)"
            lines.append(f"    {one.name} = empty_on_device_of({tensors[0]}, {shape}, {strides}, torch.{one.dtype})")
        if self.config.grid_sync:
            lines.append(f"    {self.partials.workspace}.zero_()")
        lines += [f"    launch_{kernel.name}({', '.join(kernel.tensors)})" for kernel in kernels]
        return "\n".join(wrapped for line in lines for wrapped in wrap_line(line)) + "\n"
