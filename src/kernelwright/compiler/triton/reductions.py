"""Reductions over a row as Triton text: what a tile keeps while it runs along the row, and how that ends.

A fold has states. They begin neutral, take in one tile after another, and are finished across the tile; the same
finish puts the parts of a row together. Two pairs of reductions need one sweep instead of two: a maximum with the sum
of exponentials below it (Milakov and Gimelshein, arXiv:1805.02867), and a mean with the sum of squares around it
(Welford 1962, merged as by Chan, Golub and LeVeque 1983).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.exponentials import (
    EntryByValue,
    find_exponential_sums,
    find_softmax_divisions,
    match_difference,
    match_exponential_sum,
)
from kernelwright.compiler.regions.region import Load, Reduction, Region, Scan, Step
from kernelwright.compiler.triton.op_templates import HALF_DTYPES, TRITON_TYPES, highest, is_float, literal, lowest
from kernelwright.compiler.triton.tile import Tile, is_row_contiguous

FAST_EXP = "libdevice.fast_expf"
"""Without what it takes to give results below the normal range."""


@dataclass(frozen=True)
class RowOperand:
    """What a fold runs over: a value by name, its dtype, and on which axes it depends."""

    value: str
    dtype: str
    varies_across_rows: bool
    varies_along_row: bool


@dataclass(frozen=True)
class Accumulator:
    """One variable of a fold: `name` for a finished part of a row, `name_tile` while a tile runs."""

    name: str
    dtype: str
    identity: str


@dataclass(frozen=True)
class RowReduction:
    """One reduction."""

    reduction: Reduction
    operand: RowOperand

    @property
    def values(self) -> tuple[str, ...]:
        return (self.reduction.value,)

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        op, dtype = self.reduction.op, self.reduction.dtype
        if op in ("argmax", "argmin"):
            neutral = lowest(self.operand.dtype) if op == "argmax" else highest(self.operand.dtype)
            return (
                Accumulator(f"{self.reduction.value}_best", self.operand.dtype, neutral),
                Accumulator(self.reduction.value, "int64", "N"),
            )
        if op in ("any", "all"):
            return (Accumulator(self.reduction.value, "int32", "0" if op == "any" else "1"),)
        if op not in ("sum", "prod", "max", "min"):
            raise Unsupported(f"{op} over a row has no form in Triton yet")
        neutral = {"sum": literal(0, dtype), "prod": literal(1, dtype)}.get(op)
        neutral = neutral or (lowest(dtype) if op == "max" else highest(dtype))
        return (Accumulator(self.reduction.value, dtype, neutral),)

    def tile_accumulators(self, tile: Tile) -> list[str]:
        """The states that one tile of values is by itself."""
        value = apply_row_mask(tile, self.operand, self.accumulators[0].identity)
        if self.reduction.op in ("any", "all"):
            narrow = f"{self.operand.value}.to(tl.int32)"
            operand = RowOperand(narrow, "int32", self.operand.varies_across_rows, self.operand.varies_along_row)
            return [apply_row_mask(tile, operand, self.accumulators[0].identity)]
        if self.tracks_index:
            return [value, f"tl.broadcast_to({tile.offs_n}, {tile.shape(self.operand.varies_across_rows)})"]
        return [value]

    def start(self, tile: Tile, first: str) -> list[str]:
        shape = tile.shape(self.operand.varies_across_rows)
        if self.has_vector_accumulators(tile):
            shape = _grouped_shape(tile, shape)
        neutral = {
            state.name: f"tl.full({shape}, {state.identity}, {TRITON_TYPES[state.dtype]})"
            for state in self.accumulators
        }
        if self.tracks_index:
            begin = f"tl.full({shape}, 0, tl.int{64 if tile.int64_row_offsets else 32})"
            neutral[self.accumulators[1].name] = begin if first == "0" else f"{begin} + {first}"
        return [f"{name}_tile = {value}" for name, value in neutral.items()]

    @property
    def tracks_index(self) -> bool:
        """Whether it keeps where something is: for each lane the step of the loop, which has to run forwards."""
        return self.reduction.op in ("argmax", "argmin")

    def update(self, tile: Tile, first: str) -> list[str]:
        taken = self.tile_accumulators(tile)
        name, op = f"{self.accumulators[0].name}_tile", self.reduction.op
        if self.has_vector_accumulators(tile):
            taken = [_reduce_groups(tile, taken[0], {"sum": "", "prod": "product"}.get(op, self._minmax_function(op)))]
        if op == "sum":
            return [f"{name} += {taken[0]}"]
        if op == "prod":
            return [f"{name} *= {taken[0]}"]
        if self.tracks_index:
            at = f"{self.accumulators[1].name}_tile"
            above, not_above = (">", "<=") if op == "argmax" else ("<", ">=")
            beaten = f"taken {above} {name}"
            if is_float(self.operand.dtype):  # by what is no number, unless it is none itself
                beaten = f"~(taken {not_above} {name}) & ({name} == {name})"
            return [
                f"taken = {taken[0]}",
                f"beaten = {beaten}",
                f"{name} = tl.where(beaten, taken, {name})",
                f"{at} = tl.where(beaten, start, {at})",
            ]
        return [f"{name} = {self._minmax_function(op)}({name}, {taken[0]})"]

    def has_vector_accumulators(self, tile: Tile) -> bool:
        """Whether each group of elements keeps one state."""
        return tile.vector_size > 1 and is_float(self.accumulators[0].dtype) and not self.tracks_index

    def _minmax_function(self, op: str) -> str:
        if is_float(self.accumulators[0].dtype):
            return "larger" if op == "max" else "smaller"
        return "tl.maximum" if op in ("max", "any") else "tl.minimum"

    def finish(self, tile: Tile, accumulators: list[str], count: str, final: bool) -> list[str]:
        """Across the tile: the values from expressions for the states."""
        value, op, floats = self.reduction.value, self.reduction.op, is_float(self.accumulators[0].dtype)
        if self.tracks_index:
            best, at = self.accumulators[0].name, accumulators[1]
            if at.endswith("_tile"):
                at += f" + tl.arange(0, BLOCK_N){tile.broadcast_suffix}"
            given = f"{accumulators[0]}, {at}"
            keep = "" if tile.is_single_row else ", keep_dims=True"
            return [
                f"{best}, {value} = tl.reduce(({given}), {tile.reduce_axis}, {_arg_combiner(op)}{keep})",
                f"{value} = {value}.to(tl.int64)",
            ]
        if op == "sum":
            return [f"{value} = tl.sum({accumulators[0]}, {tile.reduce_args})"]
        if op in ("any", "all"):
            return [f"{value} = tl.{'max' if op == 'any' else 'min'}({accumulators[0]}, {tile.reduce_args}) > 0"]
        if op == "prod":
            return [f"{value} = tl.reduce({accumulators[0]}, {tile.reduce_axis}, {_combiner_args(tile, 'product')})"]
        if floats:
            return [
                f"{value} = tl.reduce({accumulators[0]}, {tile.reduce_axis}, "
                f"{_combiner_args(tile, self._minmax_function(op))})"
            ]
        cast = "" if self.reduction.dtype in ("int64", "int32") else f".to({TRITON_TYPES[self.reduction.dtype]})"
        return [f"{value} = tl.{op}({accumulators[0]}, {tile.reduce_args}){cast}"]


@dataclass(frozen=True)
class OnlineSoftmax:
    """A maximum, and the sum of the exponentials of what is below it.

    Where memory lies `shares_tile_max` the row a tile shares one maximum, which costs a reduction a tile and leaves
    three operations an element; else a lane's sum is relative to the lane's own. An infinite maximum counts as zero, so
    that no difference of infinities comes up. A `guards_infinity` sum, as of logsumexp, is that; any other is not a
    number there, as torch's is not.
    """

    maximum: Reduction
    total: Reduction
    exp_op: str
    operand: RowOperand
    guards_infinity: bool
    shares_tile_max: bool

    @property
    def values(self) -> tuple[str, ...]:
        return (self.maximum.value, self.total.value)

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        dtype = self.operand.dtype
        return (
            Accumulator(self.maximum.value, dtype, lowest(dtype)),
            Accumulator(self.total.value, dtype, literal(0, dtype)),
        )

    def start(self, tile: Tile, first: str) -> list[str]:
        shape = tile.shape(self.operand.varies_across_rows)
        shapes = (shape.replace("BLOCK_N", "1") if self.shares_tile_max else shape, shape)
        if self.has_vector_accumulators(tile):
            shapes = (_grouped_shape(tile, shape),) * 2
        return [
            f"{state.name}_tile = tl.full({of}, {state.identity}, {TRITON_TYPES[state.dtype]})"
            for state, of in zip(self.accumulators, shapes, strict=True)
        ]

    def update(self, tile: Tile, first: str) -> list[str]:
        top, total = (f"{state.name}_tile" for state in self.accumulators)
        taken = f"taken = {apply_row_mask(tile, self.operand, self.accumulators[0].identity)}"
        above, decay = f"{self.total.value}_above", f"{self.total.value}_decay"
        fast = self.exp_op == "exp" and self.operand.dtype == "float32"  # as in `find_fast_exps`
        power = FAST_EXP if fast else f"tl.{self.exp_op}"
        if not self.shares_tile_max:
            return [
                taken,
                f"{above} = tl.where(taken == {top}, 0.0, taken - {top})",
                f"{decay} = {power}(-tl.abs({above}))",
                f"{total} = tl.where({above} > 0, {total} * {decay} + 1.0, {total} + {decay})",
                f"{top} = larger({top}, taken)",
            ]
        powers = f"{power}(taken - {self.total.value}_shift)"
        best = f"tl.reduce(taken, {tile.reduce_axis}, larger, keep_dims=True)"
        if self.has_vector_accumulators(tile):
            best = _reduce_groups(tile, "taken", "larger")
            powers = _reduce_groups(tile, f"{power}(taken - spread({self.total.value}_shift, {tile.vector_size}))", "")
        return [
            taken,
            f"{above} = larger({top}, {best})",
            f"{self.total.value}_shift = {_zero_if_infinite(above)}",
            f"{decay} = tl.{self.exp_op}({top} - {self.total.value}_shift)",
            f"{total} *= tl.where({top} == {above}, 1.0, {decay})",
            f"{total} += {powers}",
            f"{top} = {above}",
        ]

    def finish(self, tile: Tile, accumulators: list[str], count: str, final: bool) -> list[str]:
        top, total = self.maximum.value, self.total.value
        tops, totals = accumulators
        lines = [
            f"{top} = tl.reduce({tops}, {tile.reduce_axis}, {_combiner_args(tile, 'larger')})",
            f"{total}_shift = {_zero_if_infinite(top)}",
            f"{total} = tl.sum({totals} * tl.{self.exp_op}({tops} - {total}_shift), {tile.reduce_args})",
        ]
        if (
            self.shares_tile_max and tops.endswith("_tile") and not self.has_vector_accumulators(tile)
        ):  # all of it is relative to one maximum
            lines[2:] = [f"{total} = tl.sum({totals}, {tile.reduce_args})"]
        if self.guards_infinity or not final:
            return lines
        return [*lines, f"{total} += {top} - {top}  # not a number where the maximum is infinite"]

    def has_vector_accumulators(self, tile: Tile) -> bool:
        """Whether each group of elements has a maximum of its own."""
        return self.shares_tile_max and tile.vector_size > 1

    def emit_group_scales(self) -> list[str]:
        """What an exponential below its group's maximum is multiplied with to be a share of all."""
        top, total = self.maximum.value, self.total.value
        below = f"tl.{self.exp_op}({top}_tile - {total}_shift)"
        return [
            f"{total}_near_shift = {_zero_if_infinite(f'{top}_tile')}",
            f"{total}_near_reciprocal = {total}_reciprocal * tl.where({top}_tile == {top}, 1.0, {below})",
        ]


