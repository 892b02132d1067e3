"""Plan the call of a compiled candidate for given inputs: evaluate dimensions, outputs and scalars of its header."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.problems import integer_expressions
from kernelwright.problems.header import Header, LaunchDeclaration, TensorDeclaration
from kernelwright.problems.map_limits import find_map_fault
from kernelwright.problems.prototype import Parameter, Prototype
from kernelwright.problems.state import describe_value

NamedValues = dict[str, Any]
NamedNumbers = dict[str, int | float]
ScalarConverter = Callable[[int | float, Parameter | None], Any]
"""Converts a number for the call, or returns a string: the reason why the parameter does not accept it.

Raises:
    OverflowError: no parameter of the language can hold it.
"""


@dataclass(frozen=True)
class ResolvedLaunch:
    """One launch for concrete shapes and numbers: scalars are evaluated, tensors are given by name."""

    entry: str
    arguments: tuple[Any, ...]
    sizes: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class ResolvedMap:
    """A tensor map for a concrete shape: the tensor's name, and the box in all of its dimensions."""

    tensor: str
    box: tuple[int, ...]
    swizzle: int
    line: int


@dataclass(frozen=True)
class InvocationPlan:
    """All launches in order, and the tensors to allocate before them."""

    allocations: tuple[tuple[str, tuple[int, ...], torch.dtype], ...]
    launches: tuple[ResolvedLaunch, ...]
    maps: dict[str, ResolvedMap]


