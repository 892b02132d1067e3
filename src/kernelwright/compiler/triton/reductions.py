"""Reductions over a row: the accumulators that a tile updates along the row, and how they are finished.

Accumulators start with the identity, are updated tile by tile, and are reduced across the tile at the end; the same
reduction combines the splits of a row. Two pairs of reductions need one pass instead of two: a maximum with the sum of
exponentials relative to it (Milakov and Gimelshein, arXiv:1805.02867), and a mean with the sum of squared differences
from it (Welford 1962, merged as by Chan, Golub and LeVeque 1983).
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.region import Reduction
from kernelwright.compiler.triton.op_templates import TRITON_TYPES, highest, is_float, literal, lowest
from kernelwright.compiler.triton.tile import Tile

FAST_EXP = "libdevice.fast_expf"
"""exp without the instructions that give subnormal results."""


@dataclass(frozen=True)
class RowOperand:
    """The operand of a reduction: an expression, its dtype, and the axes it depends on."""

    value: str
    dtype: str
    varies_across_rows: bool
    varies_along_row: bool


@dataclass(frozen=True)
class Accumulator:
    """One variable of a reduction: `name` is the result for a row or a split, `name_acc` the accumulator tile."""

    name: str
    dtype: str
    identity: str


@dataclass(frozen=True)
class RowReduction:
    """A single reduction."""

    reduction: Reduction
    operand: RowOperand

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the region that this computes."""
        return (self.reduction.value,)

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        """The accumulators, for argmax and argmin the extreme and its index."""
        op, dtype = self.reduction.op, self.reduction.dtype
        if op in ("argmax", "argmin"):
            identity = lowest(self.operand.dtype) if op == "argmax" else highest(self.operand.dtype)
            return (
                Accumulator(f"{self.reduction.value}_best", self.operand.dtype, identity),
                Accumulator(self.reduction.value, "int64", "N"),
            )
        if op in ("any", "all"):
            return (Accumulator(self.reduction.value, "int32", "0" if op == "any" else "1"),)
        if op not in ("sum", "prod", "max", "min"):
            raise Unsupported(f"{op} over a row is not supported by the Triton backend")
        identity = {"sum": literal(0, dtype), "prod": literal(1, dtype)}.get(op)
        identity = identity or (lowest(dtype) if op == "max" else highest(dtype))
        return (Accumulator(self.reduction.value, dtype, identity),)

    def tile_accumulators(self, tile: Tile) -> list[str]:
        """The accumulators of one tile of elements."""
        value = apply_row_mask(tile, self.operand, self.accumulators[0].identity)
        if self.reduction.op in ("any", "all"):
            as_int32 = f"{self.operand.value}.to(tl.int32)"
            operand = RowOperand(as_int32, "int32", self.operand.varies_across_rows, self.operand.varies_along_row)
            return [apply_row_mask(tile, operand, self.accumulators[0].identity)]
        if self.tracks_index:
            return [value, f"tl.broadcast_to({tile.offs_n}, {tile.shape(self.operand.varies_across_rows)})"]
        return [value]

    def start(self, tile: Tile, first: str) -> list[str]:
        """The lines that initialise the accumulators; `first` is the first element of the pass."""
        shape = tile.shape(self.operand.varies_across_rows)
        if self.has_vector_accumulators(tile):
            shape = _grouped_shape(tile, shape)
        initial = {
            state.name: f"tl.full({shape}, {state.identity}, {TRITON_TYPES[state.dtype]})"
            for state in self.accumulators
        }
        if self.tracks_index:
            zeros = f"tl.full({shape}, 0, tl.int{64 if tile.int64_row_offsets else 32})"
            initial[self.accumulators[1].name] = zeros if first == "0" else f"{zeros} + {first}"
        return [f"{name}_acc = {value}" for name, value in initial.items()]

    @property
    def tracks_index(self) -> bool:
        """Whether this is argmax or argmin. Lanes keep the `start_n` of their best tile, which needs a forward loop."""
        return self.reduction.op in ("argmax", "argmin")

    def update(self, tile: Tile, first: str) -> list[str]:
        """The lines that update the accumulators with one tile."""
        masked, *_ = self.tile_accumulators(tile)
        acc, op = f"{self.accumulators[0].name}_acc", self.reduction.op
        if self.has_vector_accumulators(tile):
            combine = {"sum": "", "prod": "multiply_combine"}.get(op, self._minmax_function(op))
            masked = _reduce_groups(tile, masked, combine)
        if op == "sum":
            return [f"{acc} += {masked}"]
        if op == "prod":
            return [f"{acc} *= {masked}"]
        if self.tracks_index:
            index_acc = f"{self.accumulators[1].name}_acc"
            beats, does_not_beat = (">", "<=") if op == "argmax" else ("<", ">=")
            better = f"x {beats} {acc}"
            if is_float(self.operand.dtype):  # NaN beats all numbers, but not NaN
                better = f"~(x {does_not_beat} {acc}) & ({acc} == {acc})"
            return [
                f"x = {masked}",
                f"better = {better}",
                f"{acc} = tl.where(better, x, {acc})",
                f"{index_acc} = tl.where(better, start_n, {index_acc})",
            ]
        return [f"{acc} = {self._minmax_function(op)}({acc}, {masked})"]

    def has_vector_accumulators(self, tile: Tile) -> bool:
        """Whether each group of elements has one accumulator."""
        return tile.vector_size > 1 and is_float(self.accumulators[0].dtype) and not self.tracks_index

    def _minmax_function(self, op: str) -> str:
        if is_float(self.accumulators[0].dtype):
            return "maximum_nan" if op == "max" else "minimum_nan"
        return "tl.maximum" if op in ("max", "any") else "tl.minimum"

    def finish(self, tile: Tile, accumulators: list[str], count: str, final: bool) -> list[str]:
        """The lines that reduce the accumulators across the tile.

        Args:
            accumulators: their expressions.
            count: the number of elements that each lane, or each split, has accumulated.
            final: of the whole row; otherwise of one split.
        """
        value, op, floats = self.reduction.value, self.reduction.op, is_float(self.accumulators[0].dtype)
        if self.tracks_index:
            best, index = self.accumulators[0].name, accumulators[1]
            if index.endswith("_acc"):
                index += f" + tl.arange(0, BLOCK_N){tile.broadcast_suffix}"
            pair = f"{accumulators[0]}, {index}"
            keep_dims = "" if tile.is_single_row else ", keep_dims=True"
            return [
                f"{best}, {value} = tl.reduce(({pair}), {tile.reduce_axis}, {_arg_combiner(op)}{keep_dims})",
                f"{value} = {value}.to(tl.int64)",
            ]
        if op == "sum":
            return [f"{value} = tl.sum({accumulators[0]}, {tile.reduce_args})"]
        if op in ("any", "all"):
            return [f"{value} = tl.{'max' if op == 'any' else 'min'}({accumulators[0]}, {tile.reduce_args}) > 0"]
        if op == "prod":
            combiner = _combiner_args(tile, "multiply_combine")
            return [f"{value} = tl.reduce({accumulators[0]}, {tile.reduce_axis}, {combiner})"]
        if floats:
            combiner = _combiner_args(tile, self._minmax_function(op))
            return [f"{value} = tl.reduce({accumulators[0]}, {tile.reduce_axis}, {combiner})"]
        cast = "" if self.reduction.dtype in ("int64", "int32") else f".to({TRITON_TYPES[self.reduction.dtype]})"
        return [f"{value} = tl.{op}({accumulators[0]}, {tile.reduce_args}){cast}"]