def _zero_if_infinite(value: str) -> str:
    return f'tl.where(tl.abs({value}) == float("inf"), 0.0, {value})'


@dataclass(frozen=True)
class Welford:
    """A mean, and the sum of squared differences from it.

    Each lane measures from a base, the first element that it sees, so that nothing large is subtracted at the end: at
    most as many digits are lost as the number of elements in a lane has. The mean of the bases, kept between the least
    and the largest of them, is exact where all are equal. An infinite element makes both NaN.
    """

    mean: Reduction
    m2: Reduction
    operand: RowOperand

    @property
    def values(self) -> tuple[str, ...]:
        return (self.mean.value, self.m2.value)

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        zero = literal(0, self.operand.dtype)
        names = (f"{self.mean.value}_base", f"{self.mean.value}_off", self.m2.value)
        return tuple(Accumulator(name, self.operand.dtype, zero) for name in names)

    def start(self, tile: Tile, first: str) -> list[str]:
        shape, kind = tile.shape(self.operand.varies_across_rows), TRITON_TYPES[self.operand.dtype]
        return [f"{state.name}_tile = tl.full({shape}, 0.0, {kind})" for state in self.accumulators]

    def update(self, tile: Tile, first: str) -> list[str]:
        base, off, squares = (f"{state.name}_tile" for state in self.accumulators)
        difference = f"{self.operand.value} - {base}"
        return [
            f"{base} = tl.where(start == {first}, {self.operand.value}, {base})",
            f"off = {f'tl.where(mask_n, {difference}, 0.0)' if tile.needs_mask_n else difference}",
            f"{off} += off",
            f"{squares} += off * off",
        ]

    def finish(self, tile: Tile, accumulators: list[str], count: str, final: bool) -> list[str]:
        """`count` is how many elements each lane, or each part, has seen."""
        bases, offs, squares = accumulators
        name, kind, size = self.mean.value, TRITON_TYPES[self.operand.dtype], "N" if final else "size"
        squared, low, high = f"{self.m2.value}_within", f"{name}_low", f"{name}_high"
        taken = offs.endswith("_tile")  # else each part has measured from its own mean
        return [
            f"{name}_count = ({count}).to({kind})",
            f"{name}_means = {offs} / tl.maximum({name}_count, 1.0)",
            f"{squared} = {squares}{f' - {offs} * {name}_means' if taken else ''}",
            *([f"{bases} = tl.where({name}_count > 0, {bases}, 0.0)"] if taken else []),
            f'{low} = tl.min(tl.where({name}_count > 0, {bases}, float("inf")), {tile.reduce_args})',
            f'{high} = tl.max(tl.where({name}_count > 0, {bases}, float("-inf")), {tile.reduce_args})',
            f"{name}_base = tl.sum({bases} * {name}_count, {tile.reduce_args}) / {size}",
            f"{name}_base = tl.minimum(tl.maximum({name}_base, {low}), {high})",
            f"{name}_apart = {bases} - {name}_base + {name}_means",
            f"{name}_off = tl.sum({name}_apart * {name}_count, {tile.reduce_args})",
            f"{name}_apart -= {name}_off / {size}",
            f"{squared} += {name}_count * {name}_apart * {name}_apart",
            f"{self.m2.value} = tl.sum({squared}, {tile.reduce_args})",
            *([f"{name} = {name}_base + {name}_off / {size}"] if final else []),
        ]


