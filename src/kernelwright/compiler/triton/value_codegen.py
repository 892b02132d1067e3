"""One value of a region as Triton text, at the elements of a tile: read, picked, computed, written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernelwright.compiler.regions.exponentials import shares
from kernelwright.compiler.regions.gathers import Pick
from kernelwright.compiler.regions.region import Load, Scan, Step, Store
from kernelwright.compiler.triton.lookup_tables import looked_up, lookup, table
from kernelwright.compiler.triton.op_templates import HALVES, TYPES, expression, full
from kernelwright.compiler.triton.passes import Entry, Sweeps
from kernelwright.compiler.triton.reductions import FAST_EXP, OnlineSum, computed_dtype, fast_exps, operand_of
from kernelwright.compiler.triton.scans import carried, scanned
from kernelwright.compiler.triton.source_lines import Definition
from kernelwright.compiler.triton.tile import CudaChoice

HELD, AHEAD = "_held[step]", "_ahead"
"""What stands behind the name of a load where it has been read: before the row was swept, or before what is held is
worked on."""


class Values:
    """The values of the region that is swept so, in the words of a choice."""

    def __init__(self, sweeps: Sweeps, choice: CudaChoice) -> None:
        self.sweeps, self.region, self.tile, self.choice = sweeps, sweeps.region, sweeps.tile, choice
        self.fast_exps, self.shares = fast_exps(self.region), shares(self.region)
        self.by_groups = self._kept_by_groups()
        self.looked_up = {value: byte for value, byte in looked_up(self.region).items() if self._fills_a_line(byte)}

    def lines(self, entry: Entry, at: int, there: str = "") -> list[str]:
        """
        Args:
            at: the sweep.
            there: `HELD` or `AHEAD` where what more than one sweep reads is there.
        """
        if isinstance(entry, Load):
            again = there and self.sweeps.inner(entry.value) and len(self.read_in(entry)) > 1
            read = entry.value + there if again else self.read(entry, self.hint(entry, at))
            return [f"{entry.value} = {read}{'.to(tl.float32)' if entry.dtype in HALVES else ''}"]
        if isinstance(entry, Scan):
            operand = operand_of(self.region, self.sweeps.by_value, entry.arg)
            lines = scanned(self.tile, entry, operand)
            return lines if self.sweeps.whole else lines + carried(self.tile, entry, operand)
        if pick := self.sweeps.picks.get(entry.value):
            return [f"{entry.value} = {self._picked(pick, entry.dtype)}"]
        assert isinstance(entry, Step)
        if byte := self.looked_up.get(entry.value):
            return [f"{entry.value} = {lookup(entry.value, byte)}"]
        return [f"{entry.value} = {self._step(entry, there == HELD)}"]

    def reciprocals(self, values: Iterable[str]) -> list[str]:
        """Taken once a row of what its elements are divided by."""
        totals = [value for value in values if value in self.shares.values()]
        lines = [f"{total}_reciprocal = tl.div_rn(1.0, {total})" for total in totals]
        for fold in self.by_groups:
            if fold.total.value in totals:
                lines += fold.shares_of_groups()
        return lines

    def tables(self) -> list[Definition]:
        """For each value that is looked up, the lines that compute it for every byte."""
        found: list[Definition] = []
        for value, byte in self.looked_up.items():
            steps = [entry for entry in self.sweeps.ordered(self.sweeps.behind([value], [])) if isinstance(entry, Step)]
            found += table(byte, [(step.value, f"{step.value} = {self._step(step)}") for step in steps])
        return list(dict.fromkeys(found))

    def read(self, load: Load, hint: str) -> str:
        options = [self.tile.place(load.buffer, load.strides, load.offset)]
        if mask := self.tile.mask(load.strides):
            options += [f"mask={mask}"]
        if hint:
            options += [f'eviction_policy="{hint}"']
        return f"tl.load({', '.join(options)})"

    def read_in(self, load: Load) -> list[int]:
        """The sweeps that read it."""
        sweeps = range(self.sweeps.last + 1)
        return [sweep for sweep in sweeps if load.value in self.sweeps.behind(self.sweeps.wanted(sweep), [])]

    def store(self, store: Store) -> str:
        options = [self.tile.place(store.buffer, store.strides, store.offset), store.value]
        if mask := self.tile.mask(store.strides):
            options += [f"mask={mask}"]
        return f"tl.store({', '.join(options)})"

    def _fills_a_line(self, load: Load) -> bool:
        """Whether a tile holds it as a range, which is what a table can be asked with."""
        return (self.tile.line and self.sweeps.inner(load.value)) or (self.tile.flat and any(load.strides.values()))

    def _picked(self, pick: Pick, dtype: str) -> str:
        """One element of each row, from memory."""
        outer = bool((self.region.axes_of[pick.place] | self.region.axes_of[pick.load.value]) - self.tile.inner_names)
        place, there = self.tile.picked(pick.load, pick.place, outer)
        return f"tl.load({place}, mask={there}, other=0)" + f".to({TYPES[dtype]})" * (dtype != pick.load.dtype)

    def hint(self, load: Load, at: int) -> str:
        """Whether the cache should keep what is read: a later sweep reads it again, or this is the last, which finds it
        there unless every sweep is a launch over all rows."""
        reads, launches = self.read_in(load), self.tile.parts > 1 and not self.choice.meet
        if self.choice.keep and not self.sweeps.whole and self.sweeps.inner(load.value) and len(reads) > 1:
            return "evict_last" if at < reads[-1] or launches else "evict_first"
        return self.hint_once if self.sweeps.whole or self.sweeps.last == 0 or self.tile.held else ""

    @property
    def hint_once(self) -> str:
        """Whether it should keep what is read once, so that what is written leaves it first; not where parts of a row
        read again what it has to hold."""
        written = any(map(self.sweeps.stored_inside, self.region.stores))
        return "evict_last" if self.choice.keep and written and not self.choice.meet else ""

    def _step(self, step: Step, held: bool = False) -> str:
        if step.op == "index":
            if step.dtype == "int64":
                return f"{step.args[0]}.to(tl.int64)"
            return f"{step.args[0]}.to(tl.int32)" if self.tile.wide else str(step.args[0])
        if step.op == "constant":
            assert not isinstance(step.args[0], str)
            return full(step.args[0], step.dtype)
        args = tuple(self._inlined(arg) if isinstance(arg, str) else arg for arg in step.args)
        dtypes = tuple(computed_dtype(self.sweeps.by_value[arg]) if isinstance(arg, str) else None for arg in args)
        near = self.by_groups if held else []
        if step.value in self.fast_exps:
            return f"{FAST_EXP}({self._below(step, near) or args[0]})"
        if step.value in self.shares:
            by_group = any(fold.total.arg == step.args[0] for fold in near)
            share = f"spread({args[1]}_near_reciprocal, {self.tile.group})" if by_group else f"{args[1]}_reciprocal"
            return f"{args[0]} * {share}"
        return expression(step.op, args, dtypes, step.dtype)

    def _below(self, power: Step, near: Sequence[OnlineSum]) -> str:
        """How far an element is below the maximum, or its group's for sums that are `near`, in the words of the sweep
        that found it: so the compiler sees which exponentials it has."""
        for fold in self.sweeps.folds if not self.choice.join else ():
            if isinstance(fold, OnlineSum) and fold.total.arg == power.value:
                shift = f"{fold.total.value}_shift"
                group_shift = f"spread({fold.total.value}_near_shift, {self.tile.group})"
                return f"{fold.operand.value} - {group_shift if fold in near else shift}"
        return ""

    def _kept_by_groups(self) -> list[OnlineSum]:
        """Sums of exponentials whose shares, of that sum alone, are taken below the maxima of groups where they are
        held, which are still there."""
        if not self.tile.held or self.choice.join or (self.tile.parts > 1 and not self.choice.meet):
            return []
        sums = [fold for fold in self.sweeps.folds if isinstance(fold, OnlineSum) and not fold.guarded]
        sums = [fold for fold in sums if fold.grouped(self.tile) and fold.total.arg in self.fast_exps]
        divided = [step for step in self.region.steps if isinstance(step, Step) and step.value in self.shares]
        return [
            fold
            for fold in sums
            if {step.args[1] for step in divided if step.args[0] == fold.total.arg} == {fold.total.value}
        ]

    def _inlined(self, value: str) -> str | int | float | bool:
        """A constant as its number."""
        entry = self.sweeps.by_value[value]
        return entry.args[0] if isinstance(entry, Step) and entry.op == "constant" else value
