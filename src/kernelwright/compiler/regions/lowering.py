"""From nodes of a captured graph to the region that computes them, or the reason why there is none.

Values of half precision are computed in float32 and rounded where they are stored, but for row values that go to other
regions (`row_values`). The arguments of a step have its own dtype, or for a comparison one common to both: what torch
promotes on the way is a step of its own here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod

import torch
from torch import fx

from kernelwright.compiler.regions.axes import Dim, Dims, Unsupported
from kernelwright.compiler.regions.nodes import (
    common_dtype,
    compute_dtype,
    dim_arg,
    dtype_of,
    is_rematerializable,
    match_flipped_scan,
    match_reversed_scan,
    mean_is_subtracted,
    node_arg,
    reduced_dims,
    require_number,
    result_shape,
    shape_of,
    variance_correction,
    variance_dtype,
)
from kernelwright.compiler.regions.operators import (
    ATEN_REDUCTIONS,
    COMPARISONS,
    CONVERSIONS,
    DEVIATIONS,
    LOGICAL,
    MINMAX_WITH_INDEX,
    POINTWISE,
    SCANS,
    VARIANCES,
    VIEWS,
    explain_unsupported,
    op_name,
)
from kernelwright.compiler.regions.region import Operand, Region, Scan
from kernelwright.compiler.regions.region_builder import ConcatPiece, RegionBuilder

__all__ = ["Lowering", "is_rematerializable", "lower_nodes"]

MAX_CONCAT_INPUTS = 4
BOOL_OPS = {"max": "or", "fmax": "or", "add": "or", "min": "and", "fmin": "and", "mul": "and"}
BOOL_REDUCTIONS = {"max": "any", "min": "all"}
"""What arithmetic on truths is: a generator may keep true as any number."""
POW_SHORTCUTS = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}


class Lowering(RegionBuilder):
    """A region that grows node by node; a copy can be tried and thrown away.

    With `reverse_scans`, the scan of something turned around is held from its end, until a flip turns it back.
    """

    def __init__(self, *, reverse_scans: bool = True) -> None:
        super().__init__()
        self._reverse_scans = reverse_scans

    def copy(self) -> Lowering:
        other = Lowering(reverse_scans=self._reverse_scans)
        self._copy_into(other)
        return other

    def add(self, node: fx.Node) -> None:
        """Takes a node in.

        Raises:
            Misfit: the region cannot hold it; then this lowering is spoilt, so try a copy.
        """
        name = op_name(node.target)
        if name in VIEWS and self._computes(node.args[0]):
            self._add_view(node, name)
        elif name in CONVERSIONS:
            self._lower_conversion(node)
        elif name in POINTWISE:
            self._lower_pointwise(node, POINTWISE[name])
        elif name in ATEN_REDUCTIONS:
            self._lower_reduction(node, ATEN_REDUCTIONS[name])
        elif name in VARIANCES or name in MINMAX_WITH_INDEX:
            self._lower_multi_output(node, name)
        elif name == "cat":
            self._lower_concat(node)
        elif name in SCANS:
            self._lower_scan(node, SCANS[name])
        elif name == "gather":
            self._lower_gather(node)
        elif name == "flip":
            self._lower_flip(node)
        elif name == "getitem":
            self._lower_getitem(node)
        else:
            raise Unsupported(explain_unsupported(node.target))
        self.nodes.append(node)
        self._check_repeated_axes()

    def build(self, name: str, outputs: Sequence[fx.Node], *, keep_unused: bool = False) -> Region:
        """See `Draft.region`."""
        if self._unflipped_scans & set(outputs):
            return lower_nodes(self.nodes, reverse_scans=False).build(name, outputs, keep_unused=keep_unused)
        return super().build(name, outputs, keep_unused=keep_unused)

    # ---- kinds of nodes

    def _lower_concat(self, node: fx.Node) -> None:
        """Pieces that are computed side by side and written to their places: all of one shape, or some a single
        element thick, which is written once for each row."""
        pieces: list[fx.Node] = list(node.args[0])  # type: ignore[arg-type]
        shape = shape_of(max(pieces, key=lambda piece: prod(shape_of(piece))))
        dim = dim_arg(node, 1, len(shape))
        fitting = (shape, (*shape[:dim], 1, *shape[dim + 1 :]))
        if not all(shape_of(piece) in fitting for piece in pieces) or len(pieces) > MAX_CONCAT_INPUTS:
            raise Unsupported("pieces of different shapes put together")
        if len({dtype_of(n) for n in (node, *pieces)}) != 1:
            raise Unsupported("pieces of different dtypes put together")
        values = [self._value(piece) for piece in pieces]
        self._dims[node] = self._axes.broadcast(*(self._dims[piece] for piece in pieces))
        step = int(torch.empty_like(node.meta["val"]).stride()[dim])
        before = accumulate((shape_of(piece)[dim] for piece in pieces), initial=0)
        self._concat_pieces[node] = [
            ConcatPiece(value, at * step, self._dims[piece])
            for value, at, piece in zip(values, before, pieces, strict=False)
        ]

    def _lower_pointwise(self, node: fx.Node, op: str) -> None:
        options = dict(node.kwargs)
        scale, mode = options.pop("alpha", 1), options.pop("rounding_mode", None)
        given = [*node.args, *(options.get(name) for name in ("min", "max") if name in options)]
        nodes = [arg for arg in given if isinstance(arg, fx.Node)]
        args: list[Operand | None] = [self._operand(arg) for arg in given]
        self._dims[node] = self._axes.broadcast(*(self._dims_of(n) for n in nodes))
        if op == "clamp":
            self._names[node] = self._lower_clamp(node, args)
            return
        dtype = compute_dtype(node)
        op = BOOL_OPS.get(op, op) if dtype == "bool" else op
        if op in COMPARISONS:
            common = common_dtype(*given)
            operands = [self._cast_to(a, "int32" if common == "bool" else common) for a in args if a is not None]
        else:
            numbers_first = make_number_rounder(op, dtype_of(node))
            operands = self._promote(op, [numbers_first(a) for a in args if a is not None], dtype)
        if scale != 1:
            operands[-1] = self._add_step(f"{node.name}_scaled", "mul", (operands[-1], require_number(scale)), dtype)
        if op == "rsub":
            op, operands = "sub", operands[::-1]
        if op == "div" and mode:
            op = {"floor": "floor_div", "trunc": "trunc_div"}[str(mode)]
        if op == "pow":
            self._names[node] = self._lower_pow(node, operands, dtype)
            return
        self._names[node] = self._add_step(node.name, op, tuple(operands), dtype)

    def _promote(self, op: str, args: list[Operand], dtype: str) -> list[Operand]:
        """The arguments in the dtype in which the step is computed."""
        if op == "where":
            return [self._cast_to(args[0], "bool"), *(self._cast_to(a, dtype) for a in args[1:])]
        if op in LOGICAL:
            return [self._cast_to(a, "bool") for a in args]
        return [self._cast_to(a, dtype) for a in args]

    def _lower_pow(self, node: fx.Node, args: list[Operand], dtype: str) -> str:
        base, exponent = args
        if exponent in (2, 3, 4) and isinstance(base, str):
            square = self._add_step(node.name if exponent == 2 else f"{node.name}_square", "mul", (base, base), dtype)
            other = base if exponent == 3 else square
            return square if exponent == 2 else self._add_step(node.name, "mul", (square, other), dtype)
        if isinstance(exponent, (int, float)) and exponent in POW_SHORTCUTS and dtype.startswith("float"):
            return self._add_step(node.name, POW_SHORTCUTS[float(exponent)], (base,), dtype)
        return self._add_step(node.name, "pow", (base, exponent), dtype)

    def _lower_clamp(self, node: fx.Node, args: list[Operand | None]) -> str:
        """The lower bound first, as torch does; either may be missing, and be given by place or by name."""
        names = [*("value", "min", "max")[: len(node.args)], *(name for name in ("min", "max") if name in node.kwargs)]
        at, dtype = dict(zip(names, args, strict=True)), compute_dtype(node)
        result = self._cast_to(at["value"], dtype)  # type: ignore[arg-type]
        for name, op in (("min", "max"), ("max", "min")):
            bound = at.get(name)
            if bound is not None:
                result = self._add_step(f"{node.name}_{name}", op, (result, self._cast_to(bound, dtype)), dtype)
        return str(result)

    def _lower_conversion(self, node: fx.Node) -> None:
        source = node_arg(node, 0)
        if shape_of(source) != shape_of(node):
            raise Unsupported(f"{node.name} repeats what it copies")
        value = self._cast_to(self._value(source), compute_dtype(node))
        self._names[node], self._dims[node] = str(value), self._dims[source]

    def _lower_reduction(self, node: fx.Node, op: str) -> None:
        source = node_arg(node, 0)
        value, dtype = self._value(source), compute_dtype(node)
        row, dims = self._reduce_dims(node, source, ordered=op in ("argmax", "argmin"))
        op = BOOL_REDUCTIONS.get(op, op) if dtype == "bool" else op
        if op in ("any", "all"):
            value = str(self._cast_to(value, "bool"))
        elif op in ("argmax", "argmin"):
            value = self._make_comparable(value)
        else:
            value = str(self._cast_to(value, accumulation_dtype(op, dtype)))
        if op == "mean":
            self._names[node] = self._lower_mean(node, value, row, dtype)
        elif op in ("any", "all"):
            self._names[node] = str(self._cast_to(self._add_reduction(node.name, op, value, "bool", row), dtype))
        else:
            folded = self._add_reduction(node.name, op, value, accumulation_dtype(op, dtype), row)
            self._names[node] = str(self._cast_to(folded, dtype))
        self._dims[node] = dims

    def _lower_multi_output(self, node: fx.Node, name: str) -> None:
        """Operators with two results: a variance with its mean, an extreme with its place."""
        source = node_arg(node, 0)
        value = self._value(source)
        row, kept = self._reduce_dims(node, source, ordered=name in MINMAX_WITH_INDEX)
        if name in MINMAX_WITH_INDEX:
            dtype, op = self._dtypes[value], MINMAX_WITH_INDEX[name]
            self._add_reduction(f"{node.name}_part0", BOOL_REDUCTIONS[op] if dtype == "bool" else op, value, dtype, row)
            self._add_reduction(f"{node.name}_part1", f"arg{op}", self._make_comparable(value), "int64", row)
        else:
            self._lower_variance(node, name, value, row)
        self._names[node], self._dims[node] = f"{node.name}_part0", kept

    def _make_comparable(self, value: str) -> str:
        """A value whose place in a row is looked for: truths as numbers."""
        return str(self._cast_to(value, "int32")) if self._dtypes[value] == "bool" else value

    def _lower_variance(self, node: fx.Node, name: str, value: str, row: Dim) -> None:
        """A variance, or its square root, and the mean, computed in the dtype in which torch accumulates them."""
        dtype, count = self._dtypes[value], max(self._axes.extent(row) - variance_correction(node), 0.0)
        wide = variance_dtype(node)
        given, mean = str(self._cast_to(value, wide)), self._exact_mean(f"{node.name}_centre", value, wide, row)
        off = self._add_step(f"{node.name}_off", "sub", (given, mean), wide)
        square = self._add_step(f"{node.name}_square", "mul", (off, off), wide)
        total = self._add_reduction(f"{node.name}_sum", "sum", square, wide, row)
        found = self._add_step(f"{node.name}_variance", "div", (total, count), wide)
        if name in DEVIATIONS:
            found = self._add_step(f"{node.name}_deviation", "sqrt", (found,), wide)
        for part, result in enumerate((found, mean)):
            self._add_step(f"{node.name}_part{part}", "cast", (result,), dtype)

    def _exact_mean(self, name: str, value: str, dtype: str, row: Dim) -> str:
        """The mean of equal numbers is that number: nothing may be left where it is subtracted."""
        return self._add_reduction(name, "mean", str(self._cast_to(value, dtype)), dtype, row)

    def _lower_getitem(self, node: fx.Node) -> None:
        source, place = node_arg(node, 0), node.args[1]
        if source not in self._names or f"{source.name}_part{place}" not in self._dtypes:
            raise Unsupported(f"a part of {source.name}, which is not here")
        self._names[node], self._dims[node] = f"{source.name}_part{place}", self._dims[source]

    def _reduce_dims(self, node: fx.Node, source: fx.Node, *, ordered: bool) -> tuple[Dim, Dims]:
        """The axes that a reduction takes away, and the dimensions of its result."""
        dims = self._dims_of(source)
        over = reduced_dims(node, len(dims))
        row = tuple(axis for position in over for axis in self._axes.leaves(dims[position]))
        self._add_row_axes(row, ordered=ordered)
        keep = len(result_shape(node)) == len(dims)
        kept = tuple(() if at in over else dim for at, dim in enumerate(dims) if keep or at not in over)
        return row, kept

    def _lower_mean(self, node: fx.Node, value: str, row: Dim, dtype: str) -> str:
        if mean_is_subtracted(node) and dtype.startswith("float"):
            return self._exact_mean(node.name, value, dtype, row)
        total = self._add_reduction(f"{node.name}_sum", "sum", value, dtype, row)
        return self._add_step(node.name, "div", (total, self._axes.extent(row)), dtype)

    def _lower_scan(self, node: fx.Node, op: str) -> None:
        turned = match_reversed_scan(node) if self._reverse_scans else None
        source = turned[0] if turned else node_arg(node, 0)
        dtype = accumulation_dtype(op, compute_dtype(node))
        value = str(self._cast_to(self._value(source), dtype))
        dims = self._dims[source]
        if not dims:
            raise Unsupported("a scan of one number")
        row = self._axes.leaves(dims[dim_arg(node, 1, len(dims))])
        if not row:
            self._names[node], self._dims[node] = self._add_reduction(node.name, op, value, dtype, row), dims
            return
        self._add_row_axes(row, ordered=True)
        if any(isinstance(step, Scan) and step.reverse != bool(turned) for step in self._steps):
            raise Unsupported("two scans that run against each other")
        self._steps.append(Scan(value=node.name, op=op, arg=value, dtype=dtype, reverse=bool(turned)))
        self._dtypes[node.name] = dtype
        self._names[node], self._dims[node] = str(self._cast_to(node.name, compute_dtype(node))), dims
        if turned:
            self._unflipped_scans.add(node)

    def _lower_flip(self, node: fx.Node) -> None:
        pair = match_flipped_scan(node)
        if pair is None or pair[0] not in self._unflipped_scans:
            raise Unsupported(f"{node.name} turns around what is computed here")
        self._names[node], self._dims[node] = self._names[pair[0]], self._dims[pair[0]]

    def _lower_gather(self, node: fx.Node) -> None:
        """One element of each row: the sum over the row of what is at its position, and of 0 elsewhere."""
        source, index = node_arg(node, 0), node_arg(node, 2)
        shape, dtype = shape_of(source), compute_dtype(node)
        at = dim_arg(node, 1, len(shape))
        if shape_of(index) != (*shape[:at], 1, *shape[at + 1 :]) or dtype == "bool":
            raise Unsupported("more than one element out of each row")
        value, place = self._value(source), self._cast_to(self._value(index), "int64")
        dims = self._dims[source]
        row = self._axes.leaves(dims[at])
        self._add_row_axes(row)
        self._names[node] = value
        if row:
            position = self._add_index(f"{node.name}_index", row)
            here = self._add_step(f"{node.name}_here", "eq", (position, place), "bool")
            chosen = self._add_step(f"{node.name}_chosen", "where", (here, value, 0), dtype)
            self._names[node] = self._add_reduction(node.name, "sum", chosen, dtype, row)
        self._dims[node] = self._axes.broadcast((*dims[:at], (), *dims[at + 1 :]), self._dims[index])


def accumulation_dtype(op: str, dtype: str) -> str:
    """The dtype in which a reduction or scan is computed: a sum modulo 2**32 is the same modulo 2**8 and 2**16."""
    return "int32" if op in ("sum", "prod") and dtype in ("uint8", "int8", "int16") else dtype


def make_number_rounder(op: str, dtype: str) -> Callable[[Operand], Operand]:
    """What torch makes of a plain number beside a tensor: a divisor of half precision is rounded to it before what it
    leaves is computed, which decides what exact multiples leave."""
    if op not in ("remainder", "fmod") or dtype not in ("float16", "bfloat16"):
        return lambda value: value
    half = getattr(torch, dtype)
    return lambda value: value if isinstance(value, str) else torch.tensor(value, dtype=half).item()


def lower_nodes(nodes: Sequence[fx.Node], *, reverse_scans: bool = True) -> Lowering:
    """All of some nodes, which are in the order of the graph.

    Raises:
        Misfit: one of them does not fit with those before.
    """
    lowering = Lowering(reverse_scans=reverse_scans)
    for node in nodes:
        lowering.add(node)
    return lowering
