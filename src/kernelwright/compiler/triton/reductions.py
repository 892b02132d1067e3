"""Reductions over a row as Triton text: what a tile keeps while it runs along the row, and how that ends.

A fold has states. They begin neutral, take in one tile after another, and are finished across the tile; the same
finish puts the parts of a row together. Two pairs of reductions need one sweep instead of two: a maximum with the sum
of exponentials below it (Milakov and Gimelshein, arXiv:1805.02867), and a mean with the sum of squares around it
(Welford 1962, merged as by Chan, Golub and LeVeque 1983).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kernelwright.compiler.regions.axes import Misfit
from kernelwright.compiler.regions.exponentials import Entries, difference, exponential_sum, exponential_sums, shares
from kernelwright.compiler.regions.region import Load, Reduction, Region, Scan, Step
from kernelwright.compiler.triton.op_templates import HALVES, TYPES, highest, is_float, literal, lowest
from kernelwright.compiler.triton.tile import Tile, lanes_along_row

FAST_EXP = "libdevice.fast_expf"
"""Without what it takes to give results below the normal range."""


@dataclass(frozen=True)
class Operand:
    """What a fold runs over: a value by name, its dtype, and on which axes it depends."""

    value: str
    dtype: str
    outer: bool
    inner: bool


@dataclass(frozen=True)
class State:
    """One variable of a fold: `name` for a finished part of a row, `name_tile` while a tile runs."""

    name: str
    dtype: str
    neutral: str


@dataclass(frozen=True)
class Fold:
    """One reduction."""

    reduction: Reduction
    operand: Operand

    @property
    def values(self) -> tuple[str, ...]:
        return (self.reduction.value,)

    @property
    def states(self) -> tuple[State, ...]:
        op, dtype = self.reduction.op, self.reduction.dtype
        if op in ("argmax", "argmin"):
            neutral = lowest(self.operand.dtype) if op == "argmax" else highest(self.operand.dtype)
            return (
                State(f"{self.reduction.value}_best", self.operand.dtype, neutral),
                State(self.reduction.value, "int64", "N"),
            )
        if op in ("any", "all"):
            return (State(self.reduction.value, "int32", "0" if op == "any" else "1"),)
        if op not in ("sum", "prod", "max", "min"):
            raise Misfit(f"{op} over a row has no form in Triton yet")
        neutral = {"sum": literal(0, dtype), "prod": literal(1, dtype)}.get(op)
        neutral = neutral or (lowest(dtype) if op == "max" else highest(dtype))
        return (State(self.reduction.value, dtype, neutral),)

    def taken(self, tile: Tile) -> list[str]:
        """The states that one tile of values is by itself."""
        value = masked(tile, self.operand, self.states[0].neutral)
        if self.reduction.op in ("any", "all"):
            narrow = f"{self.operand.value}.to(tl.int32)"
            operand = Operand(narrow, "int32", self.operand.outer, self.operand.inner)
            return [masked(tile, operand, self.states[0].neutral)]
        if self.seeks_place:
            return [value, f"tl.broadcast_to({tile.n}, {tile.shape(self.operand.outer)})"]
        return [value]

    def start(self, tile: Tile, first: str) -> list[str]:
        shape = tile.shape(self.operand.outer)
        if self.grouped(tile):
            shape = _by_groups(tile, shape)
        neutral = {state.name: f"tl.full({shape}, {state.neutral}, {TYPES[state.dtype]})" for state in self.states}
        if self.seeks_place:
            begin = f"tl.full({shape}, 0, tl.int{64 if tile.wide_row else 32})"
            neutral[self.states[1].name] = begin if first == "0" else f"{begin} + {first}"
        return [f"{name}_tile = {value}" for name, value in neutral.items()]

    @property
    def seeks_place(self) -> bool:
        """Whether it keeps where something is: for each lane the step of the loop, which has to run forwards."""
        return self.reduction.op in ("argmax", "argmin")

    def update(self, tile: Tile, first: str) -> list[str]:
        taken = self.taken(tile)
        name, op = f"{self.states[0].name}_tile", self.reduction.op
        if self.grouped(tile):
            taken = [_near(tile, taken[0], {"sum": "", "prod": "product"}.get(op, self._extreme(op)))]
        if op == "sum":
            return [f"{name} += {taken[0]}"]
        if op == "prod":
            return [f"{name} *= {taken[0]}"]
        if self.seeks_place:
            at = f"{self.states[1].name}_tile"
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
        return [f"{name} = {self._extreme(op)}({name}, {taken[0]})"]

    def grouped(self, tile: Tile) -> bool:
        """Whether each group of elements keeps one state."""
        return tile.group > 1 and is_float(self.states[0].dtype) and not self.seeks_place

    def _extreme(self, op: str) -> str:
        if is_float(self.states[0].dtype):
            return "larger" if op == "max" else "smaller"
        return "tl.maximum" if op in ("max", "any") else "tl.minimum"

    def finish(self, tile: Tile, states: list[str], count: str, final: bool) -> list[str]:
        """Across the tile: the values from expressions for the states."""
        value, op, floats = self.reduction.value, self.reduction.op, is_float(self.states[0].dtype)
        if self.seeks_place:
            best, at = self.states[0].name, states[1]
            if at.endswith("_tile"):
                at += f" + tl.arange(0, BLOCK_N){tile.along}"
            given = f"{states[0]}, {at}"
            keep = "" if tile.line else ", keep_dims=True"
            return [
                f"{best}, {value} = tl.reduce(({given}), {tile.axis_number}, {_first(op)}{keep})",
                f"{value} = {value}.to(tl.int64)",
            ]
        if op == "sum":
            return [f"{value} = tl.sum({states[0]}, {tile.axis})"]
        if op in ("any", "all"):
            return [f"{value} = tl.{'max' if op == 'any' else 'min'}({states[0]}, {tile.axis}) > 0"]
        if op == "prod":
            return [f"{value} = tl.reduce({states[0]}, {tile.axis_number}, {_combining(tile, 'product')})"]
        if floats:
            return [f"{value} = tl.reduce({states[0]}, {tile.axis_number}, {_combining(tile, self._extreme(op))})"]
        cast = "" if self.reduction.dtype in ("int64", "int32") else f".to({TYPES[self.reduction.dtype]})"
        return [f"{value} = tl.{op}({states[0]}, {tile.axis}){cast}"]


@dataclass(frozen=True)
class OnlineSum:
    """A maximum, and the sum of the exponentials of what is below it.

    Where memory lies `along` the row a tile shares one maximum, which costs a reduction a tile and leaves three
    operations an element; else a lane's sum is relative to the lane's own. An infinite maximum counts as zero, so that
    no difference of infinities comes up. A `guarded` sum, as of logsumexp, is that; any other is not a number there, as
    torch's is not.
    """

    maximum: Reduction
    total: Reduction
    power: str
    operand: Operand
    guarded: bool
    along: bool

    @property
    def values(self) -> tuple[str, ...]:
        return (self.maximum.value, self.total.value)

    @property
    def states(self) -> tuple[State, ...]:
        dtype = self.operand.dtype
        return (State(self.maximum.value, dtype, lowest(dtype)), State(self.total.value, dtype, literal(0, dtype)))

    def start(self, tile: Tile, first: str) -> list[str]:
        shape = tile.shape(self.operand.outer)
        shapes = (shape.replace("BLOCK_N", "1") if self.along else shape, shape)
        if self.grouped(tile):
            shapes = (_by_groups(tile, shape),) * 2
        return [
            f"{state.name}_tile = tl.full({of}, {state.neutral}, {TYPES[state.dtype]})"
            for state, of in zip(self.states, shapes, strict=True)
        ]

    def update(self, tile: Tile, first: str) -> list[str]:
        top, total = (f"{state.name}_tile" for state in self.states)
        taken = f"taken = {masked(tile, self.operand, self.states[0].neutral)}"
        above, decay = f"{self.total.value}_above", f"{self.total.value}_decay"
        fast = self.power == "exp" and self.operand.dtype == "float32"  # as in `fast_exps`
        power = FAST_EXP if fast else f"tl.{self.power}"
        if not self.along:
            return [
                taken,
                f"{above} = tl.where(taken == {top}, 0.0, taken - {top})",
                f"{decay} = {power}(-tl.abs({above}))",
                f"{total} = tl.where({above} > 0, {total} * {decay} + 1.0, {total} + {decay})",
                f"{top} = larger({top}, taken)",
            ]
        powers = f"{power}(taken - {self.total.value}_shift)"
        best = f"tl.reduce(taken, {tile.axis_number}, larger, keep_dims=True)"
        if self.grouped(tile):
            best = _near(tile, "taken", "larger")
            powers = _near(tile, f"{power}(taken - spread({self.total.value}_shift, {tile.group}))", "")
        return [
            taken,
            f"{above} = larger({top}, {best})",
            f"{self.total.value}_shift = {_finite(above)}",
            f"{decay} = tl.{self.power}({top} - {self.total.value}_shift)",
            f"{total} *= tl.where({top} == {above}, 1.0, {decay})",
            f"{total} += {powers}",
            f"{top} = {above}",
        ]

    def finish(self, tile: Tile, states: list[str], count: str, final: bool) -> list[str]:
        top, total = self.maximum.value, self.total.value
        tops, totals = states
        lines = [
            f"{top} = tl.reduce({tops}, {tile.axis_number}, {_combining(tile, 'larger')})",
            f"{total}_shift = {_finite(top)}",
            f"{total} = tl.sum({totals} * tl.{self.power}({tops} - {total}_shift), {tile.axis})",
        ]
        if self.along and tops.endswith("_tile") and not self.grouped(tile):  # all of it is relative to one maximum
            lines[2:] = [f"{total} = tl.sum({totals}, {tile.axis})"]
        if self.guarded or not final:
            return lines
        return [*lines, f"{total} += {top} - {top}  # not a number where the maximum is infinite"]

    def grouped(self, tile: Tile) -> bool:
        """Whether each group of elements has a maximum of its own."""
        return self.along and tile.group > 1

    def shares_of_groups(self) -> list[str]:
        """What an exponential below its group's maximum is multiplied with to be a share of all."""
        top, total = self.maximum.value, self.total.value
        below = f"tl.{self.power}({top}_tile - {total}_shift)"
        return [
            f"{total}_near_shift = {_finite(f'{top}_tile')}",
            f"{total}_near_reciprocal = {total}_reciprocal * tl.where({top}_tile == {top}, 1.0, {below})",
        ]


