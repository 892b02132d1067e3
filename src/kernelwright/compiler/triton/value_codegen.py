"""One value of a region as Triton text, at the elements of a tile: read, picked, computed, written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernelwright.compiler.regions.exponentials import find_softmax_divisions
from kernelwright.compiler.regions.gathers import Gather
from kernelwright.compiler.regions.region import Load, Scan, Step, Store
from kernelwright.compiler.triton.lookup_tables import emit_table, find_table_values, lookup_expr
from kernelwright.compiler.triton.op_templates import HALF_DTYPES, TRITON_TYPES, full, step_expr
from kernelwright.compiler.triton.passes import Entry, TilePasses
from kernelwright.compiler.triton.reductions import (
    FAST_EXP,
    OnlineSoftmax,
    find_fast_exps,
    make_operand,
    register_dtype,
)
from kernelwright.compiler.triton.scans import apply_carry, scan_tile
from kernelwright.compiler.triton.source_lines import Definition
from kernelwright.compiler.triton.tile import TritonConfig

REGISTER_TILE_SUFFIX, PREFETCH_SUFFIX = "_held[step]", "_ahead"
"""What stands behind the name of a load where it has been read: before the row was swept, or before what is held is
worked on."""


class TritonValueCodegen:
    """The values of the region that is swept so, in the words of a choice."""

    def __init__(self, sweeps: TilePasses, choice: TritonConfig) -> None:
        self.passes, self.region, self.tile, self.config = sweeps, sweeps.region, sweeps.tile, choice
        self.fast_exps, self.softmax_divisions = find_fast_exps(self.region), find_softmax_divisions(self.region)
        self.group_softmaxes = self._find_group_softmaxes()
        self.table_values = {
            value: byte for value, byte in find_table_values(self.region).items() if self._spans_tile(byte)
        }

    def emit_lines(self, entry: Entry, at: int, suffix: str = "") -> list[str]:
        """
        Args:
            at: the sweep.
            suffix: `REGISTER_TILE_SUFFIX` or `PREFETCH_SUFFIX` where what more than one sweep reads is there.
        """
        if isinstance(entry, Load):
            again = suffix and self.passes.varies_along_row(entry.value) and len(self.reading_passes(entry)) > 1
            read = entry.value + suffix if again else self.load_expr(entry, self.eviction_policy(entry, at))
            return [f"{entry.value} = {read}{'.to(tl.float32)' if entry.dtype in HALF_DTYPES else ''}"]
        if isinstance(entry, Scan):
            operand = make_operand(self.region, self.passes.by_value, entry.arg)
            lines = scan_tile(self.tile, entry, operand)
            return lines if self.passes.single_tile else lines + apply_carry(self.tile, entry, operand)
        if pick := self.passes.gathers.get(entry.value):
            return [f"{entry.value} = {self._gather_expr(pick, entry.dtype)}"]
        assert isinstance(entry, Step)
        if byte := self.table_values.get(entry.value):
            return [f"{entry.value} = {lookup_expr(entry.value, byte)}"]
        return [f"{entry.value} = {self._step_expr(entry, suffix == REGISTER_TILE_SUFFIX)}"]

    def emit_reciprocals(self, values: Iterable[str]) -> list[str]:
        """Taken once a row of what its elements are divided by."""
        totals = [value for value in values if value in self.softmax_divisions.values()]
        lines = [f"{total}_reciprocal = tl.div_rn(1.0, {total})" for total in totals]
        for fold in self.group_softmaxes:
            if fold.total.value in totals:
                lines += fold.emit_group_scales()
        return lines

    def table_definitions(self) -> list[Definition]:
        """For each value that is looked up, the lines that compute it for every byte."""
        found: list[Definition] = []
        for value, byte in self.table_values.items():
            steps = [
                entry
                for entry in self.passes.sort_entries(self.passes.dependencies([value], []))
                if isinstance(entry, Step)
            ]
            found += emit_table(byte, [(step.value, f"{step.value} = {self._step_expr(step)}") for step in steps])
        return list(dict.fromkeys(found))

    def load_expr(self, load: Load, hint: str) -> str:
        options = [self.tile.element_pointer(load.buffer, load.strides, load.offset)]
        if mask := self.tile.mask(load.strides):
            options += [f"mask={mask}"]
        if hint:
            options += [f'eviction_policy="{hint}"']
        return f"tl.load({', '.join(options)})"

    def reading_passes(self, load: Load) -> list[int]:
        """The sweeps that read it."""
        sweeps = range(self.passes.last_pass + 1)
        return [sweep for sweep in sweeps if load.value in self.passes.dependencies(self.passes.required_at(sweep), [])]

    def emit_store(self, store: Store) -> str:
        options = [self.tile.element_pointer(store.buffer, store.strides, store.offset), store.value]
        if mask := self.tile.mask(store.strides):
            options += [f"mask={mask}"]
        return f"tl.store({', '.join(options)})"

    def _spans_tile(self, load: Load) -> bool:
        """Whether a tile holds it as a range, which is what a table can be asked with."""
        return (self.tile.is_single_row and self.passes.varies_along_row(load.value)) or (
            self.tile.is_flat and any(load.strides.values())
        )

    def _gather_expr(self, pick: Gather, dtype: str) -> str:
        """One element of each row, from memory."""
        outer = bool(
            (self.region.axes_of[pick.position] | self.region.axes_of[pick.load.value]) - self.tile.inner_axis_names
        )
        place, there = self.tile.gather_pointer(pick.load, pick.position, outer)
        return f"tl.load({place}, mask={there}, other=0)" + f".to({TRITON_TYPES[dtype]})" * (dtype != pick.load.dtype)

    def eviction_policy(self, load: Load, at: int) -> str:
        """Whether the cache should keep what is read: a later sweep reads it again, or this is the last, which finds it
        there unless every sweep is a launch over all rows."""
        reads, launches = self.reading_passes(load), self.tile.num_splits > 1 and not self.config.grid_sync
        if (
            self.config.evict_last
            and not self.passes.single_tile
            and self.passes.varies_along_row(load.value)
            and len(reads) > 1
        ):
            return "evict_last" if at < reads[-1] or launches else "evict_first"
        return (
            self.single_read_policy
            if self.passes.single_tile or self.passes.last_pass == 0 or self.tile.register_tiles
            else ""
        )

    @property
    def single_read_policy(self) -> str:
        """Whether it should keep what is read once, so that what is written leaves it first; not where parts of a row
        read again what it has to hold."""
        written = any(map(self.passes.is_stored_per_element, self.region.stores))
        return "evict_last" if self.config.evict_last and written and not self.config.grid_sync else ""

    def _step_expr(self, step: Step, held: bool = False) -> str:
        if step.op == "index":
            if step.dtype == "int64":
                return f"{step.args[0]}.to(tl.int64)"
            return f"{step.args[0]}.to(tl.int32)" if self.tile.int64_offsets else str(step.args[0])
        if step.op == "constant":
            assert not isinstance(step.args[0], str)
            return full(step.args[0], step.dtype)
        args = tuple(self._inline_constant(arg) if isinstance(arg, str) else arg for arg in step.args)
        dtypes = tuple(register_dtype(self.passes.by_value[arg]) if isinstance(arg, str) else None for arg in args)
        near = self.group_softmaxes if held else []
        if step.value in self.fast_exps:
            return f"{FAST_EXP}({self._exponent_expr(step, near) or args[0]})"
        if step.value in self.softmax_divisions:
            by_group = any(fold.total.arg == step.args[0] for fold in near)
            share = (
                f"spread({args[1]}_near_reciprocal, {self.tile.vector_size})" if by_group else f"{args[1]}_reciprocal"
            )
            return f"{args[0]} * {share}"
        return step_expr(step.op, args, dtypes, step.dtype)

    def _exponent_expr(self, power: Step, near: Sequence[OnlineSoftmax]) -> str:
        """How far an element is below the maximum, or its group's for sums that are `near`, in the words of the sweep
        that found it: so the compiler sees which exponentials it has."""
        for fold in self.passes.reductions if not self.config.combine_kernel else ():
            if isinstance(fold, OnlineSoftmax) and fold.total.arg == power.value:
                shift = f"{fold.total.value}_shift"
                group_shift = f"spread({fold.total.value}_near_shift, {self.tile.vector_size})"
                return f"{fold.operand.value} - {group_shift if fold in near else shift}"
        return ""

    def _find_group_softmaxes(self) -> list[OnlineSoftmax]:
        """Sums of exponentials whose shares, of that sum alone, are taken below the maxima of groups where they are
        held, which are still there."""
        if (
            not self.tile.register_tiles
            or self.config.combine_kernel
            or (self.tile.num_splits > 1 and not self.config.grid_sync)
        ):
            return []
        sums = [fold for fold in self.passes.reductions if isinstance(fold, OnlineSoftmax) and not fold.guards_infinity]
        sums = [fold for fold in sums if fold.has_vector_accumulators(self.tile) and fold.total.arg in self.fast_exps]
        divided = [
            step for step in self.region.steps if isinstance(step, Step) and step.value in self.softmax_divisions
        ]
        return [
            fold
            for fold in sums
            if {step.args[1] for step in divided if step.args[0] == fold.total.arg} == {fold.total.value}
        ]

    def _inline_constant(self, value: str) -> str | int | float | bool:
        """A constant as its number."""
        entry = self.passes.by_value[value]
        return entry.args[0] if isinstance(entry, Step) and entry.op == "constant" else value