@dataclass(frozen=True)
class ExactMean:
    """A mean that is exact where all of a row is equal. Of a row in registers it is corrected by the mean of what is
    left once it is subtracted; else it is kept between the least and the largest element."""

    reduction: Reduction
    operand: RowOperand

    @property
    def values(self) -> tuple[str, ...]:
        return (self.reduction.value,)

    @property
    def _components(self) -> tuple[RowReduction, ...]:
        ops = (("sum", "total"), ("min", "low"), ("max", "high"))
        value, dtype = self.reduction.value, self.reduction.dtype
        return tuple(
            RowReduction(Reduction(value=f"{value}_{name}", op=op, arg=self.reduction.arg, dtype=dtype), self.operand)
            for op, name in ops
        )

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        return tuple(state for part in self._components for state in part.accumulators)

    def emit_single_tile(self, tile: Tile) -> list[str]:
        """From a row that is held in registers."""
        value, operand = self.reduction.value, self.operand
        left = RowOperand(
            f"({operand.value} - {value}_near)", operand.dtype, operand.varies_across_rows, operand.varies_along_row
        )
        return [
            f"{value}_near = tl.sum({apply_row_mask(tile, operand, '0.0')}, {tile.reduce_args}) / N",
            f"{value}_left = tl.sum({apply_row_mask(tile, left, '0.0')}, {tile.reduce_args}) / N",
            f"{value} = tl.where({value}_near - {value}_near == 0.0, {value}_near + {value}_left, {value}_near)",
        ]

    def start(self, tile: Tile, first: str) -> list[str]:
        return [line for part in self._components for line in part.start(tile, first)]

    def update(self, tile: Tile, first: str) -> list[str]:
        return [line for part in self._components for line in part.update(tile, first)]

    def finish(self, tile: Tile, accumulators: list[str], count: str, final: bool) -> list[str]:
        value = self.reduction.value
        parts = zip(self._components, accumulators, strict=True)
        lines = [line for part, state in parts for line in part.finish(tile, [state], "", final)]
        if not final:
            return lines
        return [*lines, f"{value} = smaller(larger({value}_total / N, {value}_low), {value}_high)"]


