"""One call of torch's that has several implementations, as a region: the fastest wins, as for generated kernels."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from itertools import count
from math import prod

import torch
from torch import fx

from kernelwright.compiler.capture.target_device import runs_on_cpu
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.nodes import dtype_of, shape_of
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.regions.region import Axis, Load, Step, Store
from kernelwright.core.record import Record
from kernelwright.core.units import DTYPE_BYTES


class CallRegion(Record, frozen=True, kw_only=True, dict=True):
    """A call of `operator` with tensors and literals as arguments; seen as a region by what plans it.

    Attributes:
        tensors: name and dtype of each tensor argument by its parameter.
        shapes: of the tensors, by parameter.
        strides: of the tensors, by parameter, in elements.
        literals: the other arguments by parameter, as Python source.
    """

    name: str
    operator: str
    tensors: dict[str, tuple[str, str]]
    shapes: dict[str, tuple[int, ...]]
    strides: dict[str, tuple[int, ...]]
    literals: dict[str, str]
    output: Store

    row = ()
    """It has no rows of its own."""

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """The tensor arguments, each once."""
        dtypes = dict(self.tensors.values())
        return tuple(Load(value=f"{name}_in", buffer=name, dtype=dtype, strides={}) for name, dtype in dtypes.items())

    @property
    def outer(self) -> tuple[Axis, ...]:
        """The elements of the result as one axis."""
        return (Axis(name="i0", size=self.num_rows),)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The call."""
        return (Step(value=self.output.value, op=self.operator, args=(), dtype=self.output.dtype),)

    @property
    def stores(self) -> tuple[Store, ...]:
        """The result."""
        return (self.output,)

    @property
    def reads(self) -> list[str]:
        """The tensors that it reads, in order."""
        return [load.buffer for load in self.loads]

    @property
    def writes(self) -> list[str]:
        """The result."""
        return [self.output.buffer]

    @property
    def num_rows(self) -> int:
        """The elements of the result."""
        return prod(self.output.shape)

    @property
    def row_size(self) -> int:
        """One element."""
        return 1

    @property
    def bytes_moved(self) -> tuple[int, int]:
        """(read, written) bytes, with every element counted once."""
        read = {
            name: prod(self.shapes[parameter]) * DTYPE_BYTES[dtype] for parameter, (name, dtype) in self.tensors.items()
        }
        return sum(read.values()), self.num_rows * DTYPE_BYTES[self.output.dtype]

    def __str__(self) -> str:
        given = [f"{parameter}={name} {self.shapes[parameter]}" for parameter, (name, _) in self.tensors.items()]
        given += [f"{parameter}={value}" for parameter, value in self.literals.items()]
        return f"{self.name}: {self.output.value} = {self.operator}({', '.join(given)})"


CALLS = ("scaled_dot_product_attention",)
"""Operators of which torch has several implementations for a GPU."""


def plan_calls(graph: fx.Graph, names: Iterable[str], prefix: str = "region") -> list[tuple[CallRegion, list[fx.Node]]]:
    """The calls of a graph that are regions; `names` are those of its other regions, all with the same prefix."""
    planned: list[tuple[CallRegion, list[fx.Node]]] = []
    free = (name for number in count() if (name := f"{prefix}_{number}") not in set(names))
    for node in graph.nodes:
        if op_name(node.target) in CALLS and node.users and not runs_on_cpu(node.meta["val"]):
            with suppress(Unsupported):
                planned.append((call_region(next(free), node), [node]))
    return planned


def call_region(name: str, node: fx.Node) -> CallRegion:
    """A call of torch's as a region.

    Raises:
        Unsupported: an argument is neither a tensor nor a number, or the result is not one tensor.
    """
    value = node.meta["val"]
    assert isinstance(node.target, torch._ops.OpOverload)
    if not isinstance(value, torch.Tensor):
        raise Unsupported("a call with several results")
    parameters = [argument.name for argument in node.target._schema.arguments]
    given = dict(zip(parameters, node.args, strict=False)) | node.kwargs
    tensors = {parameter: one for parameter, one in given.items() if isinstance(one, fx.Node)}
    literals = {parameter: one for parameter, one in given.items() if not isinstance(one, fx.Node)}
    if any(not isinstance(one, (int, float, bool, type(None))) for one in literals.values()):
        raise Unsupported("an argument that is neither a tensor nor a number")
    store = Store(
        value=node.name, buffer=node.name, dtype=dtype_of(node), shape=shape_of(node),
        shape_strides=tuple(map(int, value.stride())), strides={"i0": 1},
    )  # fmt: skip
    return CallRegion(
        name=name,
        operator=op_name(node.target),
        tensors={parameter: (one.name, dtype_of(one)) for parameter, one in tensors.items()},
        shapes={parameter: shape_of(one) for parameter, one in tensors.items()},
        strides={parameter: tuple(map(int, one.meta["val"].stride())) for parameter, one in tensors.items()},
        literals={parameter: repr(one) for parameter, one in literals.items()},
        output=store,
    )
