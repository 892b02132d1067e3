"""One call of torch's that has several implementations, as a region: the fastest wins, as for generated kernels."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from itertools import count
from math import prod
from typing import Any

import torch
from torch import fx

from kernelwright.compiler.capture.recurrences import RECURRENCES
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
        tensors: name and dtype of each tensor argument by its parameter; `params[0]` is the first of a list.
        shapes: of the tensors, by parameter.
        strides: of the tensors, by parameter, in elements.
        literals: the other arguments by parameter, as Python source.
        outputs: the results that are used, by their index.
    """

    name: str
    operator: str
    tensors: dict[str, tuple[str, str]]
    shapes: dict[str, tuple[int, ...]]
    strides: dict[str, tuple[int, ...]]
    literals: dict[str, str]
    outputs: dict[int, Store]

    row = ()
    """It has no rows of its own."""

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """The tensor arguments, each once."""
        dtypes = dict(self.tensors.values())
        return tuple(Load(value=f"{name}_in", buffer=name, dtype=dtype, strides={}) for name, dtype in dtypes.items())

    @property
    def output(self) -> Store:
        """The first result that is used."""
        return self.stores[0]

    @property
    def is_unrolled_by_compile(self) -> bool:
        """Whether torch.compile unrolls it, step by step, which takes minutes."""
        return self.operator in RECURRENCES

    @property
    def outer(self) -> tuple[Axis, ...]:
        """The elements of the results as one axis."""
        return (Axis(name="i0", size=self.num_rows),)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The call."""
        return (Step(value=self.output.value, op=self.operator, args=(), dtype=self.output.dtype),)

    @property
    def stores(self) -> tuple[Store, ...]:
        """The results that are used."""
        return tuple(self.outputs.values())

    @property
    def reads(self) -> list[str]:
        """The tensors that it reads, in order."""
        return [load.buffer for load in self.loads]

    @property
    def argument_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the tensors that it reads, in order."""
        by_name = {name: self.shapes[parameter] for parameter, (name, _) in self.tensors.items()}
        return tuple(by_name[name] for name in self.reads)

    @property
    def writes(self) -> list[str]:
        """The results that are used."""
        return [store.buffer for store in self.stores]

    @property
    def num_rows(self) -> int:
        """The elements of the results."""
        return sum(prod(store.shape) for store in self.stores)

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
        return sum(read.values()), sum(prod(one.shape) * DTYPE_BYTES[one.dtype] for one in self.stores)

    def __str__(self) -> str:
        given = [f"{parameter}={name} {self.shapes[parameter]}" for parameter, (name, _) in self.tensors.items()]
        given += [f"{parameter}={value}" for parameter, value in self.literals.items()]
        return f"{self.name}: {', '.join(self.writes)} = {self.operator}({', '.join(given)})"


ATTENTION = "scaled_dot_product_attention"
CALLS = (ATTENTION, *RECURRENCES)
"""Operators of which there are several implementations for a GPU."""


def plan_calls(graph: fx.Graph, names: Iterable[str], prefix: str = "region") -> list[tuple[CallRegion, list[fx.Node]]]:
    """The calls of a graph that are regions; `names` are those of its other regions, all with the same prefix."""
    planned: list[tuple[CallRegion, list[fx.Node]]] = []
    free = (name for number in count() if (name := f"{prefix}_{number}") not in set(names))
    for node in graph.nodes:
        if op_name(node.target) in CALLS and node.users and not runs_on_cpu(_values(node)[0]):
            with suppress(Unsupported):
                results = _used_results(node)
                nodes = [node, *(one for one in results.values() if one is not node)]
                planned.append((call_region(next(free), node), nodes))
    return planned


def call_region(name: str, node: fx.Node) -> CallRegion:
    """A call of torch's as a region.

    Raises:
        Unsupported: an argument is neither a number nor a tensor or a list of tensors, or a result is used as a whole.
    """
    assert isinstance(node.target, torch._ops.OpOverload)
    parameters = [argument.name for argument in node.target._schema.arguments]
    given = _flatten_lists(dict(zip(parameters, node.args, strict=False)) | node.kwargs)
    tensors = {parameter: one for parameter, one in given.items() if isinstance(one, fx.Node)}
    literals = {parameter: one for parameter, one in given.items() if not isinstance(one, fx.Node)}
    if any(not isinstance(one, (int, float, bool, type(None))) for one in literals.values()):
        raise Unsupported("an argument that is neither a tensor nor a number")
    return CallRegion(
        name=name,
        operator=op_name(node.target),
        tensors={parameter: (one.name, dtype_of(one)) for parameter, one in tensors.items()},
        shapes={parameter: shape_of(one) for parameter, one in tensors.items()},
        strides={parameter: tuple(map(int, one.meta["val"].stride())) for parameter, one in tensors.items()},
        literals={parameter: repr(one) for parameter, one in literals.items()},
        outputs={index: _store(result) for index, result in _used_results(node).items()},
    )


def _flatten_lists(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments by parameter, with the elements of lists by parameter and index."""
    flat: dict[str, Any] = {}
    for parameter, value in given.items():
        is_list = isinstance(value, (list, tuple))
        flat |= {f"{parameter}[{index}]": one for index, one in enumerate(value)} if is_list else {parameter: value}
    return flat


def _values(node: fx.Node) -> tuple[torch.Tensor, ...]:
    """The results of a call."""
    value = node.meta["val"]
    return (value,) if isinstance(value, torch.Tensor) else tuple(value)


def _used_results(node: fx.Node) -> dict[int, fx.Node]:
    """The nodes that have a call's results, by the index of the result; a result that nothing uses has none.

    Raises:
        Unsupported: something uses the tuple of several results, or reads one result twice.
    """
    if isinstance(node.meta["val"], torch.Tensor):
        return {0: node}
    readers = [user for user in node.users if user.users]
    results = {int(user.args[1]): user for user in readers if op_name(user.target) == "getitem"}  # type: ignore[arg-type]
    if len(results) < len(readers) or not results:
        raise Unsupported("a call whose results are not read one by one")
    return dict(sorted(results.items()))


def _store(node: fx.Node) -> Store:
    """The store of a result, with torch's strides."""
    value = node.meta["val"]
    return Store(
        value=node.name, buffer=node.name, dtype=dtype_of(node), shape=shape_of(node),
        shape_strides=tuple(map(int, value.stride())), strides={"i0": 1},
    )  # fmt: skip