def _grouped_shape(tile: Tile, shape: str) -> str:
    """The shape of what groups of elements keep."""
    return shape.replace("BLOCK_N", f"BLOCK_N // {tile.vector_size}")


def _reduce_groups(tile: Tile, value: str, combine: str) -> str:
    """What the elements of each group give together, a sum if not otherwise."""
    groups = f"near({value}, {tile.vector_size})"
    return f"tl.reduce({groups}, 1, {combine})" if combine else f"tl.sum({groups}, axis=1)"


AnyReduction = RowReduction | OnlineSoftmax | Welford | ExactMean


def apply_row_mask(tile: Tile, operand: RowOperand, neutral: str) -> str:
    """The value where there is one, over the whole row even if it is the same everywhere."""
    if tile.needs_mask_n:
        return f"tl.where(mask_n, {operand.value}, {neutral})"
    return (
        operand.value
        if operand.varies_along_row
        else f"tl.broadcast_to({operand.value}, {tile.shape(operand.varies_across_rows)})"
    )


def plan_reductions(region: Region, fuse_pairs: bool, excluded: Collection[str]) -> list[AnyReduction]:
    """The reductions of a region `excluded` some; `fuse_pairs` where a sweep costs a read, so that two of one sweep are
    worth more."""
    by_value = {entry.value: entry for entry in (*region.loads, *region.steps)}
    reductions = [step for step in region.steps if isinstance(step, Reduction) and step.value not in excluded]
    ordered = any(isinstance(step, Scan) for step in region.steps)
    pairs = [_match_pair(region, by_value, one) for one in reductions] if fuse_pairs and not ordered else []
    found: list[AnyReduction] = []
    for pair in pairs:
        if pair and not set(pair.values) & {*excluded, *(value for other in found for value in other.values)}:
            found.append(pair)
    taken = {value for fold in found for value in fold.values}
    left = [(one, make_operand(region, by_value, one.arg)) for one in reductions if one.value not in taken]
    return found + [
        ExactMean(one, operand) if one.op == "mean" else RowReduction(one, operand) for one, operand in left
    ]


