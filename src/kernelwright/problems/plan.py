"""How a compiled candidate is called for given inputs: dimensions, outputs and scalars, worked out from its header."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.problems import integer_expressions
from kernelwright.problems.header import Header, LaunchDeclaration, TensorDeclaration
from kernelwright.problems.prototype import Parameter, Prototype
from kernelwright.problems.state import describe_value

NamedValues = dict[str, Any]
NamedNumbers = dict[str, int | float]
ScalarConverter = Callable[[int | float, Parameter | None], Any]
"""What a language passes for a number, or a string: why the parameter does not take it.

Raises:
    OverflowError: no parameter of the language could take it.
"""


@dataclass(frozen=True)
class ResolvedLaunch:
    """One launch for given shapes and numbers: scalars are worked out, tensors stand by name."""

    entry: str
    arguments: tuple[Any, ...]
    sizes: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class InvocationPlan:
    """All launches in order; `allocations` tensors are made before."""

    allocations: tuple[tuple[str, tuple[int, ...], torch.dtype], ...]
    launches: tuple[ResolvedLaunch, ...]


class InvocationPlanner:
    """Makes plans for one header and the functions that it describes.

    Args:
        prototypes: of each launch; None where it cannot be read.
        convert_scalar: what the language passes for a number.
        machine_constants: numbers of the machine that a header may name.
    """

    def __init__(
        self,
        header: Header,
        prototypes: Sequence[Prototype | None],
        convert_scalar: ScalarConverter,
        machine_constants: Mapping[str, int] | None = None,
    ) -> None:
        self._header, self._prototypes, self._convert_scalar, self._machine_constants = (
            header,
            prototypes,
            convert_scalar,
            dict(machine_constants or {}),
        )

    def plan(self, values: NamedValues) -> InvocationPlan:
        """The plan for inputs and parameters by name.

        Raises:
            SignatureError: a tensor does not fit the header, or the header does not fit a function.
        """
        numbers = self._resolve_dimensions(values)
        fresh = self._resolve_allocations(values, numbers)
        tensors = {name: value.dtype for name, value in values.items() if isinstance(value, torch.Tensor)}
        tensors |= {name: dtype for name, _, dtype in fresh}
        calls = tuple(
            ResolvedLaunch(
                launch.entry,
                self._resolve_arguments(launch, prototype, tensors, values, numbers),
                self._resolve_sizes(launch, values, numbers),
            )
            for launch, prototype in zip(self._header.launches, self._prototypes, strict=True)
        )
        return InvocationPlan(tuple(fresh), calls)

    def _resolve_sizes(
        self, launch: LaunchDeclaration, values: NamedValues, numbers: NamedNumbers
    ) -> dict[str, tuple[int, ...]]:
        return {
            kind: tuple(self._evaluate_size(one, values, numbers, launch.size_lines[kind]) for one in sizes)
            for kind, sizes in launch.launch_sizes.items()
        }

    def _resolve_allocations(
        self, values: NamedValues, numbers: NamedNumbers
    ) -> list[tuple[str, tuple[int, ...], torch.dtype]]:
        """The outputs that have to be made, and what kernels leave for each other."""
        fresh = []
        for shape in (*self._header.outputs.values(), *self._header.workspaces.values()):
            if shape.in_place:
                self._require_tensor(values, shape.name, shape.line)
            elif shape.like:
                model = self._require_tensor(values, shape.like, shape.line)
                fresh.append((shape.name, tuple(model.shape), model.dtype))
            else:
                sizes = tuple(self._evaluate_size(one, values, numbers, shape.line) for one in shape.dims or ())
                fresh.append((shape.name, sizes, getattr(torch, shape.dtype or "")))
        return fresh

    def _resolve_dimensions(self, values: NamedValues) -> NamedNumbers:
        """The numbers by name: scalar inputs, and the dimensions as the tensors at hand give them."""
        numbers: NamedNumbers = dict(self._machine_constants)
        numbers |= {name: value for name, value in values.items() if isinstance(value, int | float)}
        for shape in self._header.dims.values():
            tensor = self._require_tensor(values, shape.name, shape.line)
            if shape.dtype and tensor.dtype != getattr(torch, shape.dtype):
                self._header.fail(
                    f"{shape.name} is {describe_value(tensor)}, the source takes {shape.dtype}", shape.line
                )
            self._bind_dimensions(shape, tensor, values, numbers)
        for name, (one, line) in self._header.named_expressions.items():
            numbers[name] = self._evaluate(one, values, numbers, line)
        return numbers

    def _bind_dimensions(
        self, shape: TensorDeclaration, tensor: torch.Tensor, values: NamedValues, numbers: NamedNumbers
    ) -> None:
        if shape.dims is None:
            return
        wanted = f"[{', '.join(map(ast.unparse, shape.dims))}]"
        if len(shape.dims) != tensor.ndim:
            self._header.fail(f"{shape.name} is {describe_value(tensor)}, the source takes {wanted}", shape.line)
        for one, size in zip(shape.dims, tensor.shape, strict=True):
            if isinstance(one, ast.Name) and one.id not in numbers:
                numbers[one.id] = size
            elif self._evaluate(one, values, numbers, shape.line) != size:
                known = ", ".join(
                    f"{name} = {numbers[name]}" for name in sorted(integer_expressions.variable_names(one))
                )
                told = f" with {known}" if known else ""
                self._header.fail(
                    f"{shape.name} is {describe_value(tensor)}, the source takes {wanted}{told}", shape.line
                )

    def _require_tensor(self, values: NamedValues, name: str, line: int) -> torch.Tensor:
        if not isinstance(values.get(name), torch.Tensor):
            there = ", ".join(sorted(name for name, value in values.items() if isinstance(value, torch.Tensor)))
            self._header.fail(f"{name} is not a tensor of the program; these are: {there}", line)
        return values[name]

    def _evaluate(self, one: ast.expr, values: NamedValues, numbers: NamedNumbers, line: int) -> int | float:
        functions: dict[str, Callable[..., int | float]] = {
            "numel": lambda name: self._require_tensor(values, name, line).numel(),
            "size": lambda name, dim: self._require_tensor(values, name, line).size(dim),
            "stride": lambda name, dim: self._require_tensor(values, name, line).stride(dim),
            **integer_expressions.NUMBER_FUNCTIONS,
        }
        try:
            return integer_expressions.evaluate(one, numbers, functions)
        except (TypeError, IndexError, ValueError) as fault:
            there = ", ".join([*numbers, *functions, *(n for n, v in values.items() if isinstance(v, torch.Tensor))])
            return self._header.fail(f"cannot work out {ast.unparse(one)}: {fault}; known here: {there}", line)

    def _evaluate_size(self, one: ast.expr, values: NamedValues, numbers: NamedNumbers, line: int) -> int:
        size = self._evaluate(one, values, numbers, line)
        if size != size // 1 or not 0 <= size < 2**63:
            self._header.fail(f"{ast.unparse(one)} is {size}, which is not a size", line)
        return int(size)

    def _resolve_arguments(
        self,
        launch: LaunchDeclaration,
        prototype: Prototype | None,
        tensors: dict[str, torch.dtype],
        values: NamedValues,
        numbers: NamedNumbers,
    ) -> tuple[Any, ...]:
        """What a function is called with, held against its own parameters in number and type."""
        parameters = self._require_parameters(launch, prototype)
        arguments: list[Any] = []
        for (text, one), parameter in zip(launch.args, parameters, strict=True):
            if isinstance(one, ast.Name) and one.id in tensors:
                dtype = str(tensors[one.id]).removeprefix("torch.")
                if prototype and parameter and not parameter.accepts_tensor(dtype):
                    message = f"{text} is a {dtype} tensor, but the parameter is `{parameter.text}`"
                    self._header.fail(message, prototype.line)
                arguments.append(one.id)
                continue
            number = self._evaluate(one, values, numbers, launch.args_line)
            try:
                passed = self._convert_scalar(number, parameter)
            except OverflowError as fault:
                self._header.fail(f"{text} is {number}, {fault}", launch.args_line)
            if isinstance(passed, str):
                self._header.fail(f"{text} {passed}", prototype.line if prototype else launch.args_line)
            arguments.append(passed)
        return tuple(arguments)

    def _require_parameters(self, launch: LaunchDeclaration, prototype: Prototype | None) -> Sequence[Parameter | None]:
        if prototype is None:
            return [None] * len(launch.args)
        fail, line, count = self._header.fail, prototype.line, len(prototype.parameters)
        if prototype.returns != "void":
            fail(f"{launch.entry} returns {prototype.returns}, must return void", line)
        if count != len(launch.args):
            fail(f"{launch.entry} has {count} parameters, `kw: args` passes {len(launch.args)}", line)
        return prototype.parameters
