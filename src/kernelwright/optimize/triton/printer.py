"""A region as Triton for NVIDIA GPUs, in four ways.

Whole: a tile holds its rows at once, and every value stays in registers. Looped: a tile runs along its rows, once for
each sweep that a reduction needs before the next. Split: as looped, but a row is cut into parts that run side by
side; each sweep is a launch of its own, and begins with putting the parts of the sweeps before it together, unless a
launch between them has done that. Met: as split, but in one launch, in which the parts of a row wait for each other
between sweeps. Where a row ends within a step, that step is printed apart, and no other needs its mask.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kernelwright.core.records import Record
from kernelwright.optimize.regions.axes import Misfit
from kernelwright.optimize.regions.picking import Pick
from kernelwright.optimize.regions.region import Load, Region, Scan, Step, Store
from kernelwright.optimize.triton.byte_tables import looked_up, lookup, table
from kernelwright.optimize.triton.choices import choices
from kernelwright.optimize.triton.folds import (
    FAST_EXP,
    AnyFold,
    Fold,
    OnlineSum,
    State,
    computed_dtype,
    fast_exps,
    operand_of,
    shares,
    told_in_words,
)
from kernelwright.optimize.triton.forms import HALVES, TYPES, expression, full, helpers_of
from kernelwright.optimize.triton.loops import Loops
from kernelwright.optimize.triton.scans import carried, carry_start, scanned
from kernelwright.optimize.triton.starter import START
from kernelwright.optimize.triton.sweeps import Entry, Sweeps
from kernelwright.optimize.triton.tile import CudaChoice, Definition, Tile, used, without_dead, wrapped

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


class _Scratch(Record, frozen=True, kw_only=True):
    """Partial results of all rows and parts."""

    name: str
    dtype: str
    rows: int
    parts: int


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
        self.fast_exps, self.shares = fast_exps(region), shares(region)
        self.looked_up = {value: byte for value, byte in looked_up(region).items() if self._fills_a_line(byte)}
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
            kernels, scratch = self._met() if self.choice.meet else self._split(), self._scratch()
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
            if isinstance(fold, Fold):
                lines += self._finished(fold, fold.taken(self.tile), "")
            else:
                lines += self._value(entry, 0)
        lines += [self._store(store) for store in stores]
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
        return [*lines, *self._outer_values(outer, made), *map(self._store, outer)]

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
            lines += self._stores_of_first_part(outer) if parts > 1 else map(self._store, outer)
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
        lines += [f"tl.store({value}_joined_ptr + {row}, {value})" for fold in folds for value in fold.values]
        tale = f"What the parts of sweep {at + 1} give together, a row each"
        return alone._kernel(f"{self.region.name}_join_{at + 1}", lines, tale, 1)

    def _joined_before(self, folds: Sequence[AnyFold], made: set[str]) -> list[str]:
        """What earlier launches have put together."""
        values = [value for fold in folds for value in fold.values]
        made |= set(values)
        row, mask = self.tile.m if self.tile.rows > 1 else "0", ", mask=mask_m" if self.tile.ragged_m else ""
        loads = [f"{value} = tl.load({value}_joined_ptr + {row}{mask})" for value in values]
        return [*loads, *self._reciprocals(values)]

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
        return ["if part == 0:", *(f"    {self._store(store)}" for store in stores)] if stores else []

    def _part_lines(self, at: int, folds: Sequence[AnyFold], made: set[str]) -> list[str]:
        """One part of a sweep, and its results written down."""
        lines = self._sweep_lines(at, made)
        done: list[str] = []
        for fold in folds:
            states = [f"{state.name}_tile" for state in fold.states]
            done += fold.finish(self.tile, states, self._lane_count("size"), False)
            done += [self._written_down(state) for state in fold.states]
        return [*lines, *used([("size", f"size = {self.loops.size}")], done), *done]

    def _put_together(self, folds: Sequence[AnyFold], made: set[str]) -> list[str]:
        """The results of earlier sweeps, from their parts."""
        if not folds:
            return []
        lines: list[str] = []
        for fold in folds:
            lines += [f"{state.name}_parts = {self._of_all_parts(state)}" for state in fold.states]
            count = f"tl.maximum(tl.minimum({self.part_size}, N - parts * {self.part_size}), 0)"
            lines += self._finished(fold, [f"{state.name}_parts" for state in fold.states], count)
            made |= set(fold.values)
        return lines

    def _finished(self, fold: AnyFold, states: list[str], count: str) -> list[str]:
        """The values of a fold, known of the whole row."""
        return [*fold.finish(self.tile, states, count, True), *self._reciprocals(fold.values)]

    def _reciprocals(self, values: Iterable[str]) -> list[str]:
        """Taken once a row of what its elements are divided by."""
        totals = [value for value in values if value in self.shares.values()]
        return [f"{total}_reciprocal = tl.div_rn(1.0, {total})" for total in totals]

    # ---- what parts of a row tell each other

    def _written_down(self, state: State) -> str:
        place = self._partial_place(state, "part")
        if self.choice.meet:
            return f"tell({place}, {state.name})"
        return f"tl.store({place}, {state.name}{', mask=mask_m' if self.tile.ragged_m else ''})"

    def _of_all_parts(self, state: State) -> str:
        place = self._partial_place(state, "parts")
        if self.choice.meet:
            heard = f"hear({place}, there)" + ".to(tl.float32, bitcast=True)" * (state.dtype == "float32")
            return f"tl.where(there, {heard}, {state.neutral})"
        everywhere = not self.tile.ragged_m and self.parts & self.parts - 1 == 0
        return f"tl.load({place})" if everywhere else f"tl.load({place}, mask=there, other={state.neutral})"

    def _partial_place(self, state: State, part: str) -> str:
        row = f"{self.tile.m} * {self.parts} + " if self.tile.rows > 1 else ""
        if not self.choice.meet:
            return f"{state.name}_parts_ptr + {row}{part}"
        before = self._states.index(state) * self.tile.rows * self.parts
        return f"{self._notes}_ptr + {f'{before} + ' if before else ''}{row}{part}"

    @property
    def _notes(self) -> str:
        return f"{self.region.name}_notes"

    @property
    def _states(self) -> list[State]:
        return [state for fold in self.sweeps.folds for state in fold.states]

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
                lines += self._value(entry, at)
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
        again = [entry for entry in inner if isinstance(entry, Load) and len(self._reads(entry)) > 1]

        def inside(held: bool = False) -> list[str]:
            values = [line for entry in inner for line in self._value(entry, at, held=held and entry in again)]
            updates = [line for fold in folds for line in fold.update(self.tile, self.loops.first)]
            return [*values, *updates, *(self._store(store) for store in stores)]

        parts = []
        if self.tile.held < self.tile.steps:
            parts.append(self.loops.over(inside, backwards, apart=not self.scans))
        if self.tile.held:
            lines += self._held_first([load for load in again if self._reads(load)[0] == at])
            parts.append(self.loops.over_held(lambda: inside(held=True)))
        for part in parts if folds else reversed(parts):  # only written, what is held is done with before more is read
            lines += part
        return lines

    def _held_first(self, loads: Sequence[Load]) -> list[str]:
        """Reads what is held before a loop, which it is under way beside."""
        if not loads:
            return []
        reads = self.loops.over_held(lambda: [f"{load.value}_held += ({self._read(load, '')},)" for load in loads])
        return [*(f"{load.value}_held = ()" for load in loads), *reads]

    def _outer_values(self, stores: Sequence[Store], made: set[str]) -> list[str]:
        """Values of whole rows, which some stores write."""
        lines = []
        for entry in self.sweeps.ordered(self.sweeps.behind([store.value for store in stores], made)):
            lines += self._value(entry, 0)
            made.add(entry.value)
        return lines

    # ---- one value

    def _value(self, entry: Entry, at: int, held: bool = False) -> list[str]:
        if isinstance(entry, Load):
            read = f"{entry.value}_held[step]" if held else self._read(entry, self._hint(entry, at))
            return [f"{entry.value} = {read}{'.to(tl.float32)' if entry.dtype in HALVES else ''}"]
        if isinstance(entry, Scan):
            lines = scanned(self.tile, entry, operand_of(self.region, self.sweeps.by_value, entry.arg))
            operand = operand_of(self.region, self.sweeps.by_value, entry.arg)
            return lines if self.whole else lines + carried(self.tile, entry, operand)
        if pick := self.sweeps.picks.get(entry.value):
            return [f"{entry.value} = {self._picked(pick, entry.dtype)}"]
        assert isinstance(entry, Step)
        if byte := self.looked_up.get(entry.value):
            return [f"{entry.value} = {lookup(entry.value, byte)}"]
        return [f"{entry.value} = {self._step(entry)}"]

    def _fills_a_line(self, load: Load) -> bool:
        """Whether a tile holds it as a range, which is what a table can be asked with."""
        return (self.tile.line and self.sweeps.inner(load.value)) or (self.tile.flat and any(load.strides.values()))

    def _tables(self) -> list[Definition]:
        """For each value that is looked up, the lines that compute it for every byte."""
        found: list[Definition] = []
        for value, byte in self.looked_up.items():
            steps = [entry for entry in self.sweeps.ordered(self.sweeps.behind([value], [])) if isinstance(entry, Step)]
            found += table(byte, [(step.value, f"{step.value} = {self._step(step)}") for step in steps])
        return list(dict.fromkeys(found))

    def _read(self, load: Load, hint: str) -> str:
        options = [self.tile.place(load.buffer, load.strides, load.offset)]
        if mask := self.tile.mask(load.strides):
            options += [f"mask={mask}"]
        if hint:
            options += [f'eviction_policy="{hint}"']
        return f"tl.load({', '.join(options)})"

    def _picked(self, pick: Pick, dtype: str) -> str:
        """One element of each row, from memory."""
        outer = bool((self.region.axes_of[pick.place] | self.region.axes_of[pick.load.value]) - self.tile.inner_names)
        place, there = self.tile.picked(pick.load, pick.place, outer)
        return f"tl.load({place}, mask={there}, other=0)" + f".to({TYPES[dtype]})" * (dtype != pick.load.dtype)

    def _hint(self, load: Load, at: int) -> str:
        """Whether the cache should keep what is read: a later sweep reads it again, or this is the last."""
        if self.whole or not self.choice.keep or not self.sweeps.inner(load.value) or len(self._reads(load)) < 2:
            return ""
        return "evict_last" if at < self._reads(load)[-1] else "evict_first"

    def _reads(self, load: Load) -> list[int]:
        """The sweeps that read it."""
        sweeps = range(self.sweeps.last + 1)
        return [sweep for sweep in sweeps if load.value in self.sweeps.behind(self.sweeps.wanted(sweep), [])]

    def _step(self, step: Step) -> str:
        if step.op == "index":
            if step.dtype == "int64":
                return f"{step.args[0]}.to(tl.int64)"
            return f"{step.args[0]}.to(tl.int32)" if self.tile.wide else str(step.args[0])
        if step.op == "constant":
            assert not isinstance(step.args[0], str)
            return full(step.args[0], step.dtype)
        args = tuple(self._inlined(arg) if isinstance(arg, str) else arg for arg in step.args)
        dtypes = tuple(computed_dtype(self.sweeps.by_value[arg]) if isinstance(arg, str) else None for arg in args)
        if step.value in self.fast_exps:
            return f"{FAST_EXP}({self._below(step) or args[0]})"
        if step.value in self.shares:
            return f"{args[0]} * {args[1]}_reciprocal"
        return expression(step.op, args, dtypes, step.dtype)

    def _below(self, power: Step) -> str:
        """How far an element is below the maximum, in the words of the sweep that found it: so the compiler sees which
        exponentials it has."""
        for fold in self.sweeps.folds if not self.choice.join else ():
            if isinstance(fold, OnlineSum) and fold.total.arg == power.value:
                return f"{fold.operand.value} - {fold.total.value}_shift"
        return ""

    def _inlined(self, value: str) -> str | int | float | bool:
        """A constant as its number."""
        entry = self.sweeps.by_value[value]
        return entry.args[0] if isinstance(entry, Step) and entry.op == "constant" else value

    def _store(self, store: Store) -> str:
        options = [self.tile.place(store.buffer, store.strides, store.offset), store.value]
        if mask := self.tile.mask(store.strides):
            options += [f"mask={mask}"]
        return f"tl.store({', '.join(options)})"

    # ---- kernels and their launch

    def _scratch(self) -> list[_Scratch]:
        if self.choice.meet:
            rows = self.tile.rows * len(self._states)
            return [_Scratch(name=self._notes, dtype="int64", rows=rows, parts=self.parts)]
        found = [(f"{state.name}_parts", state.dtype, self.parts) for state in self._states]
        if self.choice.join:
            joined = [self.sweeps.by_value[value] for value in self.sweeps.fold_of]
            found += [(f"{one.value}_joined", one.dtype, 1) for one in joined]
        return [_Scratch(name=name, dtype=dtype, rows=self.tile.rows, parts=parts) for name, dtype, parts in found]

    def _kernel(
        self, name: str, body: list[str], tale: str, parts: int | None = None, backwards: bool = False
    ) -> _Kernel:
        parts = self.parts if parts is None else parts
        body = without_dead(body)
        width = 1 << (self.parts - 1).bit_length()
        given = [*self.tile.definitions(parts, backwards), *self._tables()]
        given.append(("parts", f"parts = tl.arange(0, {width}){self.tile.along}"))
        there = f"mask_m & (parts < {self.parts})" if self.tile.ragged_m else f"parts < {self.parts}"
        given.append(("there", f"there = {there}"))
        lines = [*used(given, body), *body]
        inputs, outputs = self.region.reads, self.region.writes
        names = [*inputs, *outputs, *(scratch.name for scratch in self._scratch())]
        text = "\n".join(lines)
        tensors = tuple(name for name in names if f"{name}_ptr" in text)
        head = f"def {name}({', '.join(f'{tensor}_ptr' for tensor in tensors)}):"
        whole = ["@triton.jit", head, f'    """{tale}."""', *(f"    {line}" for line in lines)]
        text = "\n".join(part for line in whole for part in wrapped(line)) + "\n"
        return _Kernel(name=name, text=text, tensors=tensors, programs=self.tile.tiles * parts)

    def _launch(self, name: str, tensors: list[str], kernels: Sequence[_Kernel], scratch: Sequence[_Scratch]) -> str:
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
            lines.append(f"    {self._notes}.zero_()")
        lines += [f"    start_{kernel.name}({', '.join(kernel.tensors)})" for kernel in kernels]
        return "\n".join(part for line in lines for part in wrapped(line)) + "\n"
