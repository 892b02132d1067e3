"""Candidates in C++ for the CPU: compiled once, called through ctypes, which releases the GIL.

Integers and booleans are passed as int64_t, floats as double.
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
    """A void function of a shared library; can be copied and pickled by name, unlike ctypes functions."""

    def __init__(self, library: str, name: str) -> None:
        self.library, self.name = library, name
        self.call = getattr(ctypes.CDLL(library), name)
        self.call.restype = None

    def __reduce__(self) -> tuple[type[EntryPoint], tuple[str, str]]:
        return EntryPoint, (self.library, self.name)


class CppProgram(CompiledProgram):
    """The program of a C++ candidate."""

    def __init__(self, problem: Problem, header: Header, planner: InvocationPlanner, entry: EntryPoint) -> None:
        super().__init__(problem, header, planner)
        self._entry = entry

    def launch(self, call: ResolvedLaunch, arguments: list[Any]) -> None:
        """Call the function, with tensors as pointers."""
        self._entry.call(
            *(ctypes.c_void_p(one.data_ptr()) if isinstance(one, torch.Tensor) else one for one in arguments)
        )


class CppLoader:
    """Compiles `.cpp` candidates."""

    def load(self, path: Path, name: str, problem: Problem, device: str) -> Candidate:
        """Compile the file and check its header; see `SourceLoader.load`."""
        if device == "cuda":
            raise CandidateError(f"{path} is C++ for the CPU, not for {device}", where=str(path), next="--device cpu")
        source = path.read_text(encoding="utf-8", errors="replace")
        header = parse_header(source, str(path))
        if len(header.launches) > 1:
            header.fail("a C++ candidate must have exactly one entry", header.launches[1].line)
        if name:
            header.launches[0].entry = name
        for one in header.maps.values():
            header.fail("`kw: map` is for CUDA C++: there is no TMA on the CPU", one.line)
        check_reads_parameters(header, problem)
        entry = _load_entry(source, header)
        planner = InvocationPlanner(header, [find_prototype(source, entry.name)], convert_scalar)
        return Candidate(path.stem, CppProgram(problem, header, planner, entry), str(path), "c++")


def convert_scalar(number: int | float, parameter: Parameter | None) -> Any:
    """The number as int64_t or double, or a string with the reason why the parameter does not accept it."""
    if not isinstance(number, float) and not -(2**63) <= number < 2**63:
        raise OverflowError("does not fit in int64_t")
    name = "double" if isinstance(number, float) else "int64_t"
    if parameter and not parameter.accepts_scalar(name):
        return f"is passed as {name}, but the parameter is `{parameter.text}`"
    return ctypes.c_double(number) if isinstance(number, float) else ctypes.c_int64(number)


def _load_entry(source: str, header: Header) -> EntryPoint:
    library, (launch,) = compile_shared(source, name=header.path), header.launches
    try:
        return EntryPoint(str(library), launch.entry)
    except AttributeError:
        exported = ", ".join(find_extern_c_functions(source)) or "nothing"
        header.fail(f'no extern "C" function {launch.entry}; the source exports {exported}', launch.line)
    except OSError as error:
        raise CandidateError(f"{header.path} compiled but does not load: {error}", where=header.path) from error


LOADER = CppLoader()
