"""Candidates in C++ for the CPU: compiled once, called through ctypes, which releases the GIL.

Whole numbers and booleans pass as int64_t, floats as double.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch

from kernelwright.core.errors import CandidateError
from kernelwright.problems.compiled import CompiledProgram, check_reads_parameters
from kernelwright.problems.header import Header, parse_header
from kernelwright.problems.plan import InvocationPlanner, ResolvedLaunch
from kernelwright.problems.problem import Candidate, Problem
from kernelwright.problems.prototype import Parameter, find_extern_c_functions, find_prototype
from kernelwright.toolchain.cpp import compile_shared


class EntryPoint:
    """A void function of a shared library; copies and pickles by name, as ctypes functions cannot."""

    def __init__(self, library: str, name: str) -> None:
        self.library, self.name = library, name
        self.call = getattr(ctypes.CDLL(library), name)
        self.call.restype = None

    def __reduce__(self) -> tuple[type[EntryPoint], tuple[str, str]]:
        return EntryPoint, (self.library, self.name)


class CppProgram(CompiledProgram):
    def __init__(self, problem: Problem, header: Header, planner: InvocationPlanner, entry: EntryPoint) -> None:
        super().__init__(problem, header, planner)
        self._entry = entry

    def launch(self, call: ResolvedLaunch, arguments: list[Any]) -> None:
        self._entry.call(
            *(ctypes.c_void_p(one.data_ptr()) if isinstance(one, torch.Tensor) else one for one in arguments)
        )


class CppLoader:
    def load(self, path: Path, name: str, problem: Problem, device: str) -> Candidate:
        if device == "cuda":
            raise CandidateError(f"{path} is C++ for the CPU", where=str(path), next="--device cpu")
        source = path.read_text(encoding="utf-8", errors="replace")
        header = parse_header(source, str(path))
        if len(header.launches) > 1:
            header.fail("a C++ candidate has one entry", header.launches[1].line)
        if name:
            header.launches[0].entry = name
        check_reads_parameters(header, problem)
        entry = _load_entry(source, header)
        planner = InvocationPlanner(header, [find_prototype(source, entry.name)], convert_scalar)
        return Candidate(path.stem, CppProgram(problem, header, planner, entry), str(path), "c++")


def convert_scalar(number: int | float, parameter: Parameter | None) -> Any:
    """int64_t for a whole number, double for another, or why the parameter takes neither."""
    if not isinstance(number, float) and not -(2**63) <= number < 2**63:
        raise OverflowError("more than int64_t holds")
    name = "double" if isinstance(number, float) else "int64_t"
    if parameter and not parameter.accepts_scalar(name):
        return f"passes as {name}, but the parameter is `{parameter.text}`"
    return ctypes.c_double(number) if isinstance(number, float) else ctypes.c_int64(number)


def _load_entry(source: str, header: Header) -> EntryPoint:
    library, (launch,) = compile_shared(source, name=header.path), header.launches
    try:
        return EntryPoint(str(library), launch.entry)
    except AttributeError:
        there = ", ".join(find_extern_c_functions(source)) or "nothing"
        header.fail(f'no extern "C" function {launch.entry}; the source exports {there}', launch.line)
    except OSError as fault:
        raise CandidateError(f"{header.path} compiled but does not load: {fault}", where=header.path) from fault


LOADER = CppLoader()
