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

from kernelwright.compiler.regions.axes import Misfit
from kernelwright.compiler.regions.region import Load, Region, Scan, Store
from kernelwright.compiler.triton.configs import choices
from kernelwright.compiler.triton.launcher_template import START
from kernelwright.compiler.triton.loops import Loops
from kernelwright.compiler.triton.op_templates import helpers_of
from kernelwright.compiler.triton.partials import Partials, Scratch
from kernelwright.compiler.triton.passes import Sweeps
from kernelwright.compiler.triton.reductions import AnyFold, Fold, Mean, told_in_words
from kernelwright.compiler.triton.scans import carry_start
from kernelwright.compiler.triton.source_lines import used, without_dead, wrapped
from kernelwright.compiler.triton.tile import CudaChoice, Tile
from kernelwright.compiler.triton.value_codegen import AHEAD, HELD, Values
from kernelwright.core.records import Record

__all__ = ["START", "CudaChoice", "Printed", "choices", "print_triton"]


class Printed(Record, frozen=True, kw_only=True):
    """A region as text, to stand behind `import torch`, `import triton`, `import triton.language as tl`,
    `from triton.language.extra import libdevice` and `from triton.runtime import driver`.

    Attributes:
        name: of the function that launches.
        helpers: small functions that the kernels call; a file with several regions holds each once.
        kernels: the `@triton.jit` functions, in the order of their launches.
        kernel_names: what they are called.
        scratch: tensors that the launch makes for partial results, with their dtypes.
        launch: the Python function `launch_NAME(inputs..., outputs...)`.
    """

    name: str
    helpers: tuple[str, ...]
    kernels: str
    kernel_names: tuple[str, ...]
    scratch: dict[str, str]
    launch: str

    @property
    def source(self) -> str:
        """Everything on the device."""
        return "\n\n".join([*self.helpers, self.kernels])


def print_triton(region: Region, choice: CudaChoice) -> Printed:
    """The kernels of a region and the function that launches them.

    Raises:
        Misfit: a step that has no form here, or a scan along a row that is cut.
    """
    return _Printer(region, choice).printed()


class _Kernel(Record, frozen=True, kw_only=True):
    """One finished kernel: its tensors and how many programs it takes."""

    name: str
    text: str
    tensors: tuple[str, ...]
    programs: int


