"""From nodes of a captured graph to the region that computes them, or the reason why there is none.

Values of half precision are computed in float32 and rounded where they are stored. The arguments of a step have its
own dtype, or for a comparison one common to both: what torch promotes on the way is a step of its own here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import fx

from kernelwright.optimize.axes import Axes, Dim, Dims, Misfit
from kernelwright.optimize.operators import (
    COMPARISONS,
    CONSTANTS,
    CONVERSIONS,
    EXTREMES,
    LOGICAL,
    POINTWISE,
    REDUCED,
    VARIANCES,
    VIEWS,
    packet,
)
from kernelwright.optimize.region import SPECIAL, Axis, Load, Operand, Reduction, Region, Step, Store

CHEAP_AGAIN = 4
"""A value that lacks outer axes is computed once for each of them: special functions no more often than this."""
POWERS = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}


class _Index(NamedTuple):
    """The position along a dimension, which becomes a step when the axes have their names."""

    value: str
    dim: Dim


class Lowering:
    """A region that grows node by node; a copy can be tried and thrown away."""

    def __init__(self) -> None:
        self.nodes: list[fx.Node] = []
        self._axes = Axes()
        self._dims: dict[fx.Node, Dims] = {}
        self._names: dict[fx.Node, str] = {}
        self._loads: dict[fx.Node, Dims] = {}
        self._steps: list[Step | Reduction | _Index] = []
        self._dtypes: dict[str, str] = {}
        self._row: Dim = ()

    def copy(self) -> Lowering:
        other = Lowering()
        other.nodes, other._axes, other._row = list(self.nodes), self._axes.copy(), self._row
        other._dims, other._names, other._loads = dict(self._dims), dict(self._names), dict(self._loads)
        other._steps, other._dtypes = list(self._steps), dict(self._dtypes)
        return other

    def add(self, node: fx.Node) -> None:
        """Takes a node in.

        Raises:
            Misfit: the region cannot hold it; then this lowering is spoilt, so try a copy.
        """
        name = packet(node.target)
        if name in VIEWS and self._holds(node.args[0]):
            self._view(node, name)
        elif name in CONVERSIONS:
            self._convert(node)
        elif name in POINTWISE:
            self._pointwise(node, POINTWISE[name])
        elif name in REDUCED:
            self._reduce(node, REDUCED[name])
        elif name in VARIANCES or name in EXTREMES:
            self._several(node, name)
        elif name == "getitem":
            self._part(node)
        else:
            raise Misfit(f"{node.target} is not pointwise, not a reduction and no view")
        self.nodes.append(node)
        self._check()

    # ---- kinds of nodes

    def _pointwise(self, node: fx.Node, op: str) -> None:
        options = dict(node.kwargs)
        scale, mode = options.pop("alpha", 1), options.pop("rounding_mode", None)
        given = [*node.args, *(options.get(name) for name in ("min", "max") if name in options)]
        nodes = [arg for arg in given if isinstance(arg, fx.Node)]
        args: list[Operand | None] = [self._operand(arg) for arg in given]
        self._dims[node] = self._axes.broadcast(*(self._dims_of(n) for n in nodes))
        if op == "clamp":
            self._names[node] = self._clamped(node, args)
            return
        dtype = _computed(node)
        operands = self._promoted(op, [a for a in args if a is not None], dtype)
        if scale != 1:
            operands[-1] = self._step(f"{node.name}_scaled", "mul", (operands[-1], _number(scale)), dtype)
        if op == "rsub":
            op, operands = "sub", operands[::-1]
        if op == "div" and mode:
            op = {"floor": "floor_div", "trunc": "trunc_div"}[str(mode)]
        if op == "pow":
            self._names[node] = self._power(node, operands, dtype)
            return
        self._names[node] = self._step(node.name, op, tuple(operands), dtype)

    def _promoted(self, op: str, args: list[Operand], dtype: str) -> list[Operand]:
        """The arguments in the dtype in which the step is computed."""
        if op == "where":
            return [self._as(args[0], "bool"), *(self._as(a, dtype) for a in args[1:])]
        if op in LOGICAL:
            return [self._as(a, "bool") for a in args]
        if op in COMPARISONS:
            dtype = _common([self._dtypes[a] if isinstance(a, str) else a for a in args])
        return [self._as(a, dtype) for a in args]

    def _as(self, value: Operand, dtype: str) -> Operand:
        if not isinstance(value, str) or self._dtypes[value] == dtype:
            return value
        name = f"{value}_{dtype}"
        return name if name in self._dtypes else self._step(name, "cast", (value,), dtype)

    def _power(self, node: fx.Node, args: list[Operand], dtype: str) -> str:
        base, exponent = args
        if exponent in (2, 3, 4) and isinstance(base, str):
            square = self._step(node.name if exponent == 2 else f"{node.name}_square", "mul", (base, base), dtype)
            other = base if exponent == 3 else square
            return square if exponent == 2 else self._step(node.name, "mul", (square, other), dtype)
        if isinstance(exponent, (int, float)) and exponent in POWERS and dtype.startswith("float"):
            return self._step(node.name, POWERS[float(exponent)], (base,), dtype)
        return self._step(node.name, "pow", (base, exponent), dtype)

    def _clamped(self, node: fx.Node, args: list[Operand | None]) -> str:
        """The lower bound first, as torch does; either may be missing, and be given by place or by name."""
        names = [*("value", "min", "max")[: len(node.args)], *(name for name in ("min", "max") if name in node.kwargs)]
        at, dtype = dict(zip(names, args, strict=True)), _computed(node)
        result = self._as(at["value"], dtype)  # type: ignore[arg-type]
        for name, op in (("min", "max"), ("max", "min")):
            bound = at.get(name)
            if bound is not None:
                result = self._step(f"{node.name}_{name}", op, (result, self._as(bound, dtype)), dtype)
        return str(result)

    def _convert(self, node: fx.Node) -> None:
        source = _node(node, 0)
        value = self._as(self._value(source), _computed(node))
        self._names[node], self._dims[node] = str(value), self._dims[source]

    def _reduce(self, node: fx.Node, op: str) -> None:
        source = _node(node, 0)
        value, dtype = self._value(source), _computed(node)
        row, dims = self._over(node, source)
        if op in ("argmax", "argmin"):
            if len(row) != 1 or len(_reduced_dims(node, len(self._dims[source]))) != 1:
                raise Misfit("the position of an extreme over several axes")
        elif op in ("any", "all"):
            value = str(self._as(value, "bool"))
        else:
            value = str(self._as(value, dtype))
        if op == "mean":
            self._names[node] = self._mean(node.name, value, row, dtype)
        else:
            self._names[node] = self._fold(node.name, op, value, dtype)
        self._dims[node] = dims

    def _several(self, node: fx.Node, name: str) -> None:
        """Operators with two results: a variance with its mean, an extreme with its place."""
        source = _node(node, 0)
        value = self._value(source)
        row, kept = self._over(node, source)
        if name in EXTREMES:
            if len(row) != 1:
                raise Misfit("the position of an extreme over several axes")
            self._fold(f"{node.name}_0", EXTREMES[name], value, self._dtypes[value])
            self._fold(f"{node.name}_1", f"arg{EXTREMES[name]}", value, "int64")
        else:
            self._variance(node, value, row)
        self._names[node], self._dims[node] = f"{node.name}_0", kept

    def _variance(self, node: fx.Node, value: str, row: Dim) -> None:
        dtype, count = self._dtypes[value], self._axes.extent(row)
        mean = self._mean(f"{node.name}_1", value, row, dtype)
        off = self._step(f"{node.name}_off", "sub", (value, mean), dtype)
        square = self._step(f"{node.name}_square", "mul", (off, off), dtype)
        total = self._fold(f"{node.name}_sum", "sum", square, dtype)
        correction = _correction(node)
        if count <= correction:
            raise Misfit("a variance of too few values")
        self._step(f"{node.name}_0", "div", (total, count - correction), dtype)

    def _part(self, node: fx.Node) -> None:
        source, place = _node(node, 0), node.args[1]
        if source not in self._names or f"{source.name}_{place}" not in self._dtypes:
            raise Misfit(f"a part of {source.name}, which is not here")
        self._names[node], self._dims[node] = f"{source.name}_{place}", self._dims[source]

    def _over(self, node: fx.Node, source: fx.Node) -> tuple[Dim, Dims]:
        """The axes that a reduction takes away, and the dimensions of its result."""
        dims = self._dims_of(source)
        over = _reduced_dims(node, len(dims))
        row = tuple(axis for position in over for axis in self._axes.leaves(dims[position]))
        if not row:
            raise Misfit("a reduction over one element")
        if self._row and set(self._axes.leaves(self._row)) != set(row):
            raise Misfit("two reductions over different axes")
        self._row = row
        shape = _result_shape(node)
        keep = len(shape) == len(dims)
        kept = tuple(() if at in over else dim for at, dim in enumerate(dims) if keep or at not in over)
        return row, kept

    def _mean(self, name: str, value: str, row: Dim, dtype: str) -> str:
        total = self._fold(f"{name}_sum", "sum", value, dtype)
        return self._step(name, "div", (total, self._axes.extent(row)), dtype)

    def _make(self, node: fx.Node) -> None:
        """A constant or a range: whoever needs it makes its own."""
        name = packet(node.target)
        if name in CONSTANTS:
            self._constant(node, name)
        else:
            self._count_up(node)

    def _constant(self, node: fx.Node, name: str) -> None:
        kind = name.removesuffix("_like")
        number = {"zeros": 0, "ones": 1}.get(kind, node.args[0 if kind == "scalar_tensor" else -1])
        self._names[node] = self._step(node.name, "constant", (_number(number),), _computed(node))
        self._dims[node] = self._axes.fresh(_shape(node))

    def _count_up(self, node: fx.Node) -> None:
        (size,) = _shape(node)
        start, step = _range(node)
        dim = self._axes.new(size)
        if not dim:
            raise Misfit("a range of one number")
        value = f"{node.name}_index"
        self._steps.append(_Index(value, dim))
        self._dtypes[value] = "int64"
        if step != 1:
            value = self._step(f"{node.name}_scaled", "mul", (value, step), "int64")
        if start:
            value = self._step(f"{node.name}_from", "add", (value, start), "int64")
        self._names[node], self._dims[node] = str(self._as(value, _computed(node))), (dim,)

    def _view(self, node: fx.Node, name: str) -> None:
        source = _node(node, 0)
        dims, shape = self._dims[source], _shape(node)
        self._names[node] = self._names[source]
        if name in ("permute", "transpose", "t"):
            self._dims[node] = tuple(dims[position] for position in _order(node, len(dims)))
        elif name in ("alias", "detach"):
            self._dims[node] = dims
        elif name == "broadcast_in_dim":
            places = [int(place) for place in node.args[2]]  # type: ignore[union-attr]
            at = dict(zip(places, dims, strict=True))
            self._dims[node] = self._repeated([at.get(position, ()) for position in range(len(shape))], shape)
        elif name == "expand":
            self._dims[node] = self._repeated([*((),) * (len(shape) - len(dims)), *dims], shape)
        else:
            self._dims[node] = self._axes.regroup(dims, shape)

    def _repeated(self, dims: Sequence[Dim], shape: tuple[int, ...]) -> Dims:
        """Where the shape is larger than one, an axis on which the value does not depend."""
        return tuple(dim or self._axes.new(size) for dim, size in zip(dims, shape, strict=True))

    # ---- values

    def _holds(self, node: Any) -> bool:
        return isinstance(node, fx.Node) and node in self._names and node not in self._loads

    def _dims_of(self, node: fx.Node) -> Dims:
        self._value(node)
        return self._dims[node]

    def _operand(self, arg: Any) -> Operand | None:
        if isinstance(arg, fx.Node):
            return self._value(arg)
        return None if arg is None else _number(arg)

    def _value(self, node: fx.Node) -> str:
        """The name of a node's value; one that nobody here computes is loaded."""
        if node not in self._names and made_anywhere(node):
            self._make(node)
        if node not in self._names:
            if not isinstance(node.meta.get("val"), torch.Tensor):
                raise Misfit(f"{node.name} is no tensor")
            self._names[node] = name = f"{node.name}_in"
            self._dtypes[name] = _computed(node)
            self._dims[node] = self._loads[node] = self._axes.fresh(_shape(node))
        return self._names[node]

    def _step(self, value: str, op: str, args: tuple[Operand, ...], dtype: str) -> str:
        self._steps.append(Step(value=value, op=op, args=args, dtype=dtype))
        self._dtypes[value] = dtype
        return value

    def _fold(self, value: str, op: str, arg: str, dtype: str) -> str:
        self._steps.append(Reduction(value=value, op=op, arg=arg, dtype=dtype))
        self._dtypes[value] = dtype
        return value

    def _check(self) -> None:
        """No value may have one axis twice: that would be its diagonal.

        Raises:
            Misfit: one has.
        """
        for node, dims in self._dims.items():
            axes = [axis for dim in dims for axis in self._axes.leaves(dim)]
            if len(axes) != len(set(axes)):
                raise Misfit(f"{node.name} would be needed in two orders at once")

    # ---- the whole

    def region(self, name: str, wanted: Sequence[fx.Node]) -> Region:
        """The region that computes the wanted nodes.

        Raises:
            Misfit: a wanted value is the same for several rows, or something costly would be done again and again.
        """
        row = self._axes.leaves(self._row)
        outer = [axis for axis in self._every_axis() if axis not in row]
        names = {axis: f"i{at}" for at, axis in enumerate(outer)} | {axis: f"r{at}" for at, axis in enumerate(row)}
        region = Region(
            name=name,
            outer=tuple(Axis(name=names[axis], size=self._axes.size(axis)) for axis in outer),
            row=tuple(Axis(name=names[axis], size=self._axes.size(axis)) for axis in row),
            loads=tuple(self._load(node, names) for node in self._loads),
            steps=tuple(self._named(step, names) for step in self._steps),
            stores=tuple(self._store(node, names) for node in wanted),
        )
        _check_stores(region)
        return region

    def _every_axis(self) -> list[int]:
        """All axes in the order of the largest value that is here."""
        largest = sorted(self._dims.values(), key=lambda dims: -prod(self._axes.extent(dim) for dim in dims))
        return list(dict.fromkeys(axis for dims in largest for dim in dims for axis in self._axes.leaves(dim)))

    def _load(self, node: fx.Node, names: dict[int, str]) -> Load:
        strides = self._strides(self._dims[node], node.meta["val"].stride(), names)
        return Load(value=self._names[node], buffer=node.name, dtype=_dtype(node), strides=strides)

    def _store(self, node: fx.Node, names: dict[int, str]) -> Store:
        laid = tuple(int(stride) for stride in torch.empty_like(node.meta["val"]).stride())
        return Store(
            value=self._names[node],
            buffer=node.name,
            dtype=_dtype(node),
            shape=_shape(node),
            shape_strides=laid,
            strides=self._strides(self._dims[node], laid, names),
        )

    def _strides(self, dims: Dims, strides: Sequence[int], names: dict[int, str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for dim, stride in zip(dims, strides, strict=True):
            step = int(stride)
            for axis in reversed(self._axes.leaves(dim)):
                found[names[axis]] = step
                step *= self._axes.size(axis)
        return found

    def _named(self, step: Step | Reduction | _Index, names: dict[int, str]) -> Step | Reduction:
        if not isinstance(step, _Index):
            return step
        axes = self._axes.leaves(step.dim)
        if len(axes) != 1:
            raise Misfit("a position along an axis that was split")
        return Step(value=step.value, op="index", args=(names[axes[0]],), dtype="int64")


def made_anywhere(node: fx.Node) -> bool:
    """Whether a node is a constant or a range, which costs nothing to make where it is needed."""
    return packet(node.target) in (*CONSTANTS, "arange", "iota")


def lowered(nodes: Sequence[fx.Node]) -> Lowering:
    """All of some nodes, which are in the order of the graph.

    Raises:
        Misfit: one of them does not fit with those before.
    """
    lowering = Lowering()
    for node in nodes:
        lowering.add(node)
    return lowering


def _check_stores(region: Region) -> None:
    outer = {axis.name: axis.size for axis in region.outer}
    for store in region.stores:
        if missing := outer.keys() - region.axes_of[store.value]:
            raise Misfit(f"{store.buffer} is the same for every {', '.join(sorted(missing))}")
    for step in region.steps:
        again = prod(size for axis, size in outer.items() if axis not in region.axes_of[step.value])
        if step.op in SPECIAL and again > CHEAP_AGAIN:
            raise Misfit(f"{step.op} would be computed {again:,} times over")


def _node(node: fx.Node, at: int) -> fx.Node:
    arg = node.args[at]
    if not isinstance(arg, fx.Node):
        raise Misfit(f"{node.target} of {arg!r}")
    return arg


def _number(value: Any) -> int | float | bool:
    if not isinstance(value, (int, float, bool)):
        raise Misfit(f"an argument {value!r}")
    return value


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(int(size) for size in node.meta["val"].shape)


def _result_shape(node: fx.Node) -> tuple[int, ...]:
    value = node.meta["val"]
    return tuple(int(size) for size in (value[0] if isinstance(value, (tuple, list)) else value).shape)


def _dtype(node: fx.Node) -> str:
    return str(node.meta["val"].dtype).removeprefix("torch.")


def _computed(node: fx.Node) -> str:
    """The dtype in which a node's value is computed.

    Raises:
        Misfit: one that no generator has.
    """
    dtype = _dtype(node)
    if dtype in ("float16", "bfloat16"):
        return "float32"
    if dtype not in ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"):
        raise Misfit(f"{dtype} values")
    return dtype


def _common(operands: Sequence[Any]) -> str:
    """The dtype in which torch compares; plain numbers widen a dtype only from whole to fraction."""
    samples = [torch.empty((1,), dtype=getattr(torch, o)) if isinstance(o, str) else o for o in operands]
    result = samples[0]
    for other in samples[1:]:
        result = torch.empty((1,), dtype=torch.result_type(result, other))
    return str(result.dtype).removeprefix("torch.") if isinstance(result, torch.Tensor) else "float32"


def _reduced_dims(node: fx.Node, rank: int) -> tuple[int, ...]:
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if dims is None or dims == []:
        return tuple(range(rank))
    listed = [dims] if isinstance(dims, int) else list(dims)  # type: ignore[arg-type]
    return tuple(sorted(int(d) % max(rank, 1) for d in listed))  # type: ignore[call-overload]


def _correction(node: fx.Node) -> float:
    if "correction" in node.kwargs:
        given = node.kwargs["correction"]
        return 1.0 if given is None else float(given)  # type: ignore[arg-type]
    unbiased = next((arg for arg in node.args[1:] if isinstance(arg, bool)), True)
    return 1.0 if unbiased else 0.0


def _order(node: fx.Node, rank: int) -> list[int]:
    name = packet(node.target)
    if name == "permute":
        return [int(d) % rank for d in node.args[1]]  # type: ignore[union-attr]
    one, other = (0, 1) if name == "t" else (int(d) % rank for d in node.args[1:3])  # type: ignore[call-overload]
    order = list(range(rank))
    if rank > 1:
        order[one], order[other] = order[other], order[one]
    return order


def _range(node: fx.Node) -> tuple[int, int]:
    """(start, step) of an arange or iota."""
    if packet(node.target) == "iota":
        return int(node.kwargs.get("start", 0)), int(node.kwargs.get("step", 1))  # type: ignore[arg-type]
    numbers = [arg for arg in node.args if isinstance(arg, (int, float))]
    start, step = (numbers[0] if len(numbers) > 1 else 0), (numbers[2] if len(numbers) > 2 else 1)
    if int(start) != start or int(step) != step:
        raise Misfit("a range of fractions")
    return int(start), int(step)
