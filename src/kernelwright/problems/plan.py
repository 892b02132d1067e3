"""How a C++ candidate is called for given inputs: dimensions, outputs and scalars, worked out from its header."""

from __future__ import annotations

import ast
import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.problems import arithmetic
from kernelwright.problems.header import Header, Shape
from kernelwright.problems.prototype import Prototype
from kernelwright.problems.state import described

Values = dict[str, Any]
Numbers = dict[str, int | float]


@dataclass(frozen=True)
class Plan:
    """A call for given shapes and numbers: scalars are worked out, tensors stand by name, `fresh` ones are made."""

    fresh: tuple[tuple[str, tuple[int, ...], torch.dtype], ...]
    arguments: tuple[str | ctypes.c_int64 | ctypes.c_double, ...]


class Planner:
    """Makes plans for one header and the function that it describes (None where its prototype cannot be read)."""

    def __init__(self, header: Header, prototype: Prototype | None) -> None:
        self._header, self._prototype = header, prototype

    def plan(self, values: Values) -> Plan:
        """The plan for inputs and parameters by name.

        Raises:
            SignatureError: a tensor does not fit the header, or the header does not fit the function.
        """
        numbers = self._dimensions(values)
        fresh = self._fresh(values, numbers)
        tensors = {name: value.dtype for name, value in values.items() if isinstance(value, torch.Tensor)}
        tensors |= {name: dtype for name, _, dtype in fresh}
        arguments = tuple(
            one.id if isinstance(one, ast.Name) and one.id in tensors else self._scalar(one, values, numbers)
            for _, one in self._header.args
        )
        self._hold_against_prototype(arguments, tensors)
        return Plan(tuple(fresh), arguments)

    def _fresh(self, values: Values, numbers: Numbers) -> list[tuple[str, tuple[int, ...], torch.dtype]]:
        """The outputs that have to be made."""
        fresh = []
        for shape in self._header.outputs.values():
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
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        for shape in self._header.dims.values():
            tensor = self._tensor(values, shape.name, shape.line)
            if shape.dtype and tensor.dtype != getattr(torch, shape.dtype):
                self._header.fail(f"{shape.name} is {described(tensor)}, the source takes {shape.dtype}", shape.line)
            self._bind(shape, tensor, values, numbers)
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
                known = ", ".join(f"{name} = {numbers[name]}" for name in sorted(arithmetic.names(one)))
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
            "cdiv": lambda a, b: -(-a // b),
            "min": min,
            "max": max,
        }
        try:
            return arithmetic.evaluate(one, numbers, functions)
        except (KeyError, TypeError, IndexError, ValueError) as fault:
            there = ", ".join([*numbers, *functions, *(n for n, v in values.items() if isinstance(v, torch.Tensor))])
            return self._header.fail(f"cannot work out {ast.unparse(one)}: {fault}; known here: {there}", line)

    def _size(self, one: ast.expr, values: Values, numbers: Numbers, line: int) -> int:
        size = self._number(one, values, numbers, line)
        if size != size // 1 or not 0 <= size < 2**63:
            self._header.fail(f"{ast.unparse(one)} is {size}, which is not a size", line)
        return int(size)

    def _scalar(self, one: ast.expr, values: Values, numbers: Numbers) -> Any:
        number = self._number(one, values, numbers, self._header.args_line)
        if isinstance(number, float):
            return ctypes.c_double(number)
        if not -(2**63) <= number < 2**63:
            self._header.fail(f"{ast.unparse(one)} is {number}, more than int64_t holds", self._header.args_line)
        return ctypes.c_int64(number)

    def _hold_against_prototype(self, arguments: tuple[Any, ...], tensors: dict[str, torch.dtype]) -> None:
        """The function's own parameters must be what it will be called with, in number and type."""
        if self._prototype is None:
            return
        header, line, parameters = self._header, self._prototype.line, self._prototype.parameters
        if self._prototype.returns != "void":
            header.fail(f"{header.entry} returns {self._prototype.returns}, must return void", line)
        if len(parameters) != len(arguments):
            header.fail(f"{header.entry} has {len(parameters)} parameters, `kw: args` passes {len(arguments)}", line)
        for (text, _), argument, parameter in zip(header.args, arguments, parameters, strict=True):
            if isinstance(argument, str):
                dtype = str(tensors[argument]).removeprefix("torch.")
                if not parameter.takes(dtype):
                    header.fail(f"{text} is a {dtype} tensor, but the parameter is `{parameter.text}`", line)
            elif not parameter.takes_scalar(passed := _c_name(argument)):
                header.fail(f"{text} passes as {passed}, but the parameter is `{parameter.text}`", line)


def _c_name(scalar: Any) -> str:
    return "double" if isinstance(scalar, ctypes.c_double) else "int64_t"