@dataclass(frozen=True)
class OnlineSoftmax:
    """A maximum, and the sum of exponentials of the differences from it.

    With `shares_tile_max`, for contiguous rows, a tile has one maximum, which costs a reduction per tile and saves all
    but three operations per element; otherwise each lane's sum is relative to the lane's own maximum. An infinite
    maximum counts as zero, so that no difference of infinities occurs. A sum that `guards_infinity`, such as
    logsumexp's, keeps that value; any other is NaN there, as in torch.
    """

    maximum: Reduction
    total: Reduction
    exp_op: str
    operand: RowOperand
    guards_infinity: bool
    shares_tile_max: bool

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the region that this computes."""
        return (self.maximum.value, self.total.value)

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        """The maximum and the sum."""
        dtype = self.operand.dtype
        return (
            Accumulator(self.maximum.value, dtype, lowest(dtype)),
            Accumulator(self.total.value, dtype, literal(0, dtype)),
        )

    def start(self, tile: Tile, first: str) -> list[str]:
        """The lines that initialise the accumulators."""
        shape = tile.shape(self.operand.varies_across_rows)
        shapes = (shape.replace("BLOCK_N", "1") if self.shares_tile_max else shape, shape)
        if self.has_vector_accumulators(tile):
            shapes = (_grouped_shape(tile, shape),) * 2
        return [
            f"{state.name}_acc = tl.full({state_shape}, {state.identity}, {TRITON_TYPES[state.dtype]})"
            for state, state_shape in zip(self.accumulators, shapes, strict=True)
        ]

    def update(self, tile: Tile, first: str) -> list[str]:
        """The lines that update the accumulators with one tile."""
        max_acc, sum_acc = (f"{state.name}_acc" for state in self.accumulators)
        masked = apply_row_mask(tile, self.operand, self.accumulators[0].identity)
        total = self.total.value
        is_fast = self.exp_op == "exp" and self.operand.dtype == "float32"  # as in `find_fast_exps`
        exp = FAST_EXP if is_fast else f"tl.{self.exp_op}"
        if not self.shares_tile_max:
            diff, rescale = f"{total}_diff", f"{total}_rescale"
            return [
                f"x = {masked}",
                f"{diff} = tl.where(x == {max_acc}, 0.0, x - {max_acc})",
                f"{rescale} = {exp}(-tl.abs({diff}))",
                f"{sum_acc} = tl.where({diff} > 0, {sum_acc} * {rescale} + 1.0, {sum_acc} + {rescale})",
                f"{max_acc} = maximum_nan({max_acc}, x)",
            ]
        new_max, rescale = f"{total}_new_max", f"{total}_rescale"
        powers = f"{exp}(x - {total}_shift)"
        tile_max = f"tl.reduce(x, {tile.reduce_axis}, maximum_nan, keep_dims=True)"
        if self.has_vector_accumulators(tile):
            tile_max = _reduce_groups(tile, "x", "maximum_nan")
            powers = _reduce_groups(tile, f"{exp}(x - broadcast_groups({total}_shift, {tile.vector_size}))", "")
        return [
            f"x = {masked}",
            f"{new_max} = maximum_nan({max_acc}, {tile_max})",
            f"{total}_shift = {_zero_if_infinite(new_max)}",
            f"{rescale} = tl.{self.exp_op}({max_acc} - {total}_shift)",
            f"{sum_acc} *= tl.where({max_acc} == {new_max}, 1.0, {rescale})",
            f"{sum_acc} += {powers}",
            f"{max_acc} = {new_max}",
        ]

    def finish(self, tile: Tile, accumulators: list[str], count: str, final: bool) -> list[str]:
        """The lines that reduce the accumulators across the tile; arguments as for `RowReduction.finish`."""
        maximum, total = self.maximum.value, self.total.value
        maxima, sums = accumulators
        lines = [
            f"{maximum} = tl.reduce({maxima}, {tile.reduce_axis}, {_combiner_args(tile, 'maximum_nan')})",
            f"{total}_shift = {_zero_if_infinite(maximum)}",
            f"{total} = tl.sum({sums} * tl.{self.exp_op}({maxima} - {total}_shift), {tile.reduce_args})",
        ]
        is_shared = self.shares_tile_max and maxima.endswith("_acc") and not self.has_vector_accumulators(tile)
        if is_shared:  # all lanes are relative to the same maximum
            lines[2:] = [f"{total} = tl.sum({sums}, {tile.reduce_args})"]
        if self.guards_infinity or not final:
            return lines
        return [*lines, f"{total} += {maximum} - {maximum}  # NaN where the maximum is infinite"]

    def has_vector_accumulators(self, tile: Tile) -> bool:
        """Whether each group of elements has its own maximum and sum."""
        return self.shares_tile_max and tile.vector_size > 1

    def emit_group_scales(self) -> list[str]:
        """The lines that compute the factor from an exponential relative to its group's maximum to its softmax."""
        maximum, total = self.maximum.value, self.total.value
        rescale = f"tl.{self.exp_op}({maximum}_acc - {total}_shift)"
        return [
            f"{total}_group_shift = {_zero_if_infinite(f'{maximum}_acc')}",
            f"{total}_group_rcp = {total}_rcp * tl.where({maximum}_acc == {maximum}, 1.0, {rescale})",
        ]


