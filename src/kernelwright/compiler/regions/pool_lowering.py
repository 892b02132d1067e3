"""Lowering of pooling to a region: of small windows each element is a load of its own, so that what computes the source
and what reads the result can be in the same region; the elements of large windows are a row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import isfinite, prod
from typing import NamedTuple

import torch
from torch import fx

from kernelwright.compiler.regions.axes import Dim, Dims, Unsupported
from kernelwright.compiler.regions.nodes import compute_dtype, shape_of
from kernelwright.compiler.regions.padding import resolve_padded_view
from kernelwright.compiler.regions.pooling import Pool, PoolDim, match_pool
from kernelwright.compiler.regions.region import SPECIAL_FUNCTIONS, Operand, Reduction, Scan, Step
from kernelwright.compiler.regions.region_builder import RegionBuilder
from kernelwright.compiler.regions.window_loads import AxisWindow, WindowLoad

MAX_WINDOW_LOADS = 27
"""Elements of a window that are loads of their own; more are a row."""
MAX_WINDOW_STEPS = 216
"""Steps that compute the elements of a window."""
Number = int | float | bool


class _Source(NamedTuple):
    """What a pooling reads, before the elements of its windows are selected.

    Attributes:
        loads: values with the node and the dimensions of each load that depends on a pooled axis.
        steps: what is computed from them, in order; the last one is the source.
        value: the source.
        axes: the axis of each pooled dimension; None of size 1.
        outer: the dimensions that are not pooled.
        dtype: of the source.
    """

    loads: Sequence[tuple[str, fx.Node, Dims]]
    steps: Sequence[Step]
    value: str
    axes: tuple[int | None, ...]
    outer: Dims
    dtype: str


class PoolLowering(RegionBuilder):
    """Adds poolings to a region."""

    def lower_pool(self, node: fx.Node) -> None:
        """Add a pooling.

        Raises:
            Unsupported: the region cannot compute it.
        """
        pool = match_pool(node)
        dtype = compute_dtype(pool.source)
        if pool.is_average and not dtype.startswith("float"):
            raise Unsupported("an average of integers")
        along = [dim.read_positions for dim in pool.dims]
        if prod(map(len, along)) <= MAX_WINDOW_LOADS:
            value, outer, outputs = self._combine_elements(node, pool, list(product(*along)))
        elif all(dim.tiles for dim in pool.dims):
            value, outer, outputs = self._reduce_tiles(node, pool)
        else:
            value, outer, outputs = self._reduce_windows(node, pool)
        self._dims[node] = (*outer, *outputs)
        if pool.is_average:
            value = self._divide(node, pool, value, outputs, dtype)
        name = node.name if pool.is_average else f"{node.name}_part0"
        self._names[node] = self._add_step(name, "cast", (value,), dtype)

    # ---- elements as loads

    def _combine_elements(
        self, node: fx.Node, pool: Pool, elements: Sequence[tuple[int, ...]]
    ) -> tuple[str, Dims, Dims]:
        """The maximum or sum of the elements of a window, in torch's order."""
        if not elements:
            raise Unsupported(f"{node.name} has windows of padding only")
        outer, outputs, values = self._add_elements(node, pool, elements, MAX_WINDOW_STEPS)
        result, op, dtype = values[0], "add" if pool.is_average else "max", self._dtypes[values[0]]
        for number, value in enumerate(values[1:], 1):
            result = self._add_step(f"{node.name}_{op}{number}", op, (result, value), dtype)
        return result, outer, outputs

    def _add_elements(
        self, node: fx.Node, pool: Pool, elements: Sequence[tuple[int, ...]], max_steps: int
    ) -> tuple[Dims, Dims, list[str]]:
        """Some elements of each window.

        Args:
            elements: positions in the window.
            max_steps: of computing the source for the windows, if this region does.
        Returns:
            The outer dimensions, those of the windows, and the values.
        """
        outputs = self._axes.new_dims(tuple(dim.outputs for dim in pool.dims))
        computes = self._computes(pool.source)
        source = self._take_steps(pool, len(elements), max_steps) if computes else self._load_source(pool)
        values = [
            self._add_element(node, pool, source, outputs, positions, f"{node.name}_{number}")
            for number, positions in enumerate(elements)
        ]
        return source.outer, outputs, values

    def _add_element(
        self, node: fx.Node, pool: Pool, source: _Source, outputs: Dims, positions: Sequence[int], suffix: str
    ) -> str:
        """One element of each window."""
        windows = tuple(
            AxisWindow(axis, ((output, dim.stride),), dim.bounds(at)[0], dim.length)
            for axis, output, dim, at in zip(source.axes, outputs, pool.dims, positions, strict=True)
        )
        names: dict[str, str] = {}
        for value, loaded, dims in source.loads:
            used = windows if value == source.value else self._windows_of(dims, windows)
            names[value] = self._add_window_load(f"{value}_{suffix}", loaded, dims, used, pool)
        for step in source.steps:
            args = tuple(names.get(arg, arg) if isinstance(arg, str) else arg for arg in step.args)
            names[step.value] = self._add_step(f"{step.value}_{suffix}", step.op, args, step.dtype)
        value = names.get(source.value, source.value)
        mask = "" if self._reads_padding(source, pool) else self._add_mask(node, pool, outputs, positions)
        if not mask:
            return value
        padded = (mask, value, _identity(pool))
        return self._add_step(f"{suffix}_or_padding", "where", padded, source.dtype)

    def _reads_padding(self, source: _Source, pool: Pool) -> bool:
        """Whether the source, computed from what is read for the padding of a pooling, is what padding counts as."""
        identity = _identity(pool)
        same = {
            value
            for value, node, dims in source.loads
            if _fill_of(node, pool) == identity
            and (
                value == source.value or self._axes_in(dims).issuperset(source.axes)
            )  # else it varies along others only
        }
        for step in source.steps:
            if identity == 0 and _keeps_zero(step, same):
                same.add(step.value)
        return source.value in same

    def _windows_of(self, dims: Dims, windows: Sequence[AxisWindow]) -> tuple[AxisWindow, ...]:
        """The windows of the axes that a load has."""
        own = self._axes_in(dims)
        return tuple(window for window in windows if window.axis in own)

    def _add_window_load(
        self, value: str, node: fx.Node, dims: Dims, windows: tuple[AxisWindow, ...], pool: Pool
    ) -> str:
        self._window_loads.append(WindowLoad(value, node, dims, windows, _fill_of(node, pool)))
        self._dtypes[value] = compute_dtype(node)
        return value

    def _add_mask(self, node: fx.Node, pool: Pool, outputs: Dims, positions: Sequence[int]) -> str:
        """Whether an element of a window is not padding; empty if it never is."""
        mask = ""
        for at, (dim, output, position) in enumerate(zip(pool.dims, outputs, positions, strict=True)):
            first, last = dim.bounds(position)
            if first >= 0 and last < dim.length:
                continue
            name = f"{node.name}_inside{at}_{position}"
            index = self._add_output_index(node, at, output, dim.stride, first, str(position))
            tests = [("ge", 0)] * (first < 0) + [("lt", dim.length)] * (last >= dim.length)
            for op, limit in tests:
                test = self._add_unique(f"{name}_{op}", op, (index, limit), "bool")
                mask = (
                    self._add_unique(f"{mask}_and_{at}_{position}_{op}", "and", (mask, test), "bool") if mask else test
                )
        return mask

    def _add_output_index(self, node: fx.Node, at: int, output: Dim, stride: int, first: int, suffix: str) -> str:
        """The index of an element of each window along a pooled dimension."""
        index = f"{node.name}_index{at}"
        if not output:
            return self._add_unique(f"{index}_{suffix}", "constant", (first,), "int64")
        if index not in self._dtypes:
            self._add_index(index, output)
        scaled = self._add_unique(f"{index}_scaled", "mul", (index, stride), "int64") if stride != 1 else index
        return self._add_unique(f"{index}_{suffix}", "add", (scaled, first), "int64") if first else scaled

    def _add_unique(self, value: str, op: str, args: tuple[Operand, ...], dtype: str) -> str:
        return value if value in self._dtypes else self._add_step(value, op, args, dtype)

    # ---- the source

    def _load_source(self, pool: Pool) -> _Source:
        """A source that another region or operator computes; each load has windows of its own."""
        source, rank = pool.source, len(pool.dims)
        if source in self._windowed:
            raise Unsupported(f"{source.name} is computed for the windows of another pooling")
        self._require_external(source)
        dims = self._axes.new_dims(shape_of(source))
        axes = tuple(dim[0] if dim else None for dim in dims[-rank:])
        name = f"{source.name}_in"
        return _Source([(name, source, dims)], (), name, axes, dims[:-rank], compute_dtype(source))

    def _take_steps(self, pool: Pool, num_taps: int, max_steps: int) -> _Source:
        """A source that this region computes elementwise; it is computed for each element of a window instead."""
        source, rank = pool.source, len(pool.dims)
        dims, value = self._dims[source], self._names[source]
        axes = [self._axes.leaves(dim) for dim in dims[-rank:]]
        pooled = {axis for dim in axes for axis in dim}
        if len(source.users) > 1:
            raise Unsupported(f"{source.name} is read by others, too")
        if any(len(dim) > 1 for dim in axes):
            raise Unsupported(f"{source.name} has a pooled dimension of several axes")
        if pooled & {axis for row, _ in self._requested_rows for axis in self._axes.leaves(row)}:
            raise Unsupported(f"{source.name} is computed from a reduction over a pooled dimension")
        varying = self._varying_entries(pooled)
        steps = self._producing_steps(value, varying)
        self._check_cost(pool, steps, num_taps, max_steps)
        loads = [
            (self._names[loaded], loaded, load_dims)
            for loaded, load_dims in self._loads.items()
            if self._names[loaded] in varying
        ]
        used = {value} | {arg for step in steps for arg in step.values}
        self._forget(pooled, varying)
        outer = tuple(self._axes.leaves(dim) for dim in dims[:-rank])
        kept = [one for one in loads if one[0] in used]
        return _Source(kept, steps, value, tuple(dim[0] if dim else None for dim in axes), outer, self._dtypes[value])

    def _varying_entries(self, pooled: set[int]) -> dict[str, Step | Reduction | Scan | None]:
        """The values that depend on a pooled axis; None for loads and indices."""
        varying: dict[str, Step | Reduction | Scan | None] = {
            self._names[node]: None for node, dims in self._loads.items() if pooled & self._axes_in(dims)
        }
        varying |= {one.value: None for one in self._window_loads if pooled & self._window_axes(one)}
        for step in self._steps:
            if isinstance(step, Step | Reduction | Scan):
                if not varying.keys().isdisjoint(step.values):
                    varying[step.value] = step
            elif pooled & set(self._axes.leaves(step.dim)):
                varying[step.value] = None
        return varying

    def _producing_steps(self, value: str, varying: dict[str, Step | Reduction | Scan | None]) -> list[Step]:
        """The steps that depend on a pooled axis and that a value is computed from, in order.

        Raises:
            Unsupported: it is not computed elementwise from loads.
        """
        stack, wanted = [value], set[str]()
        loads = {self._names[node] for node in self._loads}
        while stack:
            name = stack.pop()
            if name in wanted or name not in varying:
                continue
            wanted.add(name)
            entry = varying[name]
            if isinstance(entry, Reduction | Scan) or (entry is None and name not in loads):
                raise Unsupported(f"{name} is not computed elementwise from what is loaded")
            stack += entry.values if entry else ()
        return [step for step in self._steps if isinstance(step, Step) and step.value in wanted]

    def _check_cost(self, pool: Pool, steps: Sequence[Step], num_taps: int, max_steps: int) -> None:
        """Check that computing the source for each window, and not once, is not more work.

        Raises:
            Unsupported: it is.
        """
        if len(steps) * num_taps > max_steps:
            raise Unsupported(f"{len(steps)} steps for each of {num_taps} elements of a window")
        if any(dim.overlaps for dim in pool.dims) and any(step.op in SPECIAL_FUNCTIONS for step in steps):
            raise Unsupported("a special function would be computed again for each window")

    def _forget(self, pooled: set[int], varying: dict[str, Step | Reduction | Scan | None]) -> None:
        """Remove all that depends on pooled axes: it is computed for the windows only."""
        for node in [node for node, dims in self._dims.items() if pooled & self._axes_in(dims)]:
            del self._dims[node], self._names[node]
            self._loads.pop(node, None)
            if node in self.nodes:
                self._windowed.add(node)
        self._steps = [step for step in self._steps if step.value not in varying]
        self._window_loads = [one for one in self._window_loads if one.value not in varying]

    def _axes_in(self, dims: Dims) -> set[int]:
        return {axis for dim in dims for axis in self._axes.leaves(dim)}

    def _window_axes(self, one: WindowLoad) -> set[int]:
        terms = [dim for window in one.windows for dim, _ in window.terms]
        return self._axes_in((*one.dims, *terms))

    # ---- elements as a row

    def _reduce_tiles(self, node: fx.Node, pool: Pool) -> tuple[str, Dims, Dims]:
        """Windows that divide the tensor: a reduction over the inner part of each pooled dimension."""
        value, rank = self._value(pool.source), len(pool.dims)
        dims = self._dims[pool.source]
        split = [self._axes.reshape((dims[at - rank],), (dim.outputs, dim.size)) for at, dim in enumerate(pool.dims)]
        row = tuple(axis for _, inner in split for axis in self._axes.leaves(inner))
        result = self._reduce_row(node, pool, value, row)
        return result, dims[:-rank], tuple(outer for outer, _ in split)

    def _reduce_windows(self, node: fx.Node, pool: Pool) -> tuple[str, Dims, Dims]:
        """Other windows: a row whose elements are read where they are."""
        source = self._load_source(pool)
        if pool.has_padding and not self._reads_padding(source, pool):
            raise Unsupported("a pooling with padding of a tensor that is padded with another value")
        outputs = self._axes.new_dims(tuple(dim.outputs for dim in pool.dims))
        inner = self._axes.new_dims(tuple(dim.size for dim in pool.dims))
        windows = tuple(
            AxisWindow(axis, ((output, dim.stride), (position, dim.dilation)), -dim.padding, dim.length)
            for axis, output, position, dim in zip(source.axes, outputs, inner, pool.dims, strict=True)
        )
        ((name, loaded, dims),) = source.loads
        value = self._add_window_load(f"{name}_{node.name}", loaded, dims, windows, pool)
        row = tuple(axis for dim in inner for axis in dim)
        return self._reduce_row(node, pool, value, row), source.outer, outputs

    def _reduce_row(self, node: fx.Node, pool: Pool, value: str, row: Dim) -> str:
        self._add_row_axes(row)
        op = "sum" if pool.is_average else "max"
        return self._add_reduction(f"{node.name}_{op}", op, value, self._dtypes[value], row)

    # ---- averages

    def _divide(self, node: fx.Node, pool: Pool, total: str, outputs: Dims, dtype: str) -> str:
        """The average from the sum; at borders windows can have fewer elements."""
        counts = [[pool.divisor]] if pool.divisor else [dim.counts(pool.counts_padding) for dim in pool.dims]
        factor, varying = 1, ""
        for at, along in enumerate(counts):
            if len(set(along)) == 1:
                factor *= along[0]
                continue
            count = self._add_count(node, pool.dims[at], at, outputs[at], pool.counts_padding, dtype)
            varying = self._add_step(f"{node.name}_counts{at}", "mul", (varying, count), dtype) if varying else count
        if varying and factor != 1:
            varying = self._add_step(f"{node.name}_counts", "mul", (varying, factor), dtype)
        return self._add_step(f"{node.name}_mean", "div", (total, varying or factor), dtype)

    def _add_count(self, node: fx.Node, dim: PoolDim, at: int, output: Dim, counts_padding: bool, dtype: str) -> str:
        """The number of elements of each window along one dimension."""
        start = self._add_output_index(node, at, output, dim.stride, -dim.padding, "start")
        name, limit = f"{node.name}_count{at}", dim.length + dim.padding * counts_padding
        end = self._add_step(f"{name}_end", "add", (start, dim.size), "int64")
        end = self._add_step(f"{name}_stop", "min", (end, limit), "int64")
        if not counts_padding:
            start = self._add_step(f"{name}_start", "max", (start, 0), "int64")
        count = self._add_step(f"{name}_length", "sub", (end, start), "int64")
        return self._add_step(name, "cast", (count,), dtype)


def _identity(pool: Pool) -> Number:
    """What padding counts as: 0 in a sum, the lowest number in a maximum."""
    dtype = pool.source.meta["val"].dtype
    if pool.is_average:
        return 0.0
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def _keeps_zero(step: Step, zeros: set[str]) -> bool:
    """Whether a step of zeros and numbers is 0."""
    numbers = [arg for arg in step.args if not isinstance(arg, str)]
    if not zeros.issuperset(step.values):
        return False
    if step.op in ("max", "min"):
        return all(number <= 0 if step.op == "max" else number >= 0 for number in numbers)
    return step.op in ("relu", "abs", "neg", "cast") or (step.op == "mul" and all(map(isfinite, numbers)))


def _fill_of(node: fx.Node, pool: Pool) -> Number:
    """What a load reads where its index is out of bounds."""
    view = resolve_padded_view(node)
    return view.fill if view.indices else _identity(pool)