class _Printer:
    def __init__(self, region: Region, choice: CudaChoice) -> None:
        self.region, self.choice = region, choice
        self.tile = Tile(region, choice)
        self.whole = self.tile.flat or not region.row or self.tile.block_n >= self.tile.columns
        self.loops = Loops(self.tile, choice.stages)
        self.parts, self.part_size = self.tile.parts, self.tile.part_size
        self.sweeps = Sweeps(region, self.tile, self.whole)
        self.values, self.partials = Values(self.sweeps, choice), Partials(self.sweeps, choice)
        self.scans = [step for step in region.steps if isinstance(step, Scan)]
        if self.scans and self.parts > 1:
            raise Misfit("a scan along a row that is cut into parts")
        alone = self.parts > 1 and not self.choice.meet
        if self.tile.held and (self.whole or self.scans or alone or self.sweeps.last == 0):
            raise Misfit("steps held in registers where no later sweep of the same launch reads them again")
        if self.scans and not self.whole and len({scan.reverse for scan in self.scans}) > 1:
            raise Misfit("scans in both directions along a row that is too long for one tile")

    # ---- the four ways

    def printed(self) -> Printed:
        inputs, outputs = self.region.reads, self.region.writes
        if self.region.row and self.parts > 1:
            kernels, scratch = self._met() if self.choice.meet else self._split(), self.partials.scratch()
        else:
            body = self._whole() if self.whole else self._looped()
            kernels, scratch = [self._kernel(f"{self.region.name}_kernel", body, self._tale())], []
        text = "\n\n".join(kernel.text for kernel in kernels)
        name = f"launch_{self.region.name}"
        return Printed(
            name=name,
            helpers=helpers_of(text),
            kernels=text,
            kernel_names=tuple(kernel.name for kernel in kernels),
            scratch={one.name: one.dtype for one in scratch},
            launch=self._launch(name, [*inputs, *outputs], kernels, scratch),
        )

    def _tale(self) -> str:
        """How a kernel runs, in words."""
        if self.tile.flat:
            return f"{self.tile.rows:,} elements"
        if not self.region.row:
            return f"{self.tile.rows:,} by {self.tile.columns:,} elements in tiles"
        size = f"{self.tile.rows:,} row{'s' * (self.tile.rows > 1)} of {self.tile.columns:,}"
        sweeps = self.sweeps.last + 1
        how = {1: "swept once", 2: "swept twice"}.get(sweeps, f"swept {sweeps} times")
        if self.tile.held:
            how += f", {self.tile.held} of {self.tile.steps} steps held in registers"
        return f"{size}, {'held whole' if self.whole else how}"

    def _whole(self) -> list[str]:
        stores = self.region.stores
        lines = []
        for entry in self.sweeps.ordered(self.sweeps.behind([store.value for store in stores], [])):
            fold = self.sweeps.fold_of.get(entry.value)
            if isinstance(fold, Mean):
                lines += [*fold.of_whole(self.tile), *self.values.reciprocals(fold.values)]
            elif isinstance(fold, Fold):
                lines += self._finished(fold, fold.taken(self.tile), "")
            else:
                lines += self.values.lines(entry, 0)
        lines += [self.values.store(store) for store in stores]
        start = "part * BLOCK_N" if self.parts > 1 else ""
        return [*used(self.tile.columns_from(start), lines), *lines]

    def _looped(self) -> list[str]:
        lines: list[str] = []
        made: set[str] = set()
        for at in range(self.sweeps.last + 1):
            lines += self._sweep_lines(at, made)
            for fold in self.sweeps.folds_at(at):
                states = [f"{state.name}_tile" for state in fold.states]
                lines += self._finished(fold, states, self._lane_count("N"))
                made |= set(fold.values)
        outer = [store for store in self.region.stores if not self.sweeps.stored_inside(store)]
        return [*lines, *self._outer_values(outer, made), *map(self.values.store, outer)]

    def _split(self) -> list[_Kernel]:
        kernels = []
        outside = [
            self.sweeps.sweep[store.value] for store in self.region.stores if not self.sweeps.stored_inside(store)
        ]
        for at in range(max([self.sweeps.last, *outside]) + 1):
            folds, inside, outer = (
                self.sweeps.folds_at(at),
                self.sweeps.stores_at(at, True),
                self.sweeps.stores_at(at, False),
            )
            wanted = [fold.operand.value for fold in folds] + [store.value for store in (*inside, *outer)]
            made: set[str] = set()
            before = [fold for fold in self.sweeps.folds if set(fold.values) & self.sweeps.behind(wanted, [])]
            lines = self._joined_before(before, made) if self.choice.join else self._put_together(before, made)
            parts = self.parts if folds or inside else 1
            if parts > 1:
                lines += self._part_lines(at, folds, made)
            lines += self._outer_values(outer, made)
            lines += self._stores_of_first_part(outer) if parts > 1 else map(self.values.store, outer)
            tale = f"{self._tale().rsplit(', ', 1)[0]}, sweep {at + 1} in {parts} parts"
            tale = tale if parts > 1 else "What all parts give together"
            kernels.append(self._kernel(f"{self.region.name}_kernel_{at + 1}", lines, tale, parts, at % 2 == 1))
            if folds and self.choice.join:
                kernels.append(self._join(at, folds))
        return kernels

    def _join(self, at: int, folds: Sequence[AnyFold]) -> _Kernel:
        """Puts the parts of each row together, a program for each."""
        if not told_in_words(self.region):
            raise Misfit("parts put together by a launch of its own that are more than numbers of 32 bits")
        alone = _Printer(self.region, msgspec.structs.replace(self.choice, outer=1))
        lines = alone._put_together(folds, set())
        row = alone.tile.m if alone.tile.rows > 1 else "0"
        values = [value for fold in folds for value in fold.values]
        lines += [f"tl.store({alone._joined(value)} + {row}, {value})" for value in values]
        tale = f"What the parts of sweep {at + 1} give together, a row each"
        return alone._kernel(f"{self.region.name}_join_{at + 1}", lines, tale, 1)

    def _joined_before(self, folds: Sequence[AnyFold], made: set[str]) -> list[str]:
        """What earlier launches have put together."""
        values = [value for fold in folds for value in fold.values]
        made |= set(values)
        row, mask = self.tile.m if self.tile.rows > 1 else "0", ", mask=mask_m" if self.tile.ragged_m else ""
        loads = [f"{value} = tl.load({self._joined(value)} + {row}{mask})" for value in values]
        return [*loads, *self.values.reciprocals(values)]

    def _joined(self, value: str) -> str:
        return self.tile.pointer(f"{value}_joined")

    def _met(self) -> list[_Kernel]:
        if self.sweeps.last == 0:
            raise Misfit("parts of a row that is swept once have nothing to wait for")
        if self.tile.block_m > 1:
            raise Misfit("parts of many rows at once that wait: Triton 3.6 ends in an assertion of its own")
        if not told_in_words(self.region):
            raise Misfit("parts of a row that would tell each other more than numbers of 32 bits")
        lines: list[str] = []
        made: set[str] = set()
        for at in range(self.sweeps.last + 1):
            folds = self.sweeps.folds_at(at)
            lines += [*self._part_lines(at, folds, made), *self._put_together(folds, made)]
        outer = [store for store in self.region.stores if not self.sweeps.stored_inside(store)]
        lines += [*self._outer_values(outer, made), *self._stores_of_first_part(outer)]
        tale = f"{self._tale()}, in {self.parts} parts that wait for each other"
        return [self._kernel(f"{self.region.name}_kernel", lines, tale)]

    def _stores_of_first_part(self, stores: Sequence[Store]) -> list[str]:
        """What is known of whole rows, written once."""
        return ["if part == 0:", *(f"    {self.values.store(store)}" for store in stores)] if stores else []

    def _part_lines(self, at: int, folds: Sequence[AnyFold], made: set[str]) -> list[str]:
        """One part of a sweep, and its results written down."""
        lines = self._sweep_lines(at, made)
        done: list[str] = []
        for fold in folds:
            states = [f"{state.name}_tile" for state in fold.states]
            done += fold.finish(self.tile, states, self._lane_count("size"), False)
            done += [self.partials.written_down(state) for state in fold.states]
        return [*lines, *used([("size", f"size = {self.loops.size}")], done), *done]

    def _put_together(self, folds: Sequence[AnyFold], made: set[str]) -> list[str]:
        """The results of earlier sweeps, from their parts."""
        if not folds:
            return []
        lines: list[str] = []
        for fold in folds:
            lines += [f"{state.name}_parts = {self.partials.of_all(state)}" for state in fold.states]
            count = f"tl.maximum(tl.minimum({self.part_size}, N - parts * {self.part_size}), 0)"
            lines += self._finished(fold, [f"{state.name}_parts" for state in fold.states], count)
            made |= set(fold.values)
        return lines

    def _finished(self, fold: AnyFold, states: list[str], count: str) -> list[str]:
        """The values of a fold, known of the whole row."""
        return [*fold.finish(self.tile, states, count, True), *self.values.reciprocals(fold.values)]

    # ---- one sweep

    def _lane_count(self, size: str) -> str:
        """How many elements of a row of that size each lane of a tile sees."""
        if not self.tile.ragged_n:
            return f"tl.full({self.tile.shape(False)}, 0, tl.int32) + {size} // BLOCK_N"
        return f"({size} - tl.arange(0, BLOCK_N){self.tile.along} + BLOCK_N - 1) // BLOCK_N"

    def _sweep_lines(self, at: int, made: set[str]) -> list[str]:
        """One sweep over a row or a part of it, with its reductions left in their tiles."""
        folds, stores = self.sweeps.folds_at(at), self.sweeps.stores_at(at, True)
        if not folds and not stores:
            return []
        behind = self.sweeps.ordered(self.sweeps.behind(self.sweeps.wanted(at), made))
        inner = [entry for entry in behind if self.sweeps.inner(entry.value)]
        lines = []
        for entry in behind:
            if entry not in inner:
                lines += self.values.lines(entry, at)
                made.add(entry.value)
            elif isinstance(entry, Scan):
                lines.append(carry_start(self.tile, entry))
        for fold in folds:
            lines += fold.start(self.tile, self.loops.first)
        backwards = any(isinstance(entry, Scan) and entry.reverse for entry in behind)
        if backwards and any(isinstance(fold, Fold) and fold.seeks_place for fold in folds):
            raise Misfit("the first of equals in a row that is swept from its end")
        if at > 0 and not folds and not self.scans and self.choice.stages == self.parts == 1:
            backwards = True  # the end of a row is what the caches still hold
        again = [entry for entry in inner if isinstance(entry, Load) and len(self.values.read_in(entry)) > 1]

        def inside(there: str = "") -> list[str]:
            values = [line for entry in inner for line in self.values.lines(entry, at, there)]
            updates = [line for fold in folds for line in fold.update(self.tile, self.loops.first)]
            return [*values, *updates, *(self.values.store(store) for store in stores)]

        parts = []
        if not folds and again and 0 < self.tile.held == self.tile.steps - 1:  # under way beside what is held
            lines += self.loops.alone(lambda: self._ahead(again, at))
            parts.append(self.loops.alone(lambda: inside(AHEAD)))
        elif self.tile.held < self.tile.steps:
            parts.append(self.loops.over(inside, backwards, apart=not self.scans))
        if self.tile.held:
            lines += self._held_first([load for load in again if self.values.read_in(load)[0] == at])
            parts.append(self.loops.over_held(lambda: inside(HELD)))
        for part in parts if folds else reversed(parts):  # only written, what is held is done with before more is read
            lines += part
        return lines

    def _ahead(self, loads: Sequence[Load], at: int) -> list[str]:
        return [f"{load.value}{AHEAD} = {self.values.read(load, self.values.hint(load, at))}" for load in loads]

    def _held_first(self, loads: Sequence[Load]) -> list[str]:
        """Reads what is held before a loop, which it is under way beside."""
        if not loads:
            return []
        reads = self.loops.over_held(
            lambda: [f"{load.value}_held += ({self.values.read(load, self.values.hint_once)},)" for load in loads]
        )
        return [*(f"{load.value}_held = ()" for load in loads), *reads]

    def _outer_values(self, stores: Sequence[Store], made: set[str]) -> list[str]:
        """Values of whole rows, which some stores write."""
        lines = []
        for entry in self.sweeps.ordered(self.sweeps.behind([store.value for store in stores], made)):
            lines += self.values.lines(entry, 0)
            made.add(entry.value)
        return lines

    # ---- kernels and their launch

    def _kernel(
        self, name: str, body: list[str], tale: str, parts: int | None = None, backwards: bool = False
    ) -> _Kernel:
        parts = self.parts if parts is None else parts
        body = without_dead(body)
        width = 1 << (self.parts - 1).bit_length()
        given = [*self.tile.definitions(parts, backwards), *self.values.tables()]
        given.append(("parts", f"parts = tl.arange(0, {width}){self.tile.along}"))
        there = f"mask_m & (parts < {self.parts})" if self.tile.ragged_m else f"parts < {self.parts}"
        given.append(("there", f"there = {there}"))
        lines = [*used(given, body), *body]
        inputs, outputs = self.region.reads, self.region.writes
        names = [*inputs, *outputs, *(scratch.name for scratch in self.partials.scratch())]
        tensors = tuple(name for name in names if name in self.tile.pointed)
        self.tile.pointed.clear()
        head = f"def {name}({', '.join(f'{tensor}_ptr' for tensor in tensors)}):"
        whole = ["@triton.jit", head, f'    """{tale}."""', *(f"    {line}" for line in lines)]
        text = "\n".join(part for line in whole for part in wrapped(line)) + "\n"
        return _Kernel(name=name, text=text, tensors=tensors, programs=self.tile.tiles * parts)

    def _launch(self, name: str, tensors: list[str], kernels: Sequence[_Kernel], scratch: Sequence[Scratch]) -> str:
        inputs, outputs = self.region.reads, self.region.writes
        together = f", together={self.parts}" if self.choice.meet else ""
        starts = [
            f"start_{kernel.name} = starter({kernel.name}, {kernel.programs}, {self.choice.warps}{together})"
            for kernel in kernels
        ]
        lines = [*starts, "", "", f"def {name}({', '.join(tensors)}):"]
        lines += [f'    """Computes {", ".join(outputs)} from {", ".join(inputs) or "nothing"}."""']
        for one in scratch:
            memory = f"memory_beside({tensors[0]}, ({one.rows}, {one.parts}), ({one.parts}, 1), torch.{one.dtype})"
            lines.append(f"    {one.name} = {memory}")
        if self.choice.meet:
            lines.append(f"    {self.partials.notes}.zero_()")
        lines += [f"    start_{kernel.name}({', '.join(kernel.tensors)})" for kernel in kernels]
        return "\n".join(part for line in lines for part in wrapped(line)) + "\n"
