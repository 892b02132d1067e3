"""What candidates in compiled languages share: a header says how they are called, a plan holds for inputs of one kind.

Tensors pass as pointers. Inputs are made contiguous unless the header says `strided`; outputs come from `empty`. A call
with shapes seen before costs a few microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from kernelwright.core.errors import SignatureError
from kernelwright.problems.header import Header
from kernelwright.problems.plan import InvocationPlan, InvocationPlanner, NamedValues, ResolvedLaunch
from kernelwright.problems.problem import Problem
from kernelwright.problems.signature import argument_names
from kernelwright.problems.state import ReferenceState, describe_value, reference_state, to_identifier

MAX_CACHED_PLANS = 256  # a float argument that changes with every call makes a plan each time


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

    def launch(self, call: ResolvedLaunch, arguments: list[Any]) -> None:
        """Runs one function of the source on tensors and numbers."""
        raise NotImplementedError

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Makes an output; a verification puts fenced memory here for its calls."""
        return torch.empty(shape, dtype=dtype, device=self.device)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        values = self._values(args, kwargs)
        plan = self._plan(values)
        ready = {name: self.empty(shape, dtype) for name, shape, dtype in plan.allocations}
        for call in plan.launches:
            for one in call.arguments:
                if isinstance(one, str) and one not in ready:
                    value = values[one]
                    ready[one] = value if one in self._header.strided else value.contiguous()
            self.launch(call, [ready[one] if isinstance(one, str) else one for one in call.arguments])
        return self._pack_outputs(values, ready)

    def _values(self, args: Any, kwargs: dict[str, Any]) -> NamedValues:
        """Everything that a header can name: parameters, and the leaves of the inputs, which win over them."""
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
    """A weight that the source never receives cannot be right for other weights.

    Raises:
        SignatureError: there is one.
    """
    passed = {name.removeprefix("self_") for name in header.passed_names}
    missing = [
        f"{name} {describe_value(value)}"
        for name, value in reference_state(problem).items()
        if to_identifier(name) not in passed
    ]  # fmt: skip
    if missing:
        message = f"other parameters than the reference: `kw: args` does not pass {', '.join(missing)}"
        header.fail(message, header.launches[0].args_line)


def _flatten_named(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """`xs=(a, b)` is `xs_0` and `xs_1`; `options={"scale": s}` is `options_scale`."""
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
    """What a plan depends on: a tensor's shape, strides, dtype and place, anything else itself with its type."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype, value.device
    return type(value), value