def _finite(value: str) -> str:
    return f'tl.where(tl.abs({value}) == float("inf"), 0.0, {value})'


@dataclass(frozen=True)
class Moments:
    """A mean, and the sum of squared differences from it.

    Each lane measures from a base, the first element that it sees, so that nothing large is subtracted at the end: at
    most as many digits are lost as the number of elements in a lane has. The mean of the bases, kept between the least
    and the largest of them, is exact where all are equal. An infinite element makes both NaN.
    """

    mean: Reduction
    squares: Reduction
    operand: Operand

    @property
    def values(self) -> tuple[str, ...]:
        return (self.mean.value, self.squares.value)

    @property
    def states(self) -> tuple[State, ...]:
        zero = literal(0, self.operand.dtype)
        names = (f"{self.mean.value}_base", f"{self.mean.value}_off", self.squares.value)
        return tuple(State(name, self.operand.dtype, zero) for name in names)

    def start(self, tile: Tile, first: str) -> list[str]:
        shape, kind = tile.shape(self.operand.outer), TYPES[self.operand.dtype]
        return [f"{state.name}_tile = tl.full({shape}, 0.0, {kind})" for state in self.states]

    def update(self, tile: Tile, first: str) -> list[str]:
        base, off, squares = (f"{state.name}_tile" for state in self.states)
        difference = f"{self.operand.value} - {base}"
        return [
            f"{base} = tl.where(start == {first}, {self.operand.value}, {base})",
            f"off = {f'tl.where(mask_n, {difference}, 0.0)' if tile.ragged_n else difference}",
            f"{off} += off",
            f"{squares} += off * off",
        ]

    def finish(self, tile: Tile, states: list[str], count: str, final: bool) -> list[str]:
        """`count` is how many elements each lane, or each part, has seen."""
        bases, offs, squares = states
        name, kind, size = self.mean.value, TYPES[self.operand.dtype], "N" if final else "size"
        squared, low, high = f"{self.squares.value}_within", f"{name}_low", f"{name}_high"
        taken = offs.endswith("_tile")  # else each part has measured from its own mean
        return [
            f"{name}_count = ({count}).to({kind})",
            f"{name}_means = {offs} / tl.maximum({name}_count, 1.0)",
            f"{squared} = {squares}{f' - {offs} * {name}_means' if taken else ''}",
            *([f"{bases} = tl.where({name}_count > 0, {bases}, 0.0)"] if taken else []),
            f'{low} = tl.min(tl.where({name}_count > 0, {bases}, float("inf")), {tile.axis})',
            f'{high} = tl.max(tl.where({name}_count > 0, {bases}, float("-inf")), {tile.axis})',
            f"{name}_base = tl.sum({bases} * {name}_count, {tile.axis}) / {size}",
            f"{name}_base = tl.minimum(tl.maximum({name}_base, {low}), {high})",
            f"{name}_apart = {bases} - {name}_base + {name}_means",
            f"{name}_off = tl.sum({name}_apart * {name}_count, {tile.axis})",
            f"{name}_apart -= {name}_off / {size}",
            f"{squared} += {name}_count * {name}_apart * {name}_apart",
            f"{self.squares.value} = tl.sum({squared}, {tile.axis})",
            *([f"{name} = {name}_base + {name}_off / {size}"] if final else []),
        ]