class InvocationPlanner:
    """Makes plans for one header and the functions that it describes.

    Args:
        prototypes: one per launch; None if it cannot be parsed.
        convert_scalar: converts a number for the language.
        machine_constants: numbers of the machine that a header may use.
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
            SignatureError: a tensor does not match the header, or the header does not match a function.
        """
        numbers = self._resolve_dimensions(values)
        allocations = self._resolve_allocations(values, numbers)
        tensors = {name: value.dtype for name, value in values.items() if isinstance(value, torch.Tensor)}
        tensors |= {name: dtype for name, _, dtype in allocations}
        maps = self._resolve_maps(values, numbers, allocations)
        calls = tuple(
            ResolvedLaunch(
                launch.entry,
                self._resolve_arguments(launch, prototype, tensors, values, numbers),
                self._resolve_sizes(launch, values, numbers),
            )
            for launch, prototype in zip(self._header.launches, self._prototypes, strict=True)
        )
        return InvocationPlan(tuple(allocations), calls, maps)

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
        """The outputs and workspaces to allocate."""
        allocations = []
        for shape in (*self._header.outputs.values(), *self._header.workspaces.values()):
            if shape.in_place:
                self._require_tensor(values, shape.name, shape.line)
            elif shape.like:
                template = self._require_tensor(values, shape.like, shape.line)
                allocations.append((shape.name, tuple(template.shape), template.dtype))
            else:
                sizes = tuple(self._evaluate_size(one, values, numbers, shape.line) for one in shape.dims or ())
                allocations.append((shape.name, sizes, getattr(torch, shape.dtype or "")))
        return allocations

    def _resolve_maps(
        self,
        values: NamedValues,
        numbers: NamedNumbers,
        allocations: Sequence[tuple[str, tuple[int, ...], torch.dtype]],
    ) -> dict[str, ResolvedMap]:
        """The tensor maps, checked against the limits of TMA."""
        allocated = {name: torch.empty(shape, dtype=dtype, device="meta") for name, shape, dtype in allocations}
        maps = {}
        for one in self._header.maps.values():
            if one.name in {*values, *numbers, *allocated}:
                self._header.fail(f"map {one.name} has the name of a tensor or number: give it another", one.line)
            tensor = allocated.get(one.tensor)
            if tensor is None:
                tensor = self._require_tensor(values, one.tensor, one.line)
                if one.tensor not in self._header.strided:
                    tensor = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
            inner = tuple(self._evaluate_size(size, values, numbers, one.line) for size in one.box)
            box = (1,) * (tensor.ndim - len(inner)) + inner
            if fault := find_map_fault(tensor, box, one.swizzle):
                self._header.fail(f"map {one.name} of {one.tensor}, {describe_value(tensor)}: {fault}", one.line)
            maps[one.name] = ResolvedMap(one.tensor, box, one.swizzle, one.line)
        return maps

    def _resolve_dimensions(self, values: NamedValues) -> NamedNumbers:
        """Numbers by name: scalar inputs, dimensions bound by the tensors, and `let` expressions."""
        numbers: NamedNumbers = dict(self._machine_constants)
        numbers |= {name: value for name, value in values.items() if isinstance(value, int | float)}
        for shape in self._header.dims.values():
            tensor = self._require_tensor(values, shape.name, shape.line)
            if shape.dtype and tensor.dtype != getattr(torch, shape.dtype):
                self._header.fail(
                    f"{shape.name} is {describe_value(tensor)}, the source expects {shape.dtype}", shape.line
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
        expected = f"[{', '.join(map(ast.unparse, shape.dims))}]"
        if len(shape.dims) != tensor.ndim:
            self._header.fail(f"{shape.name} is {describe_value(tensor)}, the source expects {expected}", shape.line)
        for one, size in zip(shape.dims, tensor.shape, strict=True):
            if isinstance(one, ast.Name) and one.id not in numbers:
                numbers[one.id] = size
            elif self._evaluate(one, values, numbers, shape.line) != size:
                known = ", ".join(
                    f"{name} = {numbers[name]}" for name in sorted(integer_expressions.variable_names(one))
                )
                bindings = f" with {known}" if known else ""
                self._header.fail(
                    f"{shape.name} is {describe_value(tensor)}, the source expects {expected}{bindings}", shape.line
                )

    def _require_tensor(self, values: NamedValues, name: str, line: int) -> torch.Tensor:
        if not isinstance(values.get(name), torch.Tensor):
            names = ", ".join(sorted(name for name, value in values.items() if isinstance(value, torch.Tensor)))
            self._header.fail(f"{name} is not a tensor of the program; its tensors are {names}", line)
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
        except (TypeError, IndexError, ValueError) as error:
            names = ", ".join([*numbers, *functions, *(n for n, v in values.items() if isinstance(v, torch.Tensor))])
            return self._header.fail(f"cannot evaluate {ast.unparse(one)}: {error}; defined names: {names}", line)

    def _evaluate_size(self, one: ast.expr, values: NamedValues, numbers: NamedNumbers, line: int) -> int:
        size = self._evaluate(one, values, numbers, line)
        if size != size // 1 or not 0 <= size < 2**63:
            self._header.fail(f"{ast.unparse(one)} is {size}, not a valid size", line)
        return int(size)

    def _resolve_arguments(
        self,
        launch: LaunchDeclaration,
        prototype: Prototype | None,
        tensors: dict[str, torch.dtype],
        values: NamedValues,
        numbers: NamedNumbers,
    ) -> tuple[Any, ...]:
        """The arguments of a function, checked against its parameters in number and type."""
        parameters = self._require_parameters(launch, prototype)
        arguments: list[Any] = []
        for (text, one), parameter in zip(launch.args, parameters, strict=True):
            if isinstance(one, ast.Name) and one.id in self._header.maps:
                if prototype and parameter and not parameter.is_tensor_map:
                    message = f"{text} is a tensor map, but the parameter is `{parameter.text}`"
                    self._header.fail(message, prototype.line)
                arguments.append(one.id)
                continue
            if isinstance(one, ast.Name) and one.id in tensors:
                dtype = str(tensors[one.id]).removeprefix("torch.")
                if prototype and parameter and not parameter.accepts_tensor(dtype):
                    message = f"{text} is a {dtype} tensor, but the parameter is `{parameter.text}`"
                    self._header.fail(message, prototype.line)
                arguments.append(one.id)
                continue
            number = self._evaluate(one, values, numbers, launch.args_line)
            try:
                converted = self._convert_scalar(number, parameter)
            except OverflowError as error:
                self._header.fail(f"{text} = {number} {error}", launch.args_line)
            if isinstance(converted, str):
                self._header.fail(f"{text} {converted}", prototype.line if prototype else launch.args_line)
            arguments.append(converted)
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
