"""How a compiled candidate is called for given inputs: dimensions, outputs and scalars, worked out from its header."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.problems import integer_expressions
from kernelwright.problems.header import Header, Launch, Shape
from kernelwright.problems.prototype import Parameter, Prototype
from kernelwright.problems.state import described

Values = dict[str, Any]
Numbers = dict[str, int | float]
Pass = Callable[[int | float, Parameter | None], Any]
"""What a language passes for a number, or a string: why the parameter does not take it.

Raises:
    OverflowError: no parameter of the language could take it.
"""


@dataclass(frozen=True)
class Call:
    """One launch for given shapes and numbers: scalars are worked out, tensors stand by name."""

    entry: str
    arguments: tuple[Any, ...]
    sizes: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Plan:
    """All launches in order; `fresh` tensors are made before."""

    fresh: tuple[tuple[str, tuple[int, ...], torch.dtype], ...]
    calls: tuple[Call, ...]


class Planner:
    """Makes plans for one header and the functions that it describes.

    Args:
        prototypes: of each launch; None where it cannot be read.
        passed: what the language passes for a number.
        known: numbers of the machine that a header may name.
    """

    def __init__(
        self,
        header: Header,
        prototypes: Sequence[Prototype | None],
        passed: Pass,
        known: Mapping[str, int] | None = None,
    ) -> None:
        self._header, self._prototypes, self._passed, self._known = header, prototypes, passed, dict(known or {})

    def plan(self, values: Values) -> Plan:
        """The plan for inputs and parameters by name.

        Raises:
            SignatureError: a tensor does not fit the header, or the header does not fit a function.
        """
        numbers = self._dimensions(values)
        fresh = self._fresh(values, numbers)
        tensors = {name: value.dtype for name, value in values.items() if isinstance(value, torch.Tensor)}
        tensors |= {name: dtype for name, _, dtype in fresh}
        calls = tuple(
            Call(
                launch.entry,
                self._arguments(launch, prototype, tensors, values, numbers),
                self._sizes(launch, values, numbers),
            )
            for launch, prototype in zip(self._header.launches, self._prototypes, strict=True)
        )
        return Plan(tuple(fresh), calls)

    def _sizes(self, launch: Launch, values: Values, numbers: Numbers) -> dict[str, tuple[int, ...]]:
        return {
            kind: tuple(self._size(one, values, numbers, launch.size_lines[kind]) for one in sizes)
            for kind, sizes in launch.sizes.items()
        }

    def _fresh(self, values: Values, numbers: Numbers) -> list[tuple[str, tuple[int, ...], torch.dtype]]:
        """The outputs that have to be made, and what kernels leave for each other."""
        fresh = []
        for shape in (*self._header.outputs.values(), *self._header.temporary.values()):
            if shape.in_place:
                self._tensor(values, shape.name, shape.line)
            elif shape.like:
                model = self._tensor(values, shape.like, shape.line)
                fresh.append((shape.name, tuple(model.shape), model.dtype))
            else:
                sizes = tuple(self._size(one, values, numbers, shape.line) for one in shape.dims or ())
                fresh.append((shape.name, sizes, getattr(torch, shape.dtype or "")))
        return fresh

    def _dimensions(self, values: Values) -> Numbers:
        """The numbers by name: scalar inputs, and the dimensions as the tensors at hand give them."""
        numbers: Numbers = dict(self._known)
        numbers |= {name: value for name, value in values.items() if isinstance(value, int | float)}
        for shape in self._header.dims.values():
            tensor = self._tensor(values, shape.name, shape.line)
            if shape.dtype and tensor.dtype != getattr(torch, shape.dtype):
                self._header.fail(f"{shape.name} is {described(tensor)}, the source takes {shape.dtype}", shape.line)
            self._bind(shape, tensor, values, numbers)
        for name, (one, line) in self._header.named.items():
            numbers[name] = self._number(one, values, numbers, line)
        return numbers

    def _bind(self, shape: Shape, tensor: torch.Tensor, values: Values, numbers: Numbers) -> None:
        if shape.dims is None:
            return
        wanted = f"[{', '.join(map(ast.unparse, shape.dims))}]"
        if len(shape.dims) != tensor.ndim:
            self._header.fail(f"{shape.name} is {described(tensor)}, the source takes {wanted}", shape.line)
        for one, size in zip(shape.dims, tensor.shape, strict=True):
            if isinstance(one, ast.Name) and one.id not in numbers:
                numbers[one.id] = size
            elif self._number(one, values, numbers, shape.line) != size:
                known = ", ".join(f"{name} = {numbers[name]}" for name in sorted(integer_expressions.names(one)))
                told = f" with {known}" if known else ""
                self._header.fail(f"{shape.name} is {described(tensor)}, the source takes {wanted}{told}", shape.line)

    def _tensor(self, values: Values, name: str, line: int) -> torch.Tensor:
        if not isinstance(values.get(name), torch.Tensor):
            there = ", ".join(sorted(name for name, value in values.items() if isinstance(value, torch.Tensor)))
            self._header.fail(f"{name} is not a tensor of the program; these are: {there}", line)
        return values[name]

    def _number(self, one: ast.expr, values: Values, numbers: Numbers, line: int) -> int | float:
        functions: dict[str, Callable[..., int | float]] = {
            "numel": lambda name: self._tensor(values, name, line).numel(),
            "size": lambda name, dim: self._tensor(values, name, line).size(dim),
            "stride": lambda name, dim: self._tensor(values, name, line).stride(dim),
            **integer_expressions.PLAIN,
        }
        try:
            return integer_expressions.evaluate(one, numbers, functions)
        except (TypeError, IndexError, ValueError) as fault:
            there = ", ".join([*numbers, *functions, *(n for n, v in values.items() if isinstance(v, torch.Tensor))])
            return self._header.fail(f"cannot work out {ast.unparse(one)}: {fault}; known here: {there}", line)

    def _size(self, one: ast.expr, values: Values, numbers: Numbers, line: int) -> int:
        size = self._number(one, values, numbers, line)
        if size != size // 1 or not 0 <= size < 2**63:
            self._header.fail(f"{ast.unparse(one)} is {size}, which is not a size", line)
        return int(size)

    def _arguments(
        self,
        launch: Launch,
        prototype: Prototype | None,
        tensors: dict[str, torch.dtype],
        values: Values,
        numbers: Numbers,
    ) -> tuple[Any, ...]:
        """What a function is called with, held against its own parameters in number and type."""
        parameters = self._parameters(launch, prototype)
        arguments: list[Any] = []
        for (text, one), parameter in zip(launch.args, parameters, strict=True):
            if isinstance(one, ast.Name) and one.id in tensors:
                dtype = str(tensors[one.id]).removeprefix("torch.")
                if prototype and parameter and not parameter.takes(dtype):
                    message = f"{text} is a {dtype} tensor, but the parameter is `{parameter.text}`"
                    self._header.fail(message, prototype.line)
                arguments.append(one.id)
                continue
            number = self._number(one, values, numbers, launch.args_line)
            try:
                passed = self._passed(number, parameter)
            except OverflowError as fault:
                self._header.fail(f"{text} is {number}, {fault}", launch.args_line)
            if isinstance(passed, str):
                self._header.fail(f"{text} {passed}", prototype.line if prototype else launch.args_line)
            arguments.append(passed)
        return tuple(arguments)

    def _parameters(self, launch: Launch, prototype: Prototype | None) -> Sequence[Parameter | None]:
        if prototype is None:
            return [None] * len(launch.args)
        fail, line, count = self._header.fail, prototype.line, len(prototype.parameters)
        if prototype.returns != "void":
            fail(f"{launch.entry} returns {prototype.returns}, must return void", line)
        if count != len(launch.args):
            fail(f"{launch.entry} has {count} parameters, `kw: args` passes {len(launch.args)}", line)
        return prototype.parameters
