"""The code for single values of a region at the elements of a tile: loads, gathers, steps and stores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernelwright.compiler.regions.exponentials import find_softmax_divisions
from kernelwright.compiler.regions.gathers import Gather
from kernelwright.compiler.regions.region import Load, Scan, Step, Store
from kernelwright.compiler.triton.lookup_tables import emit_table, find_table_values, lookup_expr
from kernelwright.compiler.triton.op_templates import HALF_DTYPES, TRITON_TYPES, full, literal, step_expr
from kernelwright.compiler.triton.passes import Entry, TilePasses
from kernelwright.compiler.triton.reduction_grouping import find_fast_exps, make_operand, register_dtype
from kernelwright.compiler.triton.reductions import FAST_EXP, OnlineSoftmax
from kernelwright.compiler.triton.scans import apply_carry, scan_tile
from kernelwright.compiler.triton.source_lines import Definition
from kernelwright.compiler.triton.tile import TritonConfig

REGISTER_TILE_SUFFIX, PREFETCH_SUFFIX = "_tiles[tile]", "_prefetched"
"""Suffix of a load's name where its value is register-resident, or prefetched before the register tiles are used."""


class TritonValueCodegen:
    """Code generator for the values of one region under a config."""

    def __init__(self, passes: TilePasses, config: TritonConfig) -> None:
        self.passes, self.region, self.tile, self.config = passes, passes.region, passes.tile, config
        self.fast_exps, self.softmax_divisions = find_fast_exps(self.region), find_softmax_divisions(self.region)
        self.group_softmaxes = self._find_group_softmaxes()
        self.table_values = {
            value: byte for value, byte in find_table_values(self.region).items() if self._spans_tile(byte)
        }

    def emit_lines(self, entry: Entry, pass_index: int, suffix: str = "") -> list[str]:
        """The lines that define a value.

        Args:
            entry: the load, step or scan.
            pass_index: the pass that needs it.
            suffix: `REGISTER_TILE_SUFFIX` or `PREFETCH_SUFFIX` where values that several passes load are available.
        """
        if isinstance(entry, Load):
            is_available = suffix and self.passes.varies_along_row(entry.value) and len(self.reading_passes(entry)) > 1
            source = (
                entry.value + suffix if is_available else self.load_expr(entry, self.eviction_policy(entry, pass_index))
            )
            return [f"{entry.value} = {source}{'.to(tl.float32)' if entry.dtype in HALF_DTYPES else ''}"]
        if isinstance(entry, Scan):
            operand = make_operand(self.region, self.passes.by_value, entry.arg)
            lines = scan_tile(self.tile, entry, operand)
            return lines if self.passes.single_tile else lines + apply_carry(self.tile, entry, operand)
        if gather := self.passes.gathers.get(entry.value):
            return [f"{entry.value} = {self._gather_expr(gather, entry.dtype)}"]
        assert isinstance(entry, Step)
        if byte := self.table_values.get(entry.value):
            return [f"{entry.value} = {lookup_expr(entry.value, byte)}"]
        return [f"{entry.value} = {self._step_expr(entry, suffix == REGISTER_TILE_SUFFIX)}"]

    def emit_reciprocals(self, values: Iterable[str]) -> list[str]:
        """The reciprocals, one per row, of the sums that softmax divides by."""
        totals = [value for value in values if value in self.softmax_divisions.values()]
        lines = [f"{total}_rcp = tl.div_rn(1.0, {total})" for total in totals]
        for softmax in self.group_softmaxes:
            if softmax.total.value in totals:
                lines += softmax.emit_group_scales()
        return lines

    def table_definitions(self) -> list[Definition]:
        """The lines that compute the lookup tables."""
        definitions: list[Definition] = []
        for value, byte in self.table_values.items():
            steps = [
                entry
                for entry in self.passes.sort_entries(self.passes.dependencies([value], []))
                if isinstance(entry, Step)
            ]
            definitions += emit_table(byte, [(step.value, f"{step.value} = {self._step_expr(step)}") for step in steps])
        return list(dict.fromkeys(definitions))

    def load_expr(self, load: Load, eviction_policy: str) -> str:
        """The `tl.load` of a value, without a policy if it is empty."""
        options = [self.tile.element_pointer(load.buffer, load.strides, load.offset)]
        in_bounds = self._window_tests(load)
        if mask := " & ".join(filter(None, [self.tile.mask(load.axes), *in_bounds])):
            options += [f"mask={mask}"]
        if in_bounds:
            options += [f"other={literal(load.fill, load.dtype)}"]
        if eviction_policy:
            options += [f'eviction_policy="{eviction_policy}"']
        return f"tl.load({', '.join(options)})"

    def _window_tests(self, load: Load) -> list[str]:
        """The tests of the indices of a load that can be out of bounds."""
        tests = []
        for index, below, above in self.region.open_bounds(load):
            terms = [axis if step == 1 else f"{axis} * {step}" for axis, step in index.steps.items()]
            position = " + ".join([*terms, *[str(index.start)] * bool(index.start or not terms)])
            tests += [f"({position} >= 0)"] * below + [f"({position} < {index.size})"] * above
        return tests

    def reading_passes(self, load: Load) -> list[int]:
        """The passes that read a load."""
        return [
            at
            for at in range(self.passes.last_pass + 1)
            if load.value in self.passes.dependencies(self.passes.required_at(at), [])
        ]

    def emit_store(self, store: Store) -> str:
        """The `tl.store` of a value."""
        options = [self.tile.element_pointer(store.buffer, store.strides, store.offset), store.value]
        if mask := self.tile.mask([axis for axis, stride in store.strides.items() if stride]):
            options += [f"mask={mask}"]
        return f"tl.store({', '.join(options)})"

    def _spans_tile(self, load: Load) -> bool:
        """Whether a load is a one-dimensional tensor, which a table lookup needs."""
        return (self.tile.is_single_row and self.passes.varies_along_row(load.value)) or (
            self.tile.is_flat and any(load.strides.values())
        )

    def _gather_expr(self, gather: Gather, dtype: str) -> str:
        """The load of one element per row."""
        outer = bool(
            (self.region.axes_of[gather.position] | self.region.axes_of[gather.load.value]) - self.tile.inner_axis_names
        )
        pointer, mask = self.tile.gather_pointer(gather.load, gather.position, outer)
        return f"tl.load({pointer}, mask={mask}, other=0)" + f".to({TRITON_TYPES[dtype]})" * (
            dtype != gather.load.dtype
        )

    def eviction_policy(self, load: Load, pass_index: int) -> str:
        """The eviction policy of a load: evict_last if a later pass reloads it; evict_first in the last such pass,
        unless each pass is a launch over all rows."""
        passes, is_launch_per_pass = self.reading_passes(load), self.tile.num_splits > 1 and not self.config.grid_sync
        if (
            self.config.evict_last
            and not self.passes.single_tile
            and self.passes.varies_along_row(load.value)
            and len(passes) > 1
        ):
            return "evict_last" if pass_index < passes[-1] or is_launch_per_pass else "evict_first"
        return (
            self.single_read_policy
            if self.passes.single_tile or self.passes.last_pass == 0 or self.tile.register_tiles
            else ""
        )

    @property
    def single_read_policy(self) -> str:
        """The eviction policy of what is read once: evict_last, so that stored lines leave the cache first; none with
        grid sync, where the cache has to hold what is reloaded."""
        stores_elements = any(map(self.passes.is_stored_per_element, self.region.stores))
        return "evict_last" if self.config.evict_last and stores_elements and not self.config.grid_sync else ""

    def _step_expr(self, step: Step, in_register_tile: bool = False) -> str:
        if step.op == "index":
            if step.dtype == "int64":
                return f"{step.args[0]}.to(tl.int64)"
            return f"{step.args[0]}.to(tl.int32)" if self.tile.int64_offsets else str(step.args[0])
        if step.op == "constant":
            assert not isinstance(step.args[0], str)
            return full(step.args[0], step.dtype)
        args = tuple(self._inline_constant(arg) if isinstance(arg, str) else arg for arg in step.args)
        dtypes = tuple(register_dtype(self.passes.by_value[arg]) if isinstance(arg, str) else None for arg in args)
        grouped = self.group_softmaxes if in_register_tile else []
        if step.value in self.fast_exps:
            return f"{FAST_EXP}({self._exponent_expr(step, grouped) or args[0]})"
        if step.value in self.softmax_divisions:
            by_group = any(softmax.total.arg == step.args[0] for softmax in grouped)
            reciprocal = (
                f"broadcast_groups({args[1]}_group_rcp, {self.tile.vector_size})" if by_group else f"{args[1]}_rcp"
            )
            return f"{args[0]} * {reciprocal}"
        return step_expr(step.op, args, dtypes, step.dtype)

    def _exponent_expr(self, power: Step, grouped: Sequence[OnlineSoftmax]) -> str:
        """The difference of an element and the maximum of its row, or of its group for `grouped` sums. It has the same
        form as in the pass that computes the sum, so that the compiler can reuse the exponentials."""
        for reduction in self.passes.reductions if not self.config.combine_kernel else ():
            if isinstance(reduction, OnlineSoftmax) and reduction.total.arg == power.value:
                total = reduction.total.value
                group_shift = f"broadcast_groups({total}_group_shift, {self.tile.vector_size})"
                return f"{reduction.operand.value} - {group_shift if reduction in grouped else f'{total}_shift'}"
        return ""

    def _find_group_softmaxes(self) -> list[OnlineSoftmax]:
        """Sums of exponentials of which register tiles compute the softmax relative to the maxima of groups, which are
        still in registers. All divisions by the sum have to be of its own exponentials."""
        if (
            not self.tile.register_tiles
            or self.config.combine_kernel
            or (self.tile.num_splits > 1 and not self.config.grid_sync)
        ):
            return []
        softmaxes = [
            reduction
            for reduction in self.passes.reductions
            if isinstance(reduction, OnlineSoftmax)
            and not reduction.guards_infinity
            and reduction.has_vector_accumulators(self.tile)
            and reduction.total.arg in self.fast_exps
        ]
        divisions = [
            step for step in self.region.steps if isinstance(step, Step) and step.value in self.softmax_divisions
        ]
        return [
            softmax
            for softmax in softmaxes
            if {step.args[1] for step in divisions if step.args[0] == softmax.total.arg} == {softmax.total.value}
        ]

    def _inline_constant(self, value: str) -> str | int | float | bool:
        """The number of a constant; other values unchanged."""
        entry = self.passes.by_value[value]
        return entry.args[0] if isinstance(entry, Step) and entry.op == "constant" else value