def partials_fit_32_bits(region: Region) -> bool:
    """Whether all that parts of a row find are numbers of 32 bits."""
    found = [step for step in region.steps if isinstance(step, Reduction)]
    return all(one.op in ("sum", "mean", "prod", "max", "min") and one.dtype in ("float32", "int32") for one in found)


def find_fast_exps(region: Region) -> set[str]:
    """Exponentials below a row's maximum whose results below the normal floats, 1.2e-38, are not missed: they count in
    a sum of 1 or more, and their shares of it are only written down as halves."""
    written = {store.value for store in region.stores}
    read = {value for step in region.steps for value in step.values}
    read |= {store.value for store in region.stores if store.dtype not in HALF_DTYPES}
    shared = find_softmax_divisions(region).keys() - read
    found = set()
    for total, power in ((one.total, one.exp_step) for one in find_exponential_sums(region)):
        users = {step.value for step in region.steps if power.value in step.values}
        fast = (power.op, power.dtype) == ("exp", "float32")
        if fast and power.value not in written and users <= {total.value} | shared:
            found.add(power.value)
    return found


def register_dtype(entry: Load | Step | Reduction | Scan) -> str:
    """The dtype of a value in registers: halves are float32 there."""
    return "float32" if isinstance(entry, Load) and entry.dtype in HALF_DTYPES else entry.dtype


def make_operand(region: Region, by_value: EntryByValue, value: str) -> RowOperand:
    """A value as a fold or a scan sees it."""
    axes, row = region.axes_of[value], {axis.name for axis in region.row}
    return RowOperand(
        value, register_dtype(by_value[value]), varies_across_rows=bool(axes - row), varies_along_row=bool(axes & row)
    )


def _match_pair(region: Region, by_value: EntryByValue, second: Reduction) -> OnlineSoftmax | Welford | None:
    """The pair whose later reduction this is."""
    source = by_value[second.arg]
    if second.op != "sum" or not isinstance(source, Step) or not is_float(second.dtype):
        return None
    if found := match_exponential_sum(by_value, second):
        operand, along = make_operand(region, by_value, found.operand), is_row_contiguous(region)
        return OnlineSoftmax(
            found.maximum, second, source.op, operand, found.guards_infinity, along and operand.varies_along_row
        )
    squared = source.op == "square" or (source.op == "mul" and source.args[0] == source.args[-1])
    return _match_welford(region, by_value, second, source) if squared else None


def _match_welford(region: Region, by_value: EntryByValue, squares: Reduction, square: Step) -> Welford | None:
    base, shift = match_difference(by_value, square.args[0]) or ("", "")
    mean = by_value.get(shift)
    if not isinstance(mean, Reduction) or mean.op != "mean" or mean.arg != base:
        return None
    operand = make_operand(region, by_value, base)
    return Welford(mean, squares, operand) if operand.varies_along_row else None


def _arg_combiner(op: str) -> str:
    return "first_larger" if op == "argmax" else "first_smaller"


def _combiner_args(tile: Tile, name: str) -> str:
    return name if tile.is_single_row else f"{name}, keep_dims=True"
