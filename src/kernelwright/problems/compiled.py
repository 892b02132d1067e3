"""Shared part of candidates in compiled languages: a header describes the call, a plan is cached for similar inputs.

Tensors are passed as pointers. Inputs are made contiguous unless the header lists them as `strided`; outputs come from
`empty`. A call with known shapes has a few microseconds of overhead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from kernelwright.core.errors import SignatureError
from kernelwright.problems.header import Header
from kernelwright.problems.plan import InvocationPlan, InvocationPlanner, NamedValues, ResolvedLaunch, ResolvedMap
from kernelwright.problems.problem import Problem
from kernelwright.problems.signature import argument_names
from kernelwright.problems.state import ReferenceState, describe_value, reference_state, to_identifier
from kernelwright.toolchain.cuda.driver import MAP_PITCH_BYTES

MAX_CACHED_PLANS = 256  # a float argument with a different value in every call creates a plan each time


class CompiledProgram(ReferenceState):
    """The program of a compiled candidate; holds the reference's parameters by name.

    Raises (on construction for the example inputs, later for others):
        SignatureError: an input does not fit the header, or the header does not fit the function.
    """

    device = "cpu"

    def __init__(self, problem: Problem, header: Header, planner: InvocationPlanner) -> None:
        super().__init__(problem)
        self._header, self._planner = header, planner
        self._positional = argument_names(problem)
        self._reference_values = {
            f"self_{name}": value for name, value in self.tensors_by_name().items()
        } | self.tensors_by_name()
        self._plans: dict[Any, InvocationPlan] = {}
        args, kwargs = problem.meta_inputs
        self._planner.plan(self._values(args, kwargs))

    @property
    def path(self) -> str:
        """The source file."""
        return self._header.path

    def launch(self, call: ResolvedLaunch, arguments: list[Any]) -> None:
        """Run one function of the source on tensors and numbers."""
        raise NotImplementedError

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Allocate an output; a verification replaces this with memory guarded by redzones."""
        return torch.empty(shape, dtype=dtype, device=self.device)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run all launches on the inputs and return the outputs in the form that the header declares."""
        values = self._values(args, kwargs)
        plan = self._plan(values)
        prepared: NamedValues = {name: self.empty(shape, dtype) for name, shape, dtype in plan.allocations}
        for call in plan.launches:
            for arg in call.arguments:
                if isinstance(arg, str) and arg not in prepared:
                    self._prepare(arg, plan, values, prepared)
            self.launch(call, [prepared[arg] if isinstance(arg, str) else arg for arg in call.arguments])
        return self._pack_outputs(values, prepared)

    def encode_map(self, planned: ResolvedMap, tensor: torch.Tensor) -> Any:
        """The tensor map of an argument, in the form that `launch` takes."""
        raise NotImplementedError

    def _prepare(self, name: str, plan: InvocationPlan, values: NamedValues, prepared: NamedValues) -> None:
        """Add an argument to those prepared: a tensor of the inputs, or a tensor map and its tensor."""
        if planned := plan.maps.get(name):
            if planned.tensor not in prepared:
                self._prepare(planned.tensor, plan, values, prepared)
            if prepared[planned.tensor].data_ptr() % MAP_PITCH_BYTES and planned.tensor not in self._header.strided:
                prepared[planned.tensor] = prepared[planned.tensor].clone()
            prepared[name] = self.encode_map(planned, prepared[planned.tensor])
        else:
            value = values[name]
            prepared[name] = value if name in self._header.strided else value.contiguous()

    def _values(self, args: Any, kwargs: dict[str, Any]) -> NamedValues:
        """Everything that a header can name: parameters, and the leaves of the inputs, which take precedence."""
        values = dict(self._reference_values)
        for name, value in zip(self._positional, args, strict=True):
            values.update(_flatten_named(name, value))
        for name, value in kwargs.items():
            values.update(_flatten_named(name, value))
        return values

    def _plan(self, values: NamedValues) -> InvocationPlan:
        key = (*values, *map(_plan_key, values.values()))
        plan = self._plans.get(key)
        if plan is None:
            self._require_device(values)
            if len(self._plans) >= MAX_CACHED_PLANS:
                self._plans.clear()
            plan = self._plans[key] = self._planner.plan(values)
        return plan

    def _require_device(self, values: NamedValues) -> None:
        for name, value in values.items():
            if isinstance(value, torch.Tensor) and value.device.type != self.device:
                message = f"{name} is on {value.device}; this candidate runs on {self.device}"
                raise SignatureError(message, where=self._header.path)

    def _pack_outputs(self, values: NamedValues, tensors: dict[str, torch.Tensor]) -> Any:
        results: NamedValues = {}
        for shape in self._header.outputs.values():
            if shape.in_place and tensors[shape.name] is not values[shape.name]:
                values[shape.name].copy_(tensors[shape.name])
            results[shape.name] = values[shape.name] if shape.in_place else tensors[shape.name]
        match self._header.returns:
            case "none":
                return None
            case "dict":
                return results
            case "list":
                return list(results.values())
            case "tuple":
                return tuple(results.values())
        return tuple(results.values()) if len(results) > 1 else next(iter(results.values()))


def check_reads_parameters(header: Header, problem: Problem) -> None:
    """Check that the source receives every parameter: a result that ignores a weight is wrong for other weights.

    Raises:
        SignatureError: a parameter is not passed.
    """
    passed_names = {name.removeprefix("self_") for name in header.passed_names}
    missing = [
        f"{name} {describe_value(value)}"
        for name, value in reference_state(problem).items()
        if to_identifier(name) not in passed_names
    ]  # fmt: skip
    if missing:
        message = f"other parameters than the reference: `kw: args` does not pass {', '.join(missing)}"
        header.fail(message, header.launches[0].args_line)


def _flatten_named(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Name nested values: `xs=(a, b)` is `xs_0` and `xs_1`; `options={"scale": s}` is `options_scale`."""
    match value:
        case tuple() | list():
            for i, one in enumerate(value):
                yield from _flatten_named(f"{name}_{i}", one)
        case dict():
            for key, one in value.items():
                yield from _flatten_named(f"{name}_{key}", one)
        case _:
            yield name, value


def _plan_key(value: Any) -> Any:
    """What a plan depends on: a tensor's shape, strides, dtype and device; any other value itself with its type."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype, value.device
    return type(value), value
