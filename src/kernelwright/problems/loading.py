"""Problems and candidates from the targets that people type.

A problem is a file in the KernelBench form (`Model`, `get_inputs`, optionally `get_init_inputs`), or a function with
example inputs: `file.py:function` or `package.module:function`, whose inputs come from `FUNCTION_inputs()` or
`get_inputs()` beside it. A function called like its file needs no colon. `DETERMINISTIC = True` in the file says
that a candidate must give the same bits twice.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelwright.core.errors import ProblemError
from kernelwright.problems.importing import (
    defined_callables,
    find_file,
    get_attribute,
    import_file,
    import_module,
    is_module_target,
    join_names,
    reraise_as,
    split_target,
    wrap_with_reraise,
)
from kernelwright.problems.loaders import find_loader
from kernelwright.problems.problem import MODEL_SEED, Args, Candidate, Problem, one_line_expression, temporary_seed
from kernelwright.problems.scripts import watch_hints

PROBLEM_FORMAT_HINT = "a problem file defines Model and get_inputs(), or a function of the file's name and get_inputs()"


def load_problem(target: str) -> Problem:
    """The problem that a target names; `Model` is constructed under a fixed seed.

    Args:
        target: `file.py`, `file.py:NAME` or `package.module:NAME`.
    Raises:
        NotFoundError: no such file or module, with near matches.
        ProblemError: it does not import, lacks what a problem needs, or does not construct.
    """
    place, name = split_target(target)
    module, path = _import_target(place, name)
    found = _find_program(module, place, name)
    file = path or _file_of(module)
    program, init = _construct(found, module, file)
    owned = program if isinstance(program, torch.nn.Module) else None
    label = name or Path(place).stem
    return Problem(
        name=label,
        program=program,
        make_inputs=_find_input_generator(module, place, name, program, file),
        source=target,
        summary=one_line_expression(program) or _module_summary(module),
        deterministic=getattr(module, "DETERMINISTIC", False) is True,
        module=owned,
        init_inputs=init,
    )


def load_candidate(target: str, problem: Problem, device: str = "cpu") -> Candidate:
    """The candidate that a target names, ready to take the problem's inputs on `device`.

    Args:
        target: `file.py`, `file.py:NAME`, `file.cpp`, or another suffix that `sources.register` knows.
    Raises:
        NotFoundError: no such file, with near matches.
        CandidateError: it does not import; CompileError: it does not compile.
        SignatureError: it takes other arguments or parameters than the reference.
    """
    place, name = split_target(target)
    path = find_file(place)
    return find_loader(path).load(path, name, problem, device)


def _import_target(location: str, name: str) -> tuple[ModuleType, Path | None]:
    if is_module_target(location, name):
        return import_module(location, ProblemError), None
    path = find_file(location)
    if path.suffix != ".py":
        message = (
            f"{location} is not a Python file: the reference is Python, and {path.suffix or 'this'} can be a candidate"
        )
        raise ProblemError(message, where=location, next=PROBLEM_FORMAT_HINT)
    return import_file(path, ProblemError), path


def _file_of(module: ModuleType) -> Path | None:
    return Path(module.__file__) if module.__file__ else None


def _find_program(module: ModuleType, location: str, name: str) -> Any:
    """What the target means in its module: the named object, `Model`, or the function called like the file."""
    if name:
        return get_attribute(module, name, location, ProblemError)
    for one in ("Model", Path(location).stem):
        if callable(getattr(module, one, None)):
            return getattr(module, one)
    own = defined_callables(module)
    with_inputs = [one for one in own if f"{one}_inputs" in own or ("get_inputs" in own and not one.endswith("inputs"))]
    hints = [f"name the program: {location}:{with_inputs[0]}"] if with_inputs else []
    message = f"{location} has no Model and no function {Path(location).stem}; it defines {join_names(own)}"
    raise ProblemError(
        message, where=location, next="\n".join([*hints, *watch_hints(module, location)]) or PROBLEM_FORMAT_HINT
    )


def _construct(found: Any, module: ModuleType, path: Path | None) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The program, and the arguments that its class was constructed with."""
    if not inspect.isclass(found):
        if not callable(found):
            raise ProblemError(f"{found!r} cannot be called", where=str(path), next=PROBLEM_FORMAT_HINT)
        return found, ()
    with reraise_as(path, ProblemError, "does not construct"), temporary_seed(MODEL_SEED):
        init = tuple(module.get_init_inputs()) if hasattr(module, "get_init_inputs") else ()
        program = found(*init)
    if not callable(program):
        raise ProblemError(f"{found.__name__} of {path} cannot be called: it is no nn.Module", where=str(path))
    return program, init


def _module_summary(module: ModuleType) -> str:
    return (module.__doc__ or "").strip().partition("\n")[0]


def _find_input_generator(
    module: ModuleType, location: str, name: str, program: Callable[..., Any], path: Path | None
) -> Callable[[], Args]:
    """The generator of inputs beside a program, as (args, kwargs)."""
    wanted = [f"{name}_inputs", "get_inputs"] if name else ["get_inputs", f"{Path(location).stem}_inputs"]
    generator = next((getattr(module, one) for one in wanted if callable(getattr(module, one, None))), None)
    if generator is None:
        message = f"{location} has no example inputs; it defines {join_names(defined_callables(module))}"
        # Of a script, the function called like the file is what it does, not a program that was meant.
        is_meant = bool(name) or callable(getattr(module, "Model", None))
        hints = [] if name else watch_hints(module, location)
        if is_meant or not hints:
            hints = [*hints, f"add {wanted[0]}(), which returns a list of arguments"]
        raise ProblemError(message, where=location, next="\n".join(hints))
    return wrap_with_reraise(lambda: split_arguments(generator()), path, ProblemError, "raised in its inputs")


def split_arguments(value: Any) -> Args:
    """What an inputs function returned, as (args, kwargs).

    A list or tuple is the positional arguments, a dict the keyword arguments, the pair (list, dict) both; anything
    else is a single argument.
    """
    match value:
        case (list() as args, dict() as kwargs) if isinstance(value, tuple) and all(isinstance(k, str) for k in kwargs):
            return list(args), dict(kwargs)
        case dict():
            return [], dict(value)
        case list() | tuple():
            return list(value), {}
    return [value], {}