@dataclass(frozen=True)
class Mean:
    """A mean that is exact where all of a row is equal. Of a row in registers it is corrected by the mean of what is
    left once it is subtracted; else it is kept between the least and the largest element."""

    reduction: Reduction
    operand: Operand

    @property
    def values(self) -> tuple[str, ...]:
        return (self.reduction.value,)

    @property
    def _parts(self) -> tuple[Fold, ...]:
        ops = (("sum", "total"), ("min", "low"), ("max", "high"))
        value, dtype = self.reduction.value, self.reduction.dtype
        return tuple(
            Fold(Reduction(value=f"{value}_{name}", op=op, arg=self.reduction.arg, dtype=dtype), self.operand)
            for op, name in ops
        )

    @property
    def states(self) -> tuple[State, ...]:
        return tuple(state for part in self._parts for state in part.states)

    def of_whole(self, tile: Tile) -> list[str]:
        """From a row that is held in registers."""
        value, operand = self.reduction.value, self.operand
        left = Operand(f"({operand.value} - {value}_near)", operand.dtype, operand.outer, operand.inner)
        return [
            f"{value}_near = tl.sum({masked(tile, operand, '0.0')}, {tile.axis}) / N",
            f"{value}_left = tl.sum({masked(tile, left, '0.0')}, {tile.axis}) / N",
            f"{value} = tl.where({value}_near - {value}_near == 0.0, {value}_near + {value}_left, {value}_near)",
        ]

    def start(self, tile: Tile, first: str) -> list[str]:
        return [line for part in self._parts for line in part.start(tile, first)]

    def update(self, tile: Tile, first: str) -> list[str]:
        return [line for part in self._parts for line in part.update(tile, first)]

    def finish(self, tile: Tile, states: list[str], count: str, final: bool) -> list[str]:
        value = self.reduction.value
        parts = zip(self._parts, states, strict=True)
        lines = [line for part, state in parts for line in part.finish(tile, [state], "", final)]
        if not final:
            return lines
        return [*lines, f"{value} = smaller(larger({value}_total / N, {value}_low), {value}_high)"]


