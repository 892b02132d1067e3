"""Lowering of graph nodes to a region, or the reason why they are not supported.

Half-precision values are computed in float32 and rounded when they are stored, except row values that other regions
read (`row_values`). The arguments of a step have its dtype, or those of a comparison a common dtype: torch's implicit
promotions become casts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod

import torch
from torch import fx

from kernelwright.compiler.regions.axes import Dim, Dims, Unsupported
from kernelwright.compiler.regions.depthwise_lowering import DepthwiseLowering
from kernelwright.compiler.regions.nodes import (
    DEPTHWISE,
    ROW_PRODUCT,
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
    stored_strides,
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
    POOLS,
    SCANS,
    VARIANCES,
    VIEWS,
    explain_unsupported,
    op_name,
)
from kernelwright.compiler.regions.region import Operand, Region, Scan
from kernelwright.compiler.regions.region_builder import ConcatPiece
from kernelwright.compiler.regions.row_products import match_row_product

__all__ = ["Lowering", "is_rematerializable", "lower_nodes"]

MAX_CONCAT_INPUTS = 4
BOOL_OPS = {"max": "or", "fmax": "or", "add": "or", "min": "and", "fmin": "and", "mul": "and"}
BOOL_REDUCTIONS = {"max": "any", "min": "all"}
"""Logical equivalents of arithmetic on bools: a backend may represent true by any nonzero number."""
POW_SHORTCUTS = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}


class Lowering(DepthwiseLowering):
    """Builds a region node by node.

    Args:
        reverse_scans: lower scan(flip(x)) to a reverse scan, which only the matching flip can read.
    """

    def __init__(self, *, reverse_scans: bool = True) -> None:
        super().__init__()
        self._reverse_scans = reverse_scans

    def copy(self) -> Lowering:
        """Return an independent copy, to try a node that may not be supported."""
        other = Lowering(reverse_scans=self._reverse_scans)
        self._copy_into(other)
        return other

    def add(self, node: fx.Node) -> None:
        """Add a node to the region.

        Raises:
            Unsupported: the region cannot compute it; this lowering is then invalid and must be discarded.
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
        elif name in POOLS:
            self.lower_pool(node)
        elif name == "flip":
            self._lower_flip(node)
        elif name == "getitem":
            self._lower_getitem(node)
        elif ROW_PRODUCT in node.meta:
            self._lower_row_product(node)
        elif DEPTHWISE in node.meta:
            self.lower_depthwise(node)
        else:
            raise Unsupported(explain_unsupported(node.target))
        self.nodes.append(node)
        self._check_repeated_axes()

    def build(self, name: str, outputs: Sequence[fx.Node], *, keep_unused: bool = False) -> Region:
        """See `RegionBuilder.build`."""
        if self._unflipped_scans & set(outputs):
            return lower_nodes(self.nodes, reverse_scans=False).build(name, outputs, keep_unused=keep_unused)
        return super().build(name, outputs, keep_unused=keep_unused)

    # ---- kinds of nodes

    def _lower_concat(self, node: fx.Node) -> None:
        """Concatenate inputs of one shape, of which some may have size 1 along the dimension; those are written once
        for each row."""
        inputs: list[fx.Node] = list(node.args[0])  # type: ignore[arg-type]
        shape = shape_of(max(inputs, key=lambda one: prod(shape_of(one))))
        dim = dim_arg(node, 1, len(shape))
        allowed = (shape, (*shape[:dim], 1, *shape[dim + 1 :]))
        if not all(shape_of(one) in allowed for one in inputs) or len(inputs) > MAX_CONCAT_INPUTS:
            raise Unsupported(f"concatenation of different shapes, or of more than {MAX_CONCAT_INPUTS} inputs")
        if len({dtype_of(one) for one in (node, *inputs)}) != 1:
            raise Unsupported("concatenation of different dtypes")
        values = [self._value(one) for one in inputs]
        self._dims[node] = self._axes.broadcast(*(self._dims[one] for one in inputs))
        stride = stored_strides(node)[dim]
        starts = accumulate((shape_of(one)[dim] for one in inputs), initial=0)
        self._concat_pieces[node] = [
            ConcatPiece(value, start * stride, self._dims[one])
            for value, start, one in zip(values, starts, inputs, strict=False)
        ]

    def _lower_pointwise(self, node: fx.Node, op: str) -> None:
        options = dict(node.kwargs)
        scale, mode = options.pop("alpha", 1), options.pop("rounding_mode", None)
        node_args = [*node.args, *(options.get(name) for name in ("min", "max") if name in options)]
        nodes = [arg for arg in node_args if isinstance(arg, fx.Node)]
        args: list[Operand | None] = [self._operand(arg) for arg in node_args]
        self._dims[node] = self._axes.broadcast(*(self._dims_of(n) for n in nodes))
        if op == "clamp":
            self._names[node] = self._lower_clamp(node, args)
            return
        dtype = compute_dtype(node)
        op = BOOL_OPS.get(op, op) if dtype == "bool" else op
        if op in COMPARISONS:
            common = common_dtype(*node_args)
            operands = [self._cast_to(a, "int32" if common == "bool" else common) for a in args if a is not None]
        else:
            round_number = make_number_rounder(op, dtype_of(node))
            operands = self._promote(op, [round_number(a) for a in args if a is not None], dtype)
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
        """The arguments, cast to the dtype in which the step is computed."""
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
        """Apply the lower bound first, as torch does; either bound may be missing, positional or a keyword."""
        names = [*("value", "min", "max")[: len(node.args)], *(name for name in ("min", "max") if name in node.kwargs)]
        arg_of, dtype = dict(zip(names, args, strict=True)), compute_dtype(node)
        result = self._cast_to(arg_of["value"], dtype)  # type: ignore[arg-type]
        for name, op in (("min", "max"), ("max", "min")):
            bound = arg_of.get(name)
            if bound is not None:
                result = self._add_step(f"{node.name}_{name}", op, (result, self._cast_to(bound, dtype)), dtype)
        return str(result)

    def _lower_conversion(self, node: fx.Node) -> None:
        source = node_arg(node, 0)
        if shape_of(source) != shape_of(node):
            raise Unsupported(f"{node.name} broadcasts its source")
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
            reduced = self._add_reduction(node.name, op, value, accumulation_dtype(op, dtype), row)
            self._names[node] = str(self._cast_to(reduced, dtype))
        self._dims[node] = dims

    def _lower_multi_output(self, node: fx.Node, name: str) -> None:
        """Lower an operator with two results: a variance with its mean, or a maximum or minimum with its index."""
        source = node_arg(node, 0)
        value = self._value(source)
        row, dims = self._reduce_dims(node, source, ordered=name in MINMAX_WITH_INDEX)
        if name in MINMAX_WITH_INDEX:
            dtype, op = self._dtypes[value], MINMAX_WITH_INDEX[name]
            self._add_reduction(f"{node.name}_part0", BOOL_REDUCTIONS[op] if dtype == "bool" else op, value, dtype, row)
            self._add_reduction(f"{node.name}_part1", f"arg{op}", self._make_comparable(value), "int64", row)
        else:
            self._lower_variance(node, name, value, row)
        self._names[node], self._dims[node] = f"{node.name}_part0", dims

    def _make_comparable(self, value: str) -> str:
        """The operand of an argmax or argmin: bools become int32."""
        return str(self._cast_to(value, "int32")) if self._dtypes[value] == "bool" else value

    def _lower_variance(self, node: fx.Node, name: str, value: str, row: Dim) -> None:
        """Lower a variance or standard deviation and the mean, in the dtype in which torch accumulates them."""
        dtype, count = self._dtypes[value], max(self._axes.extent(row) - variance_correction(node), 0.0)
        acc_dtype = variance_dtype(node)
        operand = str(self._cast_to(value, acc_dtype))
        mean = self._exact_mean(f"{node.name}_centre", value, acc_dtype, row)
        centered = self._add_step(f"{node.name}_centered", "sub", (operand, mean), acc_dtype)
        square = self._add_step(f"{node.name}_square", "mul", (centered, centered), acc_dtype)
        total = self._add_reduction(f"{node.name}_sum", "sum", square, acc_dtype, row)
        result = self._add_step(f"{node.name}_variance", "div", (total, count), acc_dtype)
        if name in DEVIATIONS:
            result = self._add_step(f"{node.name}_deviation", "sqrt", (result,), acc_dtype)
        for index, output in enumerate((result, mean)):
            self._add_step(f"{node.name}_part{index}", "cast", (output,), dtype)

    def _exact_mean(self, name: str, value: str, dtype: str, row: Dim) -> str:
        """Add a mean that is exact for equal elements, so that their difference from it is 0."""
        return self._add_reduction(name, "mean", str(self._cast_to(value, dtype)), dtype, row)

    def _lower_getitem(self, node: fx.Node) -> None:
        source, index = node_arg(node, 0), node.args[1]
        if source not in self._names or f"{source.name}_part{index}" not in self._dtypes:
            raise Unsupported(f"output {index} of {source.name}, which is not in this region")
        self._names[node], self._dims[node] = f"{source.name}_part{index}", self._dims[source]

    def _reduce_dims(self, node: fx.Node, source: fx.Node, *, ordered: bool) -> tuple[Dim, Dims]:
        """The axes that a reduction reduces, and the dimensions of its result."""
        dims = self._dims_of(source)
        reduced = reduced_dims(node, len(dims))
        row = tuple(axis for position in reduced for axis in self._axes.leaves(dims[position]))
        self._add_row_axes(row, ordered=ordered)
        keepdim = len(result_shape(node)) == len(dims)
        result = tuple(() if i in reduced else dim for i, dim in enumerate(dims) if keepdim or i not in reduced)
        return row, result

    def _lower_mean(self, node: fx.Node, value: str, row: Dim, dtype: str) -> str:
        if mean_is_subtracted(node) and dtype.startswith("float"):
            return self._exact_mean(node.name, value, dtype, row)
        total = self._add_reduction(f"{node.name}_sum", "sum", value, dtype, row)
        return self._add_step(node.name, "div", (total, self._axes.extent(row)), dtype)

    def _lower_scan(self, node: fx.Node, op: str) -> None:
        reverse = match_reversed_scan(node) if self._reverse_scans else None
        source = reverse[0] if reverse else node_arg(node, 0)
        dtype = accumulation_dtype(op, compute_dtype(node))
        value = str(self._cast_to(self._value(source), dtype))
        dims = self._dims[source]
        if not dims:
            raise Unsupported("scan of a scalar")
        row = self._axes.leaves(dims[dim_arg(node, 1, len(dims))])
        if not row:
            self._names[node], self._dims[node] = self._add_reduction(node.name, op, value, dtype, row), dims
            return
        self._add_row_axes(row, ordered=True)
        if any(isinstance(step, Scan) and step.reverse != bool(reverse) for step in self._steps):
            raise Unsupported("two scans in opposite directions")
        self._steps.append(Scan(value=node.name, op=op, arg=value, dtype=dtype, reverse=bool(reverse)))
        self._dtypes[node.name] = dtype
        self._names[node], self._dims[node] = str(self._cast_to(node.name, compute_dtype(node))), dims
        if reverse:
            self._unflipped_scans.add(node)

    def _lower_flip(self, node: fx.Node) -> None:
        pair = match_flipped_scan(node)
        if pair is None or pair[0] not in self._unflipped_scans:
            raise Unsupported(f"{node.name} flips a value computed in this region")
        self._names[node], self._dims[node] = self._names[pair[0]], self._dims[pair[0]]

    def _lower_row_product(self, node: fx.Node) -> None:
        """Lower a product to sums of elementwise products over rows; halves are accumulated in FP32."""
        product = match_row_product(node)
        dtype = compute_dtype(node)
        left, right = (self._cast_to(self._value(one), dtype) for one in (product.left, product.right))
        left_dims, right_dims = self._dims[product.left], self._dims[product.right]
        columns, depth = right_dims[-2:] if product.is_transposed else right_dims[:-3:-1]
        self._axes.unify(depth, left_dims[-1])
        batch = self._axes.broadcast(left_dims[:-2], right_dims[:-2])
        row = self._axes.leaves(depth)
        self._add_row_axes(row)
        terms = self._add_step(f"{node.name}_terms", "mul", (left, right), dtype)
        total = self._add_reduction(f"{node.name}_sum", "sum", terms, dtype, row)
        self._dims[node] = (*batch, *left_dims[-2:-1], columns)
        if product.bias is not None:
            bias = self._cast_to(self._value(product.bias), dtype)
            self._dims[node] = self._axes.broadcast(self._dims[node], self._dims[product.bias])
            total = self._add_step(f"{node.name}_biased", "add", (total, bias), dtype)
        self._names[node] = total

    def _lower_gather(self, node: fx.Node) -> None:
        """Lower a gather of one element per row to a one-hot sum over the row."""
        source, index = node_arg(node, 0), node_arg(node, 2)
        shape, dtype = shape_of(source), compute_dtype(node)
        dim = dim_arg(node, 1, len(shape))
        if shape_of(index) != (*shape[:dim], 1, *shape[dim + 1 :]) or dtype == "bool":
            raise Unsupported("gather of more than one element per row, or of bools")
        value, position = self._value(source), self._cast_to(self._value(index), "int64")
        dims = self._dims[source]
        row = self._axes.leaves(dims[dim])
        self._add_row_axes(row)
        self._names[node] = value
        if row:
            row_index = self._add_index(f"{node.name}_index", row)
            mask = self._add_step(f"{node.name}_mask", "eq", (row_index, position), "bool")
            masked = self._add_step(f"{node.name}_masked", "where", (mask, value, 0), dtype)
            self._names[node] = self._add_reduction(node.name, "sum", masked, dtype, row)
        self._dims[node] = self._axes.broadcast((*dims[:dim], (), *dims[dim + 1 :]), self._dims[index])


def accumulation_dtype(op: str, dtype: str) -> str:
    """Return the dtype in which a reduction or scan accumulates.

    Narrow integers accumulate in int32: a sum modulo 2**32 is the same modulo 2**8 and 2**16.
    """
    return "int32" if op in ("sum", "prod") and dtype in ("uint8", "int8", "int16") else dtype


def make_number_rounder(op: str, dtype: str) -> Callable[[Operand], Operand]:
    """Return the rounding that torch applies to a literal operand of an operator.

    A literal divisor of a half-precision remainder is rounded to that dtype first, which decides the remainder of exact
    multiples.
    """
    if op not in ("remainder", "fmod") or dtype not in ("float16", "bfloat16"):
        return lambda value: value
    half = getattr(torch, dtype)
    return lambda value: value if isinstance(value, str) else torch.tensor(value, dtype=half).item()


def lower_nodes(nodes: Sequence[fx.Node], *, reverse_scans: bool = True) -> Lowering:
    """Lower some nodes, which are in graph order.

    Raises:
        Unsupported: a node is not supported in one region with those before it.
    """
    lowering = Lowering(reverse_scans=reverse_scans)
    for node in nodes:
        lowering.add(node)
    return lowering
