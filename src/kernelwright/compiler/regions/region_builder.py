"""Construction of a region: its axes, values and steps, and their names when it is built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import msgspec
import torch
from torch import fx

from kernelwright.compiler.regions.axes import Axes, Dim, Dims, Unsupported
from kernelwright.compiler.regions.nodes import (
    ROW_PRODUCT,
    arange_start_step,
    compute_dtype,
    dtype_of,
    fill_value,
    is_constant_or_range,
    node_arg,
    permuted_dims,
    require_number,
    shape_of,
    stored_strides,
    wrap_integer,
)
from kernelwright.compiler.regions.operators import CONSTANTS, VIEWS, op_name
from kernelwright.compiler.regions.padding import resolve_padded_view
from kernelwright.compiler.regions.region import (
    SPECIAL_FUNCTIONS,
    Axis,
    Load,
    Operand,
    Reduction,
    Region,
    Scan,
    Step,
    Store,
    WindowIndex,
    required_values,
)
from kernelwright.compiler.regions.window_loads import WindowLoad, nonzero, replace_axis

MAX_RECOMPUTE = 4
"""A value without some outer axes is recomputed along them; limit on that for special functions and reductions."""


class _Index(NamedTuple):
    """The index along a dimension, resolved into steps when the axes have names."""

    value: str
    dim: Dim


class ConcatPiece(NamedTuple):
    """One input of a concatenation: its value, the offset of its first element, and its dimensions."""

    value: str
    offset: int
    dims: Dims


class RegionBuilder:
    """A region under construction, with values by graph node; the first reduction or scan determines the row."""

    def __init__(self) -> None:
        self.nodes: list[fx.Node] = []
        self._axes = Axes()
        self._dims: dict[fx.Node, Dims] = {}
        self._names: dict[fx.Node, str] = {}
        self._loads: dict[fx.Node, Dims] = {}
        self._window_loads: list[WindowLoad] = []
        self._windowed: set[fx.Node] = set()
        """What is computed for the windows of a pooling only, and not for each element."""
        self._unflipped_scans: set[fx.Node] = set()
        """Reverse scans whose node has the flipped order: only the matching flip may read them."""
        self._steps: list[Step | Reduction | Scan | _Index] = []
        self._dtypes: dict[str, str] = {}
        self._requested_rows: list[tuple[Dim, bool]] = []
        self._concat_pieces: dict[fx.Node, list[ConcatPiece]] = {}
        """The inputs of each concatenation."""

    def _copy_into(self, other: RegionBuilder) -> None:
        other.nodes, other._axes = list(self.nodes), self._axes.copy()
        other._window_loads, other._windowed = list(self._window_loads), set(self._windowed)
        other._requested_rows, other._concat_pieces = list(self._requested_rows), dict(self._concat_pieces)
        other._dims, other._names, other._loads = dict(self._dims), dict(self._names), dict(self._loads)
        other._steps, other._dtypes, other._unflipped_scans = (
            list(self._steps),
            dict(self._dtypes),
            set(self._unflipped_scans),
        )

    # ---- values

    def _computes(self, node: Any) -> bool:
        return isinstance(node, fx.Node) and node in self._names and node not in self._loads

    def _dims_of(self, node: fx.Node) -> Dims:
        self._value(node)
        return self._dims[node]

    def _operand(self, arg: Any) -> Operand | None:
        if isinstance(arg, fx.Node):
            return self._value(arg)
        return None if arg is None else require_number(arg)

    def _value(self, node: fx.Node) -> str:
        """The name of a node's value, which is materialised or loaded if this region does not compute it."""
        if node in self._unflipped_scans:
            raise Unsupported(f"{node.name} is a reversed scan without its flip")
        if node in self._windowed:
            raise Unsupported(f"{node.name} is computed for the windows of a pooling only")
        if node in self._concat_pieces:
            raise Unsupported(f"{node.name} is a concatenation; this region cannot read it")
        if node not in self._names:
            if is_constant_or_range(node):
                self._materialize(node)
            else:
                self._add_load(node)
        return self._names[node]

    def _add_load(self, node: fx.Node) -> None:
        self._require_external(node)
        self._names[node] = name = f"{node.name}_in"
        self._dtypes[name] = compute_dtype(node)
        self._dims[node] = self._loads[node] = self._axes.new_dims(shape_of(node))

    def _require_external(self, node: fx.Node) -> None:
        """Check that a region can load a node.

        Raises:
            Unsupported: it is not a tensor, or a slice of a value that this region computes.
        """
        if not isinstance(node.meta.get("val"), torch.Tensor):
            raise Unsupported(f"{node.name} is not a tensor")
        root = resolve_padded_view(node).root
        if self._computes(root) or root in self._windowed or root in self._concat_pieces:
            raise Unsupported(f"{node.name} is a slice of a value computed in this region")

    def _cast_to(self, value: Operand, dtype: str) -> Operand:
        if not isinstance(value, str) or self._dtypes[value] == dtype:
            return wrap_integer(value, dtype)
        name = f"{value}_{dtype}"
        return name if name in self._dtypes else self._add_step(name, "cast", (value,), dtype)

    def _add_step(self, value: str, op: str, args: tuple[Operand, ...], dtype: str) -> str:
        self._steps.append(Step(value=value, op=op, args=args, dtype=dtype))
        self._dtypes[value] = dtype
        return value

    def _add_reduction(self, value: str, op: str, arg: str, dtype: str, row: Dim) -> str:
        """Add a reduction over the row; over a single element, which has no axes, its result in torch."""
        if not row:
            return self._reduce_one_element(value, op, arg, dtype)
        self._steps.append(Reduction(value=value, op=op, arg=arg, dtype=dtype))
        self._dtypes[value] = dtype
        return value

    def _reduce_one_element(self, value: str, op: str, arg: str, dtype: str) -> str:
        if op in ("argmax", "argmin"):
            return self._add_step(value, "constant", (0,), dtype)
        if op in ("sum", "mean") and dtype.startswith("float"):
            return self._add_step(value, "add", (arg, 0.0), dtype)  # torch adds to 0.0: a sum of -0.0 is 0.0
        return self._add_step(value, "cast", (arg,), dtype)

    def _add_index(self, value: str, dim: Dim) -> str:
        self._steps.append(_Index(value, dim))
        self._dtypes[value] = "int64"
        return value

    def _add_row_axes(self, row: Dim, *, ordered: bool = False) -> None:
        """Request some axes as the row; without any the row is one element.

        Whether all requests agree is checked when the axes are known: `_row_axes`.
        """
        if row:
            self._requested_rows.append((row, ordered))

    def _row_axes(self) -> Dim:
        """The axes of the row, in order.

        Raises:
            Unsupported: two reductions run over different axes.
        """
        return self._common_row_axes(self._requested_rows)

    def _common_row_axes(self, requested: Sequence[tuple[Dim, bool]]) -> Dim:
        rows = [(self._axes.leaves(row), ordered) for row, ordered in requested]
        ordered_rows = [row for row, ordered in rows if ordered]
        first = next(iter([*ordered_rows, *(row for row, _ in rows)]), ())
        if any(set(row) != set(first) for row, _ in rows) or any(row != first for row in ordered_rows):
            raise Unsupported("two reductions over different axes")
        return first

    def unify_rows(self) -> None:
        """Unify unrelated axes of equal size that are reduced, so that their reductions share a row.

        Raises:
            Unsupported: their sizes differ, or a value has both axes.
        """
        first = self._common_row_axes(self._requested_rows[:1])
        for row, _ in self._requested_rows[1:]:
            other = self._axes.leaves(row)
            if set(other) != set(self._axes.leaves(first)) and self._axes.extent(other) == self._axes.extent(first):
                self._axes.unify(first, other)
        self._check_repeated_axes()

    def unify_columns(self) -> None:
        """Unify the columns of all matrix products, so that their rows share an index.

        Raises:
            Unsupported: their numbers differ.
        """
        columns = [self._dims[node][-1] for node in self.nodes if ROW_PRODUCT in node.meta]
        for other in columns[1:]:
            if self._axes.leaves(other) != self._axes.leaves(columns[0]):
                self._axes.unify(columns[0], other)
        self._check_repeated_axes()

    def _materialize(self, node: fx.Node) -> None:
        """Materialise a constant or an arange; each region that needs one has its own."""
        name = op_name(node.target)
        if name in CONSTANTS:
            self._add_constant(node)
        elif name in VIEWS:
            source = node_arg(node, 0)
            self._names.pop(source, None)
            self._value(source)
            self._add_view(node, name)
            del self._names[source]  # an arange for this view only: another use can be along another axis
        else:
            self._add_arange(node)

    def _unused_name(self, name: str) -> str:
        """The name, numbered if a value has it already."""
        return next(f"{name}{number}" for number in ("", *range(1, 99)) if f"{name}{number}" not in self._dtypes)

    def _add_constant(self, node: fx.Node) -> None:
        value, dtype = self._unused_name(node.name), compute_dtype(node)
        self._names[node] = self._add_step(value, "constant", (wrap_integer(fill_value(node), dtype),), dtype)
        self._dims[node] = self._axes.new_dims(shape_of(node))

    def _add_arange(self, node: fx.Node) -> None:
        (size,) = shape_of(node)
        start, step = arange_start_step(node)
        dim = self._axes.new_dim(size)
        if not dim:
            raise Unsupported("arange of length 1")
        value = self._add_index(self._unused_name(f"{node.name}_index"), dim)
        if step != 1:
            value = self._add_step(f"{value}_scaled", "mul", (value, step), "int64")
        if start:
            value = self._add_step(f"{value}_offset", "add", (value, start), "int64")
        self._names[node], self._dims[node] = str(self._cast_to(value, compute_dtype(node))), (dim,)

    def _add_view(self, node: fx.Node, name: str) -> None:
        source = node_arg(node, 0)
        dims, shape = self._dims[source], shape_of(node)
        self._names[node] = self._names[source]
        if name in ("permute", "transpose", "t"):
            self._dims[node] = tuple(dims[position] for position in permuted_dims(node, len(dims)))
        elif name in ("alias", "detach"):
            self._dims[node] = dims
        elif name == "broadcast_in_dim":
            positions = [int(position) for position in node.args[2]]  # type: ignore[union-attr]
            dim_at = dict(zip(positions, dims, strict=True))
            self._dims[node] = self._expand_dims([dim_at.get(position, ()) for position in range(len(shape))], shape)
        elif name == "expand":
            self._dims[node] = self._expand_dims([*((),) * (len(shape) - len(dims)), *dims], shape)
        else:
            self._dims[node] = self._axes.reshape(dims, shape)

    def _expand_dims(self, dims: Sequence[Dim], shape: tuple[int, ...]) -> Dims:
        """The dimensions with a new axis, on which the value does not depend, wherever the shape is larger than 1."""
        return tuple(dim or self._axes.new_dim(size) for dim, size in zip(dims, shape, strict=True))

    def _check_repeated_axes(self) -> None:
        """Check that no value has an axis twice.

        Raises:
            Unsupported: one has: it would be a diagonal.
        """
        for node, dims in self._dims.items():
            axes = [axis for dim in dims for axis in self._axes.leaves(dim)]
            if len(axes) != len(set(axes)):
                raise Unsupported(f"{node.name} uses one axis twice (a diagonal)")

    # ---- build

    def build(self, name: str, outputs: Sequence[fx.Node], *, keep_unused: bool = False) -> Region:
        """Build the region that computes the outputs.

        Args:
            keep_unused: keep steps that no output needs, for a trial of an unfinished region.
        Raises:
            Unsupported: an output does not vary along an outer axis, something expensive would be recomputed too often,
                or a tensor has no elements.
        """
        row = self._row_axes()
        outer = [axis for axis in self._all_axes() if axis not in row]
        if not all(self._axes.size(axis) for axis in (*row, *outer)):
            raise Unsupported("a tensor without elements")
        names = {axis: f"i{n}" for n, axis in enumerate(outer)} | {axis: f"r{n}" for n, axis in enumerate(row)}
        stores = tuple(store for node in outputs for store in self._build_stores(node, names))
        steps = [resolved for step in self._steps for resolved in self._resolve_index(step, names)]
        loads = [self._build_load(self._names[node], node, self._dims[node], names) for node in self._loads]
        loads += [self._build_window_load(one, names) for one in self._window_loads]
        used = {entry.value for entry in (*loads, *steps)} if keep_unused else required_values(steps, stores)
        region = Region(
            name=name,
            outer=tuple(Axis(name=names[axis], size=self._axes.size(axis)) for axis in outer),
            row=tuple(Axis(name=names[axis], size=self._axes.size(axis)) for axis in row),
            loads=tuple(load for load in loads if load.value in used),
            steps=tuple(step for step in steps if step.value in used),
            stores=stores,
        )
        _check_recompute(region)
        return region

    def find_unstorable(self, nodes: Sequence[fx.Node]) -> list[fx.Node]:
        """Return the nodes whose value is constant across several rows."""
        row = set(self._row_axes())
        outer = set(self._all_axes()) - row
        return [
            n
            for n in nodes
            if n in self._windowed or outer - {a for dim in self._dims[n] for a in self._axes.leaves(dim)}
        ]

    def is_row_value(self, node: fx.Node) -> bool:
        """Whether a node has one value for each row and is not a concatenation."""
        if node in self._windowed:
            return False
        row, axes = set(self._row_axes()), {axis for dim in self._dims[node] for axis in self._axes.leaves(dim)}
        return bool(row) and node not in self._concat_pieces and not row & axes

    def _all_axes(self) -> list[int]:
        """All axes, in the order of the largest value."""
        largest = sorted(self._dims.values(), key=lambda dims: -prod(self._axes.extent(dim) for dim in dims))
        return list(dict.fromkeys(axis for dims in largest for dim in dims for axis in self._axes.leaves(dim)))

    def _build_load(self, value: str, node: fx.Node, dims: Dims, names: dict[int, str]) -> Load:
        view = resolve_padded_view(node)
        windows = tuple(
            WindowIndex(steps=nonzero(self._strides(dims, index.steps, names)), start=index.start, size=index.size)
            for index in view.indices
        )
        return Load(
            value=value,
            buffer=view.root.name,
            dtype=dtype_of(view.root),
            strides=self._strides(dims, view.strides, names),
            offset=view.offset,
            windows=windows,
            fill=view.fill,
        )

    def _build_window_load(self, one: WindowLoad, names: dict[int, str]) -> Load:
        replaced = {window.axis: f"w{window.axis}" for window in one.windows if window.axis is not None}
        load = self._build_load(one.value, one.node, one.dims, names | replaced)
        windows = []
        for window in one.windows:
            steps: dict[str, int] = {}
            for dim, step in window.terms:
                steps |= nonzero(self._strides((dim,), (step,), names))
            if window.axis is not None:
                load = replace_axis(load, replaced[window.axis], steps, window.start)
            windows.append(WindowIndex(steps=steps, start=window.start, size=window.size))
        return msgspec.structs.replace(load, windows=(*load.windows, *windows), fill=one.fill)

    def _build_stores(self, node: fx.Node, names: dict[int, str]) -> Iterator[Store]:
        shape_strides = stored_strides(node)
        single = ConcatPiece(self._names.get(node, ""), 0, self._dims[node])
        for piece in self._concat_pieces.get(node, [single]):
            yield Store(
                value=piece.value,
                buffer=node.name,
                dtype=dtype_of(node),
                shape=shape_of(node),
                shape_strides=shape_strides,
                strides=self._strides(piece.dims, shape_strides, names),
                offset=piece.offset,
            )

    def _strides(self, dims: Dims, strides: Sequence[int], names: dict[int, str]) -> dict[str, int]:
        by_axis: dict[str, int] = {}
        for dim, inner_stride in zip(dims, strides, strict=True):
            stride = int(inner_stride)
            for axis in reversed(self._axes.leaves(dim)):
                by_axis[names[axis]] = stride
                stride *= self._axes.size(axis)
        return by_axis

    def _resolve_index(
        self, step: Step | Reduction | Scan | _Index, names: dict[int, str]
    ) -> Iterator[Step | Reduction | Scan]:
        if not isinstance(step, _Index):
            yield step
            return
        axes = self._axes.leaves(step.dim)
        size, partial_sum = self._axes.extent(step.dim), ""
        for number, axis in enumerate(axes):
            size //= self._axes.size(axis)
            last = number == len(axes) - 1
            index = step.value if len(axes) == 1 else f"{step.value}_{number}"
            yield Step(value=index, op="index", args=(names[axis],), dtype="int64")
            if not last:
                scaled = f"{index}_scaled"
                yield Step(value=scaled, op="mul", args=(index, size), dtype="int64")
                index = scaled
            if partial_sum:
                total = step.value if last else f"{index}_sum"
                yield Step(value=total, op="add", args=(partial_sum, index), dtype="int64")
                index = total
            partial_sum = index


def _check_recompute(region: Region) -> None:
    outer = {axis.name: axis.size for axis in region.outer}
    sizes = outer | {axis.name: axis.size for axis in region.row}

    def extent(axes: Iterable[str]) -> int:
        return prod(sizes[axis] for axis in axes)

    constants = {step.value for step in region.steps if step.op == "constant"}
    for store in region.stores:  # each row can store a constant at its own address
        axes = store.strides.keys() if store.value in constants else region.axes_of[store.value]
        if missing := outer.keys() - axes:
            names = ", ".join(sorted(missing))
            raise Unsupported(f"{store.buffer} does not vary along {names}: it would be stored more than once")
    largest_access = max((extent(access.strides) for access in (*region.loads, *region.stores)), default=1)
    for step in region.steps:
        count = extent(axis for axis in outer if axis not in region.axes_of[step.value])
        if count <= MAX_RECOMPUTE:
            continue
        if step.op in SPECIAL_FUNCTIONS:
            raise Unsupported(f"{step.op} would be recomputed {count:,} times")
        if isinstance(step, Reduction) and extent(sizes) > 2 * largest_access:
            raise Unsupported(f"a row would be reduced {count:,} times")