def _zero_if_infinite(value: str) -> str:
    return f'tl.where(tl.abs({value}) == float("inf"), 0.0, {value})'


@dataclass(frozen=True)
class Welford:
    """A mean, and the sum of squared differences from it.

    Each lane measures from a shift, its first element, so that no large numbers are subtracted at the end: at most as
    many digits are lost as the number of elements in a lane has. The mean of the shifts, clamped to the smallest and
    the largest of them, is exact where all are equal. An infinite element makes both results NaN.
    """

    mean: Reduction
    m2: Reduction
    operand: RowOperand

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the region that this computes."""
        return (self.mean.value, self.m2.value)

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        """The shift, the sum of differences from it, and the sum of their squares."""
        zero = literal(0, self.operand.dtype)
        names = (f"{self.mean.value}_shift", f"{self.mean.value}_delta_sum", self.m2.value)
        return tuple(Accumulator(name, self.operand.dtype, zero) for name in names)

    def start(self, tile: Tile, first: str) -> list[str]:
        """The lines that initialise the accumulators."""
        shape, ttype = tile.shape(self.operand.varies_across_rows), TRITON_TYPES[self.operand.dtype]
        return [f"{state.name}_acc = tl.full({shape}, 0.0, {ttype})" for state in self.accumulators]

    def update(self, tile: Tile, first: str) -> list[str]:
        """The lines that update the accumulators with one tile; `first` is the first element of the pass."""
        shift, delta_sum, squares = (f"{state.name}_acc" for state in self.accumulators)
        delta = f"{self.operand.value} - {shift}"
        return [
            f"{shift} = tl.where(start_n == {first}, {self.operand.value}, {shift})",
            f"delta = {f'tl.where(mask_n, {delta}, 0.0)' if tile.needs_mask_n else delta}",
            f"{delta_sum} += delta",
            f"{squares} += delta * delta",
        ]

    def finish(self, tile: Tile, accumulators: list[str], count: str, final: bool) -> list[str]:
        """The lines that reduce the accumulators across the tile; arguments as for `RowReduction.finish`."""
        shifts, delta_sums, squares = accumulators
        mean, ttype, size = self.mean.value, TRITON_TYPES[self.operand.dtype], "N" if final else "split_len"
        m2_lanes, lowest_shift, highest_shift = f"{self.m2.value}_lanes", f"{mean}_min", f"{mean}_max"
        of_tile = delta_sums.endswith("_acc")  # otherwise of splits, whose squares are relative to their own means
        return [
            f"{mean}_count = ({count}).to({ttype})",
            f"{mean}_lane_means = {delta_sums} / tl.maximum({mean}_count, 1.0)",
            f"{m2_lanes} = {squares}{f' - {delta_sums} * {mean}_lane_means' if of_tile else ''}",
            *([f"{shifts} = tl.where({mean}_count > 0, {shifts}, 0.0)"] if of_tile else []),
            f'{lowest_shift} = tl.min(tl.where({mean}_count > 0, {shifts}, float("inf")), {tile.reduce_args})',
            f'{highest_shift} = tl.max(tl.where({mean}_count > 0, {shifts}, float("-inf")), {tile.reduce_args})',
            f"{mean}_shift = tl.sum({shifts} * {mean}_count, {tile.reduce_args}) / {size}",
            f"{mean}_shift = tl.minimum(tl.maximum({mean}_shift, {lowest_shift}), {highest_shift})",
            f"{mean}_delta = {shifts} - {mean}_shift + {mean}_lane_means",
            f"{mean}_delta_sum = tl.sum({mean}_delta * {mean}_count, {tile.reduce_args})",
            f"{mean}_delta -= {mean}_delta_sum / {size}",
            f"{m2_lanes} += {mean}_count * {mean}_delta * {mean}_delta",
            f"{self.m2.value} = tl.sum({m2_lanes}, {tile.reduce_args})",
            *([f"{mean} = {mean}_shift + {mean}_delta_sum / {size}"] if final else []),
        ]


@dataclass(frozen=True)
class ExactMean:
    """A mean that is exact where all elements of a row are equal. In a single tile it is corrected by the mean of the
    residuals; otherwise it is clamped to the smallest and the largest element."""

    reduction: Reduction
    operand: RowOperand

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the region that this computes."""
        return (self.reduction.value,)

    @property
    def _components(self) -> tuple[RowReduction, ...]:
        value, dtype = self.reduction.value, self.reduction.dtype
        return tuple(
            RowReduction(Reduction(value=f"{value}_row_{op}", op=op, arg=self.reduction.arg, dtype=dtype), self.operand)
            for op in ("sum", "min", "max")
        )

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        """The sum, the minimum and the maximum."""
        return tuple(state for component in self._components for state in component.accumulators)

    def emit_single_tile(self, tile: Tile) -> list[str]:
        """The lines that compute the mean of a row in a single tile."""
        value, operand = self.reduction.value, self.operand
        residual = RowOperand(
            f"({operand.value} - {value}_approx)", operand.dtype, operand.varies_across_rows, operand.varies_along_row
        )
        return [
            f"{value}_approx = tl.sum({apply_row_mask(tile, operand, '0.0')}, {tile.reduce_args}) / N",
            f"{value}_residual = tl.sum({apply_row_mask(tile, residual, '0.0')}, {tile.reduce_args}) / N",
            f"{value} = tl.where({value}_approx - {value}_approx == 0.0, {value}_approx + {value}_residual, "
            f"{value}_approx)",
        ]

    def start(self, tile: Tile, first: str) -> list[str]:
        """The lines that initialise the accumulators."""
        return [line for component in self._components for line in component.start(tile, first)]

    def update(self, tile: Tile, first: str) -> list[str]:
        """The lines that update the accumulators with one tile."""
        return [line for component in self._components for line in component.update(tile, first)]

    def finish(self, tile: Tile, accumulators: list[str], count: str, final: bool) -> list[str]:
        """The lines that reduce the accumulators across the tile; arguments as for `RowReduction.finish`."""
        value = self.reduction.value
        pairs = zip(self._components, accumulators, strict=True)
        lines = [line for component, state in pairs for line in component.finish(tile, [state], "", final)]
        if not final:
            return lines
        return [*lines, f"{value} = minimum_nan(maximum_nan({value}_row_sum / N, {value}_row_min), {value}_row_max)"]


