"""Candidates in C++ for the CPU: compiled once, called through ctypes, which releases the GIL.

Tensors pass as pointers, whole numbers and booleans as int64_t, floats as double. Inputs are made contiguous unless
the header says `strided`; outputs come from `torch.empty`. A call with shapes seen before costs a few microseconds.
"""

from __future__ import annotations

import ast
import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from kernelwright.core.errors import CandidateError, SignatureError
from kernelwright.problems.header import Header, parse_header
from kernelwright.problems.plan import Plan, Planner, Values
from kernelwright.problems.problem import Candidate, Problem
from kernelwright.problems.prototype import Prototype, exported, find_prototype
from kernelwright.problems.signature import argument_names
from kernelwright.problems.state import StateHolder, described, identifier, reference_state
from kernelwright.toolchain.cpp import compile_shared

PLANS_KEPT = 256  # a float argument that changes with every call makes a plan each time


class Entry:
    """A void function of a shared library; copies and pickles by name, as ctypes functions cannot."""

    def __init__(self, library: str, name: str) -> None:
        self.library, self.name = library, name
        self.call = getattr(ctypes.CDLL(library), name)
        self.call.restype = None

    def __reduce__(self) -> tuple[type[Entry], tuple[str, str]]:
        return Entry, (self.library, self.name)


def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


class CppProgram(StateHolder):
    """The program of a C++ candidate; holds the reference's parameters by name.

    Raises (on construction for the example inputs, later for others):
        SignatureError: an input does not fit the header, or the header does not fit the function.
    """

    empty: Callable[[tuple[int, ...], torch.dtype], torch.Tensor] = staticmethod(_empty)
    """Makes an output; a verification puts fenced memory here for its calls."""

    def __init__(self, problem: Problem, header: Header, entry: Entry, prototype: Prototype | None) -> None:
        super().__init__(problem)
        self._header, self._entry, self._planner = header, entry, Planner(header, prototype)
        self._positional = argument_names(problem)
        self._own = {f"self_{name}": value for name, value in self.state().items()} | self.state()
        self._plans: dict[Any, Plan] = {}
        args, kwargs = problem.example
        self._planner.plan(self._values(args, kwargs))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        values = self._values(args, kwargs)
        plan = self._plan(values)
        ready = {name: self.empty(shape, dtype) for name, shape, dtype in plan.fresh}
        for one in plan.arguments:
            if isinstance(one, str) and one not in ready:
                value = values[one]
                ready[one] = value if one in self._header.strided else value.contiguous()
        self._entry.call(*(_pointer(ready[one]) if isinstance(one, str) else one for one in plan.arguments))
        return self._returned(values, ready)

    def _values(self, args: Any, kwargs: dict[str, Any]) -> Values:
        """Everything that a header can name: parameters, and the leaves of the inputs, which win over them."""
        values = dict(self._own)
        for name, value in zip(self._positional, args, strict=True):
            values.update(_leaves(name, value))
        for name, value in kwargs.items():
            values.update(_leaves(name, value))
        return values

    def _plan(self, values: Values) -> Plan:
        key = (*values, *map(_trait, values.values()))
        plan = self._plans.get(key)
        if plan is None:
            self._require_cpu(values)
            if len(self._plans) >= PLANS_KEPT:
                self._plans.clear()
            plan = self._plans[key] = self._planner.plan(values)
        return plan

    def _require_cpu(self, values: Values) -> None:
        for name, value in values.items():
            if isinstance(value, torch.Tensor) and value.device.type != "cpu":
                raise SignatureError(f"{name} is on {value.device}; C++ runs on the CPU", where=self._header.path)

    def _returned(self, values: Values, ready: dict[str, torch.Tensor]) -> Any:
        results: Values = {}
        for shape in self._header.outputs.values():
            if shape.in_place and ready[shape.name] is not values[shape.name]:
                values[shape.name].copy_(ready[shape.name])
            results[shape.name] = values[shape.name] if shape.in_place else ready[shape.name]
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


class CppLoader:
    def load(self, path: Path, name: str, problem: Problem, device: str) -> Candidate:
        if device == "cuda":
            raise CandidateError(f"{path} is C++ for the CPU", where=str(path), next="run it with --device cpu")
        source = path.read_text(encoding="utf-8", errors="replace")
        header = parse_header(source, str(path))
        if name:
            header.entry = name
        _check_reads_parameters(header, problem)
        entry = _entry(source, header)
        program = CppProgram(problem, header, entry, find_prototype(source, header.entry))
        return Candidate(path.stem, program, str(path), "c++")


def _entry(source: str, header: Header) -> Entry:
    library = compile_shared(source, name=header.path)
    try:
        return Entry(str(library), header.entry)
    except AttributeError:
        there = ", ".join(exported(source)) or "nothing"
        header.fail(f'no extern "C" function {header.entry}; the source exports {there}', header.entry_line)
    except OSError as fault:
        raise CandidateError(f"{header.path} compiled but does not load: {fault}", where=header.path) from fault


def _check_reads_parameters(header: Header, problem: Problem) -> None:
    """A weight that the source never receives cannot be right for other weights."""
    passed = {one.id.removeprefix("self_") for _, one in header.args if isinstance(one, ast.Name)}
    missing = [
        f"{name} {described(value)}"
        for name, value in reference_state(problem).items()
        if identifier(name) not in passed
    ]  # fmt: skip
    if missing:
        message = f"other parameters than the reference: `kw: args` does not pass {', '.join(missing)}"
        header.fail(message, header.args_line)


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """`xs=(a, b)` is `xs_0` and `xs_1`; `options={"scale": s}` is `options_scale`."""
    match value:
        case tuple() | list():
            for i, one in enumerate(value):
                yield from _leaves(f"{name}_{i}", one)
        case dict():
            for key, one in value.items():
                yield from _leaves(f"{name}_{key}", one)
        case _:
            yield name, value


def _trait(value: Any) -> Any:
    """What a plan depends on: a tensor's shape, strides, dtype and place, anything else itself with its type."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype, value.device
    return type(value), value


def _pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


LOADER = CppLoader()
