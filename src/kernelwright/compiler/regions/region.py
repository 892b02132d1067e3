"""The intermediate representation of one generated kernel, readable and independent of the backend.

A region iterates over rows (the `outer` axes) and over the elements of each row (the `row` axes). Loads, steps,
reductions and scans define values; a value has the axes that it depends on, and a reduction removes those of the row.
Stores write values. Tiles, threads and passes are a backend's decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod

from kernelwright.core.record import Record
from kernelwright.core.units import DTYPE_BYTES

Operand = str | int | float | bool
HALF_DTYPES = ("float16", "bfloat16")
"""Loaded and stored in these dtypes, computed in float32."""
REDUCTIONS = ("sum", "mean", "prod", "max", "min", "any", "all", "argmax", "argmin")
_EXPENSIVE = "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sigmoid erf erfc pow asin acos atan sinh cosh"
SPECIAL_FUNCTIONS = frozenset(_EXPENSIVE.split())
"""Steps that cost as much as a dozen others."""


class Axis(Record, frozen=True, kw_only=True):
    """An axis of a region's iteration space."""

    name: str
    size: int


class WindowIndex(Record, frozen=True, kw_only=True):
    """The index along one dimension of a padded tensor: `start` plus the sum of axis times step over `steps`."""

    steps: dict[str, int]
    start: int
    size: int

    def bounds(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """Return the least and the largest index, for the sizes of the axes; steps are positive."""
        return self.start, self.start + sum((sizes[axis] - 1) * step for axis, step in self.steps.items())


class Load(Record, frozen=True, kw_only=True):
    """`value` is the element of `buffer` at the sum of index times stride, in elements, over `strides`; `fill` where an
    index of `windows` is not from 0 to before the dimension's size."""

    value: str
    buffer: str
    dtype: str
    strides: dict[str, int]
    offset: int = 0
    windows: tuple[WindowIndex, ...] = ()
    fill: int | float | bool = 0

    @property
    def axes(self) -> frozenset[str]:
        """The axes that the value depends on."""
        moved = {axis for axis, stride in self.strides.items() if stride}
        return frozenset(moved.union(*(index.steps for index in self.windows)))


class Step(Record, frozen=True, kw_only=True):
    """`value` is `op` of `args`: values, numbers, or the axis of an `index`."""

    value: str
    op: str
    args: tuple[Operand, ...]
    dtype: str

    @property
    def values(self) -> tuple[str, ...]:
        """The arguments that are values, or the axis of `index`."""
        return tuple(arg for arg in self.args if isinstance(arg, str))


class Reduction(Record, frozen=True, kw_only=True, tag=True):
    """`value` is `op` of the value `arg` over the row; a `mean` is exact if all elements of the row are equal."""

    value: str
    op: str
    arg: str
    dtype: str

    @property
    def values(self) -> tuple[str, ...]:
        """The argument."""
        return (self.arg,)


class Scan(Record, frozen=True, kw_only=True, tag=True):
    """`value` is the inclusive scan with `op` (sum, prod, max, min) of `arg` along the row, whose axes count as one;
    from the row's end if `reverse`."""

    value: str
    op: str
    arg: str
    dtype: str
    reverse: bool = False

    @property
    def values(self) -> tuple[str, ...]:
        """The argument."""
        return (self.arg,)


class Store(Record, frozen=True, kw_only=True):
    """Writes `value` into the new tensor `buffer` of `shape` and `shape_strides`, at `offset` plus the sum of index
    times stride over `strides`; a concatenation has several stores."""

    value: str
    buffer: str
    dtype: str
    shape: tuple[int, ...]
    shape_strides: tuple[int, ...]
    strides: dict[str, int]
    offset: int = 0


class Region(Record, frozen=True, kw_only=True, dict=True):
    """The computation of one kernel; its arguments are the tensors `reads`, in order."""

    name: str
    outer: tuple[Axis, ...]
    row: tuple[Axis, ...]
    loads: tuple[Load, ...]
    steps: tuple[Step | Reduction | Scan, ...]
    stores: tuple[Store, ...]

    @property
    def reads(self) -> list[str]:
        """The tensors that it reads, in order."""
        return list(dict.fromkeys(load.buffer for load in self.loads))

    @property
    def writes(self) -> list[str]:
        """The tensors that it writes, in order."""
        return list(dict.fromkeys(store.buffer for store in self.stores))

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return prod(axis.size for axis in self.outer)

    @property
    def row_size(self) -> int:
        """The number of elements of a row."""
        return prod(axis.size for axis in self.row)

    @cached_property
    def axis_sizes(self) -> dict[str, int]:
        """The size of each axis."""
        return {axis.name: axis.size for axis in (*self.outer, *self.row)}

    def open_bounds(self, load: Load) -> list[tuple[WindowIndex, bool, bool]]:
        """Return the indices of a load that can be out of bounds: below 0, and from the dimension's size on."""
        found = []
        for index in load.windows:
            least, largest = index.bounds(self.axis_sizes)
            if least < 0 or largest >= index.size:
                found.append((index, least < 0, largest >= index.size))
        return found

    @cached_property
    def axes_of(self) -> dict[str, frozenset[str]]:
        """The axes that each value depends on."""
        row = {axis.name for axis in self.row}
        known = {load.value: load.axes for load in self.loads}
        for step in self.steps:
            if isinstance(step, Reduction):
                known[step.value] = known[step.arg] - row
            elif isinstance(step, Scan):
                known[step.value] = known[step.arg] | row
            elif step.op == "index":
                known[step.value] = frozenset((str(step.args[0]),))
            else:
                known[step.value] = frozenset().union(*(known[value] for value in step.values))
        return known

    @cached_property
    def pass_of(self) -> dict[str, int]:
        """The first pass over the row in which each value is available; a reduction is available after its pass."""
        known = {load.value: 0 for load in self.loads}
        for step in self.steps:
            if isinstance(step, Reduction):
                known[step.value] = known[step.arg] + 1
            elif isinstance(step, Scan):
                known[step.value] = known[step.arg]
            else:
                known[step.value] = max((known.get(value, 0) for value in step.values), default=0)
        return known

    def passes_that_need(self, value: str) -> set[int]:
        """Return the passes over the row of which a result is computed from the elements of a value."""
        reached, passes = {value}, set[int]()
        for step in self.steps:
            if reached.isdisjoint(step.values):
                continue
            if isinstance(step, Reduction):
                passes.add(self.pass_of[step.arg])
            else:
                reached.add(step.value)
        return passes | {self.pass_of[store.value] for store in self.stores if store.value in reached}

    @property
    def bytes_moved(self) -> tuple[int, int]:
        """(read, written) bytes, with every element that is accessed counted once."""
        read: dict[tuple[str, str], list[Load]] = {}
        for load in self.loads:  # windows of one tensor overlap
            windows = str([(index.steps, index.size) for index in load.windows])
            read.setdefault((load.buffer, windows if load.windows else str(load.offset)), []).append(load)
        read_bytes = sum(count_touched(loads, self.axis_sizes) * DTYPE_BYTES[loads[0].dtype] for loads in read.values())
        written = {store.buffer: prod(store.shape) * DTYPE_BYTES[store.dtype] for store in self.stores}
        return read_bytes, sum(written.values())

    def __str__(self) -> str:
        return format_region(self)


def count_touched(loads: Sequence[Load], sizes: Mapping[str, int]) -> int:
    """Return the number of elements that some loads of one tensor read, at most; they differ in the starts of their
    windows."""
    last = loads[-1]
    in_windows = {axis for index in last.windows for axis in index.steps}
    count = prod(sizes[axis] for axis, stride in last.strides.items() if stride and axis not in in_windows)
    for indices in zip(*(load.windows for load in loads), strict=True):
        starts = {index.start for index in indices}
        count *= min(indices[0].size, len(starts) * prod(sizes[axis] for axis in indices[0].steps))
    return count


def required_values(steps: Sequence[Step | Reduction | Scan], stores: Sequence[Store]) -> set[str]:
    """Return the values that the stores depend on, directly or indirectly."""
    required = {store.value for store in stores}
    for step in reversed(steps):
        if step.value in required:
            required |= set(step.values)
    return required


def format_region(region: Region) -> str:
    """Format a region for a reader."""
    over = " x ".join(f"{axis.name}={axis.size:,}" for axis in region.outer) or "one row"
    inside = " x ".join(f"{axis.name}={axis.size:,}" for axis in region.row) or "one element each"
    lines = [f"{region.name}: {over}, rows of {inside}"]
    for load in region.loads:
        lines.append(f"  {load.value} = {load.buffer}{_format_address(load.strides, load.offset)}  {load.dtype}")
        for index, below, above in region.open_bounds(load):
            bounds = f"{'0 <= ' * below}{_format_address(index.steps, index.start)[1:-1]}{f' < {index.size}' * above}"
            lines[-1] += f", {load.fill} unless {bounds}"
    for step in region.steps:
        args = ", ".join(map(str, step.args)) if isinstance(step, Step) else step.arg
        over_row = {Step: "", Reduction: " over the row", Scan: " along the row"}[type(step)]
        over_row += " from its end" * (isinstance(step, Scan) and step.reverse)
        lines.append(f"  {step.value} = {step.op}({args}){over_row}  {step.dtype}")
    for store in region.stores:
        lines.append(f"  {store.buffer}{_format_address(store.strides, store.offset)} = {store.value}  {store.dtype}")
    return "\n".join(lines)


def _format_address(strides: dict[str, int], offset: int) -> str:
    terms = [axis if stride == 1 else f"{stride} {axis}" for axis, stride in strides.items() if stride]
    terms += [str(offset)] * bool(offset)
    return f"[{' + '.join(terms) or '0'}]"