def _by_groups(tile: Tile, shape: str) -> str:
    """The shape of what groups of elements keep."""
    return shape.replace("BLOCK_N", f"BLOCK_N // {tile.group}")


def _near(tile: Tile, value: str, combine: str) -> str:
    """What the elements of each group give together, a sum if not otherwise."""
    groups = f"near({value}, {tile.group})"
    return f"tl.reduce({groups}, 1, {combine})" if combine else f"tl.sum({groups}, axis=1)"


AnyFold = Fold | OnlineSum | Moments | Mean


def masked(tile: Tile, operand: Operand, neutral: str) -> str:
    """The value where there is one, over the whole row even if it is the same everywhere."""
    if tile.ragged_n:
        return f"tl.where(mask_n, {operand.value}, {neutral})"
    return operand.value if operand.inner else f"tl.broadcast_to({operand.value}, {tile.shape(operand.outer)})"


def folds_of(region: Region, paired: bool, but: Collection[str]) -> list[AnyFold]:
    """The reductions of a region `but` some; `paired` where a sweep costs a read, so that two of one sweep are worth
    more."""
    by_value = {entry.value: entry for entry in (*region.loads, *region.steps)}
    reductions = [step for step in region.steps if isinstance(step, Reduction) and step.value not in but]
    ordered = any(isinstance(step, Scan) for step in region.steps)
    pairs = [_pair(region, by_value, one) for one in reductions] if paired and not ordered else []
    found: list[AnyFold] = []
    for pair in pairs:
        if pair and not set(pair.values) & {*but, *(value for other in found for value in other.values)}:
            found.append(pair)
    taken = {value for fold in found for value in fold.values}
    left = [(one, operand_of(region, by_value, one.arg)) for one in reductions if one.value not in taken]
    return found + [Mean(one, operand) if one.op == "mean" else Fold(one, operand) for one, operand in left]


