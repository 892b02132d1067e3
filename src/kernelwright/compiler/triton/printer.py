"""A region as Triton for NVIDIA GPUs, in four ways.

Whole: a tile holds its rows at once, and every value stays in registers. Looped: a tile runs along its rows, once for
each sweep that a reduction needs before the next. Split: as looped, but a row is cut into parts that run side by
side; each sweep is a launch of its own, and begins with putting the parts of the sweeps before it together, unless a
launch between them has done that. Met: as split, but in one launch, in which the parts of a row wait for each other
between sweeps. Where a row ends within a step, that step is printed apart, and no other needs its mask.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.region import Load, Region, Scan, Store
from kernelwright.compiler.triton.configs import generate_configs
from kernelwright.compiler.triton.launcher_template import LAUNCHER_TEMPLATE
from kernelwright.compiler.triton.loops import RowLoops
from kernelwright.compiler.triton.op_templates import select_helpers
from kernelwright.compiler.triton.partials import Partials, Scratch
from kernelwright.compiler.triton.passes import TilePasses
from kernelwright.compiler.triton.reductions import AnyReduction, ExactMean, RowReduction, partials_fit_32_bits
from kernelwright.compiler.triton.scans import init_carry
from kernelwright.compiler.triton.source_lines import remove_dead_lines, select_definitions, wrap_line
from kernelwright.compiler.triton.tile import Tile, TritonConfig
from kernelwright.compiler.triton.value_codegen import PREFETCH_SUFFIX, REGISTER_TILE_SUFFIX, TritonValueCodegen
from kernelwright.core.record import Record

__all__ = ["LAUNCHER_TEMPLATE", "TritonConfig", "TritonSource", "generate_configs", "print_triton"]


class TritonSource(Record, frozen=True, kw_only=True):
    """A region as text, to stand behind `import torch`, `import triton`, `import triton.language as tl`,
    `from triton.language.extra import libdevice` and `from triton.runtime import driver`.

    Attributes:
        launcher_name: of the function that launches.
        helpers: small functions that the kernels call; a file with several regions holds each once.
        kernels: the `@triton.jit` functions, in the order of their launches.
        kernel_names: what they are called.
        scratch: tensors that the launch makes for partial results, with their dtypes.
        launcher: the Python function `launch_NAME(inputs..., outputs...)`.
    """

    launcher_name: str
    helpers: tuple[str, ...]
    kernels: str
    kernel_names: tuple[str, ...]
    scratch: dict[str, str]
    launcher: str

    @property
    def source(self) -> str:
        """Everything on the device."""
        return "\n\n".join([*self.helpers, self.kernels])


def print_triton(region: Region, choice: TritonConfig) -> TritonSource:
    """The kernels of a region and the function that launches them.

    Raises:
        Misfit: a step that has no form here, or a scan along a row that is cut.
    """
    return _Printer(region, choice).generate()


class _EmittedKernel(Record, frozen=True, kw_only=True):
    """One finished kernel: its tensors and how many programs it takes."""

    name: str
    text: str
    tensors: tuple[str, ...]
    num_programs: int


class _Printer:
    def __init__(self, region: Region, choice: TritonConfig) -> None:
        self.region, self.config = region, choice
        self.tile = Tile(region, choice)
        self.single_tile = self.tile.is_flat or not region.row or self.tile.block_n >= self.tile.size_n
        self.loops = RowLoops(self.tile, choice.num_stages)
        self.num_splits, self.split_size = self.tile.num_splits, self.tile.split_size
        self.passes = TilePasses(region, self.tile, self.single_tile)
        self.value_codegen, self.partials = TritonValueCodegen(self.passes, choice), Partials(self.passes, choice)
        self.scans = [step for step in region.steps if isinstance(step, Scan)]
        if self.scans and self.num_splits > 1:
            raise Unsupported("a scan along a row that is cut into parts")
        alone = self.num_splits > 1 and not self.config.grid_sync
        if self.tile.register_tiles and (self.single_tile or self.scans or alone or self.passes.last_pass == 0):
            raise Unsupported("steps held in registers where no later sweep of the same launch reads them again")
        if self.scans and not self.single_tile and len({scan.reverse for scan in self.scans}) > 1:
            raise Unsupported("scans in both directions along a row that is too long for one tile")

    # ---- the four ways

    def generate(self) -> TritonSource:
        inputs, outputs = self.region.reads, self.region.writes
        if self.region.row and self.num_splits > 1:
            kernels, scratch = (
                self._emit_grid_sync_kernel() if self.config.grid_sync else self._emit_split_kernels(),
                self.partials.scratch(),
            )
        else:
            body = self._emit_single_tile() if self.single_tile else self._emit_looped()
            kernels, scratch = [self._build_kernel(f"{self.region.name}_kernel", body, self._describe())], []
        text = "\n\n".join(kernel.text for kernel in kernels)
        name = f"launch_{self.region.name}"
        return TritonSource(
            launcher_name=name,
            helpers=select_helpers(text),
            kernels=text,
            kernel_names=tuple(kernel.name for kernel in kernels),
            scratch={one.name: one.dtype for one in scratch},
            launcher=self._emit_launcher(name, [*inputs, *outputs], kernels, scratch),
        )

    def _describe(self) -> str:
        """How a kernel runs, in words."""
        if self.tile.is_flat:
            return f"{self.tile.size_m:,} elements"
        if not self.region.row:
            return f"{self.tile.size_m:,} by {self.tile.size_n:,} elements in tiles"
        size = f"{self.tile.size_m:,} row{'s' * (self.tile.size_m > 1)} of {self.tile.size_n:,}"
        sweeps = self.passes.last_pass + 1
        how = {1: "swept once", 2: "swept twice"}.get(sweeps, f"swept {sweeps} times")
        if self.tile.register_tiles:
            how += f", {self.tile.register_tiles} of {self.tile.num_steps} steps held in registers"
        return f"{size}, {'held whole' if self.single_tile else how}"

    def _emit_single_tile(self) -> list[str]:
        stores = self.region.stores
        lines = []
        for entry in self.passes.sort_entries(self.passes.dependencies([store.value for store in stores], [])):
            fold = self.passes.reduction_of.get(entry.value)
            if isinstance(fold, ExactMean):
                lines += [*fold.emit_single_tile(self.tile), *self.value_codegen.emit_reciprocals(fold.values)]
            elif isinstance(fold, RowReduction):
                lines += self._finish_reduction(fold, fold.tile_accumulators(self.tile), "")
            else:
                lines += self.value_codegen.emit_lines(entry, 0)
        lines += [self.value_codegen.emit_store(store) for store in stores]
        start = "part * BLOCK_N" if self.num_splits > 1 else ""
        return [*select_definitions(self.tile.row_index_definitions(start), lines), *lines]

    def _emit_looped(self) -> list[str]:
        lines: list[str] = []
        made: set[str] = set()
        for at in range(self.passes.last_pass + 1):
            lines += self._emit_pass(at, made)
            for fold in self.passes.reductions_at(at):
                states = [f"{state.name}_tile" for state in fold.accumulators]
                lines += self._finish_reduction(fold, states, self._lane_count("N"))
                made |= set(fold.values)
        outer = [store for store in self.region.stores if not self.passes.is_stored_per_element(store)]
        return [*lines, *self._emit_row_values(outer, made), *map(self.value_codegen.emit_store, outer)]

    def _emit_split_kernels(self) -> list[_EmittedKernel]:
        kernels = []
        outside = [
            self.passes.pass_of[store.value]
            for store in self.region.stores
            if not self.passes.is_stored_per_element(store)
        ]
        for at in range(max([self.passes.last_pass, *outside]) + 1):
            folds, inside, outer = (
                self.passes.reductions_at(at),
                self.passes.stores_at(at, True),
                self.passes.stores_at(at, False),
            )
            wanted = [fold.operand.value for fold in folds] + [store.value for store in (*inside, *outer)]
            made: set[str] = set()
            before = [
                fold for fold in self.passes.reductions if set(fold.values) & self.passes.dependencies(wanted, [])
            ]
            lines = (
                self._load_combined(before, made)
                if self.config.combine_kernel
                else self._combine_partials(before, made)
            )
            parts = self.num_splits if folds or inside else 1
            if parts > 1:
                lines += self._emit_split_pass(at, folds, made)
            lines += self._emit_row_values(outer, made)
            lines += self._emit_first_split_stores(outer) if parts > 1 else map(self.value_codegen.emit_store, outer)
            tale = f"{self._describe().rsplit(', ', 1)[0]}, sweep {at + 1} in {parts} parts"
            tale = tale if parts > 1 else "What all parts give together"
            kernels.append(self._build_kernel(f"{self.region.name}_kernel_{at + 1}", lines, tale, parts, at % 2 == 1))
            if folds and self.config.combine_kernel:
                kernels.append(self._emit_combine_kernel(at, folds))
        return kernels

    def _emit_combine_kernel(self, at: int, folds: Sequence[AnyReduction]) -> _EmittedKernel:
        """Puts the parts of each row together, a program for each."""
        if not partials_fit_32_bits(self.region):
            raise Unsupported("parts put together by a launch of its own that are more than numbers of 32 bits")
        alone = _Printer(self.region, msgspec.structs.replace(self.config, BLOCK_M=1))
        lines = alone._combine_partials(folds, set())
        row = alone.tile.offs_m if alone.tile.size_m > 1 else "0"
        values = [value for fold in folds for value in fold.values]
        lines += [f"tl.store({alone._combined_pointer(value)} + {row}, {value})" for value in values]
        tale = f"What the parts of sweep {at + 1} give together, a row each"
        return alone._build_kernel(f"{self.region.name}_join_{at + 1}", lines, tale, 1)

    def _load_combined(self, folds: Sequence[AnyReduction], made: set[str]) -> list[str]:
        """What earlier launches have put together."""
        values = [value for fold in folds for value in fold.values]
        made |= set(values)
        row, mask = self.tile.offs_m if self.tile.size_m > 1 else "0", ", mask=mask_m" if self.tile.needs_mask_m else ""
        loads = [f"{value} = tl.load({self._combined_pointer(value)} + {row}{mask})" for value in values]
        return [*loads, *self.value_codegen.emit_reciprocals(values)]

    def _combined_pointer(self, value: str) -> str:
        return self.tile.use_pointer(f"{value}_joined")

    def _emit_grid_sync_kernel(self) -> list[_EmittedKernel]:
        if self.passes.last_pass == 0:
            raise Unsupported("parts of a row that is swept once have nothing to wait for")
        if self.tile.block_m > 1:
            raise Unsupported("parts of many rows at once that wait: Triton 3.6 ends in an assertion of its own")
        if not partials_fit_32_bits(self.region):
            raise Unsupported("parts of a row that would tell each other more than numbers of 32 bits")
        lines: list[str] = []
        made: set[str] = set()
        for at in range(self.passes.last_pass + 1):
            folds = self.passes.reductions_at(at)
            lines += [*self._emit_split_pass(at, folds, made), *self._combine_partials(folds, made)]
        outer = [store for store in self.region.stores if not self.passes.is_stored_per_element(store)]
        lines += [*self._emit_row_values(outer, made), *self._emit_first_split_stores(outer)]
        tale = f"{self._describe()}, in {self.num_splits} parts that wait for each other"
        return [self._build_kernel(f"{self.region.name}_kernel", lines, tale)]

    def _emit_first_split_stores(self, stores: Sequence[Store]) -> list[str]:
        """What is known of whole rows, written once."""
        return ["if part == 0:", *(f"    {self.value_codegen.emit_store(store)}" for store in stores)] if stores else []

    def _emit_split_pass(self, at: int, folds: Sequence[AnyReduction], made: set[str]) -> list[str]:
        """One part of a sweep, and its results written down."""
        lines = self._emit_pass(at, made)
        done: list[str] = []
        for fold in folds:
            states = [f"{state.name}_tile" for state in fold.accumulators]
            done += fold.finish(self.tile, states, self._lane_count("size"), False)
            done += [self.partials.store_partial(state) for state in fold.accumulators]
        return [*lines, *select_definitions([("size", f"size = {self.loops.split_length}")], done), *done]

    def _combine_partials(self, folds: Sequence[AnyReduction], made: set[str]) -> list[str]:
        """The results of earlier sweeps, from their parts."""
        if not folds:
            return []
        lines: list[str] = []
        for fold in folds:
            lines += [f"{state.name}_parts = {self.partials.load_partials(state)}" for state in fold.accumulators]
            count = f"tl.maximum(tl.minimum({self.split_size}, N - parts * {self.split_size}), 0)"
            lines += self._finish_reduction(fold, [f"{state.name}_parts" for state in fold.accumulators], count)
            made |= set(fold.values)
        return lines

    def _finish_reduction(self, fold: AnyReduction, states: list[str], count: str) -> list[str]:
        """The values of a fold, known of the whole row."""
        return [*fold.finish(self.tile, states, count, True), *self.value_codegen.emit_reciprocals(fold.values)]

    # ---- one sweep

    def _lane_count(self, size: str) -> str:
        """How many elements of a row of that size each lane of a tile sees."""
        if not self.tile.needs_mask_n:
            return f"tl.full({self.tile.shape(False)}, 0, tl.int32) + {size} // BLOCK_N"
        return f"({size} - tl.arange(0, BLOCK_N){self.tile.broadcast_suffix} + BLOCK_N - 1) // BLOCK_N"

    def _emit_pass(self, at: int, made: set[str]) -> list[str]:
        """One sweep over a row or a part of it, with its reductions left in their tiles."""
        folds, stores = self.passes.reductions_at(at), self.passes.stores_at(at, True)
        if not folds and not stores:
            return []
        behind = self.passes.sort_entries(self.passes.dependencies(self.passes.required_at(at), made))
        inner = [entry for entry in behind if self.passes.varies_along_row(entry.value)]
        lines = []
        for entry in behind:
            if entry not in inner:
                lines += self.value_codegen.emit_lines(entry, at)
                made.add(entry.value)
            elif isinstance(entry, Scan):
                lines.append(init_carry(self.tile, entry))
        for fold in folds:
            lines += fold.start(self.tile, self.loops.split_start)
        backwards = any(isinstance(entry, Scan) and entry.reverse for entry in behind)
        if backwards and any(isinstance(fold, RowReduction) and fold.tracks_index for fold in folds):
            raise Unsupported("the first of equals in a row that is swept from its end")
        if at > 0 and not folds and not self.scans and self.config.num_stages == self.num_splits == 1:
            backwards = True  # the end of a row is what the caches still hold
        again = [
            entry for entry in inner if isinstance(entry, Load) and len(self.value_codegen.reading_passes(entry)) > 1
        ]

        def inside(there: str = "") -> list[str]:
            values = [line for entry in inner for line in self.value_codegen.emit_lines(entry, at, there)]
            updates = [line for fold in folds for line in fold.update(self.tile, self.loops.split_start)]
            return [*values, *updates, *(self.value_codegen.emit_store(store) for store in stores)]

        parts = []
        if (
            not folds and again and 0 < self.tile.register_tiles == self.tile.num_steps - 1
        ):  # under way beside what is held
            lines += self.loops.emit_single_step(lambda: self._emit_prefetch(again, at))
            parts.append(self.loops.emit_single_step(lambda: inside(PREFETCH_SUFFIX)))
        elif self.tile.register_tiles < self.tile.num_steps:
            parts.append(self.loops.emit_loop(inside, backwards, peel_last=not self.scans))
        if self.tile.register_tiles:
            lines += self._load_register_tiles(
                [load for load in again if self.value_codegen.reading_passes(load)[0] == at]
            )
            parts.append(self.loops.emit_register_tile_loop(lambda: inside(REGISTER_TILE_SUFFIX)))
        for part in parts if folds else reversed(parts):  # only written, what is held is done with before more is read
            lines += part
        return lines

    def _emit_prefetch(self, loads: Sequence[Load], at: int) -> list[str]:
        return [
            f"{load.value}{PREFETCH_SUFFIX} = "
            f"{self.value_codegen.load_expr(load, self.value_codegen.eviction_policy(load, at))}"
            for load in loads
        ]

    def _load_register_tiles(self, loads: Sequence[Load]) -> list[str]:
        """Reads what is held before a loop, which it is under way beside."""
        if not loads:
            return []
        reads = self.loops.emit_register_tile_loop(
            lambda: [
                f"{load.value}_held += ({self.value_codegen.load_expr(load, self.value_codegen.single_read_policy)},)"
                for load in loads
            ]
        )
        return [*(f"{load.value}_held = ()" for load in loads), *reads]

    def _emit_row_values(self, stores: Sequence[Store], made: set[str]) -> list[str]:
        """Values of whole rows, which some stores write."""
        lines = []
        for entry in self.passes.sort_entries(self.passes.dependencies([store.value for store in stores], made)):
            lines += self.value_codegen.emit_lines(entry, 0)
            made.add(entry.value)
        return lines

    # ---- kernels and their launch

    def _build_kernel(
        self, name: str, body: list[str], tale: str, parts: int | None = None, backwards: bool = False
    ) -> _EmittedKernel:
        parts = self.num_splits if parts is None else parts
        body = remove_dead_lines(body)
        width = 1 << (self.num_splits - 1).bit_length()
        given = [*self.tile.definitions(parts, backwards), *self.value_codegen.table_definitions()]
        given.append(("parts", f"parts = tl.arange(0, {width}){self.tile.broadcast_suffix}"))
        there = f"mask_m & (parts < {self.num_splits})" if self.tile.needs_mask_m else f"parts < {self.num_splits}"
        given.append(("there", f"there = {there}"))
        lines = [*select_definitions(given, body), *body]
        inputs, outputs = self.region.reads, self.region.writes
        names = [*inputs, *outputs, *(scratch.name for scratch in self.partials.scratch())]
        tensors = tuple(name for name in names if name in self.tile.used_tensors)
        self.tile.used_tensors.clear()
        head = f"def {name}({', '.join(f'{tensor}_ptr' for tensor in tensors)}):"
        whole = ["@triton.jit", head, f'    """{tale}."""', *(f"    {line}" for line in lines)]
        text = "\n".join(part for line in whole for part in wrap_line(line)) + "\n"
        return _EmittedKernel(name=name, text=text, tensors=tensors, num_programs=self.tile.num_tiles * parts)

    def _emit_launcher(
        self, name: str, tensors: list[str], kernels: Sequence[_EmittedKernel], scratch: Sequence[Scratch]
    ) -> str:
        inputs, outputs = self.region.reads, self.region.writes
        together = f", together={self.num_splits}" if self.config.grid_sync else ""
        starts = [
            f"start_{kernel.name} = starter({kernel.name}, {kernel.num_programs}, {self.config.num_warps}{together})"
            for kernel in kernels
        ]
        lines = [*starts, "", "", f"def {name}({', '.join(tensors)}):"]
        lines += [f'    """Computes {", ".join(outputs)} from {", ".join(inputs) or "nothing"}."""']
        for one in scratch:
            memory = (
                f"memory_beside({tensors[0]}, ({one.num_rows}, {one.num_splits}), ({one.num_splits}, "
                f"1), torch.{one.dtype})"
            )
            lines.append(f"    {one.name} = {memory}")
        if self.config.grid_sync:
            lines.append(f"    {self.partials.workspace}.zero_()")
        lines += [f"    start_{kernel.name}({', '.join(kernel.tensors)})" for kernel in kernels]
        return "\n".join(part for line in lines for part in wrap_line(line)) + "\n"