def _grouped_shape(tile: Tile, shape: str) -> str:
    """The shape of accumulators with one element per group."""
    return shape.replace("BLOCK_N", f"BLOCK_N // {tile.vector_size}")


def _reduce_groups(tile: Tile, value: str, combine: str) -> str:
    """The reduction of each group of elements with `combine`, a sum if it is empty."""
    groups = f"split_groups({value}, {tile.vector_size})"
    return f"tl.reduce({groups}, 1, {combine})" if combine else f"tl.sum({groups}, axis=1)"


AnyReduction = RowReduction | OnlineSoftmax | Welford | ExactMean


def apply_row_mask(tile: Tile, operand: RowOperand, identity: str) -> str:
    """The operand over the whole tile, with `identity` out of bounds of the row."""
    if tile.needs_mask_n:
        return f"tl.where(mask_n, {operand.value}, {identity})"
    return (
        operand.value
        if operand.varies_along_row
        else f"tl.broadcast_to({operand.value}, {tile.shape(operand.varies_across_rows)})"
    )


def _arg_combiner(op: str) -> str:
    return "argmax_combine" if op == "argmax" else "argmin_combine"


def _combiner_args(tile: Tile, name: str) -> str:
    return name if tile.is_single_row else f"{name}, keep_dims=True"