def told_in_words(region: Region) -> bool:
    """Whether all that parts of a row find are numbers of 32 bits."""
    found = [step for step in region.steps if isinstance(step, Reduction)]
    return all(one.op in ("sum", "mean", "prod", "max", "min") and one.dtype in ("float32", "int32") for one in found)


def fast_exps(region: Region) -> set[str]:
    """Exponentials below a row's maximum whose results below the normal floats, 1.2e-38, are not missed: they count in
    a sum of 1 or more, and their shares of it are only written down as halves."""
    written = {store.value for store in region.stores}
    read = {value for step in region.steps for value in step.values}
    read |= {store.value for store in region.stores if store.dtype not in HALVES}
    shared = shares(region).keys() - read
    found = set()
    for total, power in ((one.total, one.power) for one in exponential_sums(region)):
        users = {step.value for step in region.steps if power.value in step.values}
        fast = (power.op, power.dtype) == ("exp", "float32")
        if fast and power.value not in written and users <= {total.value} | shared:
            found.add(power.value)
    return found


def computed_dtype(entry: Load | Step | Reduction | Scan) -> str:
    """The dtype of a value in registers: halves are float32 there."""
    return "float32" if isinstance(entry, Load) and entry.dtype in HALVES else entry.dtype


def operand_of(region: Region, by_value: Entries, value: str) -> Operand:
    """A value as a fold or a scan sees it."""
    axes, row = region.axes_of[value], {axis.name for axis in region.row}
    return Operand(value, computed_dtype(by_value[value]), outer=bool(axes - row), inner=bool(axes & row))


def _pair(region: Region, by_value: Entries, second: Reduction) -> OnlineSum | Moments | None:
    """The pair whose later reduction this is."""
    source = by_value[second.arg]
    if second.op != "sum" or not isinstance(source, Step) or not is_float(second.dtype):
        return None
    if found := exponential_sum(by_value, second):
        operand, along = operand_of(region, by_value, found.base), lanes_along_row(region)
        return OnlineSum(found.maximum, second, source.op, operand, found.guarded, along and operand.inner)
    squared = source.op == "square" or (source.op == "mul" and source.args[0] == source.args[-1])
    return _moments(region, by_value, second, source) if squared else None


def _moments(region: Region, by_value: Entries, squares: Reduction, square: Step) -> Moments | None:
    base, shift = difference(by_value, square.args[0]) or ("", "")
    mean = by_value.get(shift)
    if not isinstance(mean, Reduction) or mean.op != "mean" or mean.arg != base:
        return None
    operand = operand_of(region, by_value, base)
    return Moments(mean, squares, operand) if operand.inner else None


def _first(op: str) -> str:
    return "first_larger" if op == "argmax" else "first_smaller"


def _combining(tile: Tile, name: str) -> str:
    return name if tile.line else f"{name}, keep_dims=True"
