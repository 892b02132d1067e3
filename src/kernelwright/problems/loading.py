"""Load problems and candidates from command-line targets.

A problem is a file in the KernelBench form (`Model`, `get_inputs`, optionally `get_init_inputs`), or a function with
example inputs: `file.py:function` or `package.module:function`, with inputs from `FUNCTION_inputs()` or `get_inputs()`
of the same module. A function with the name of its file needs no colon. `DETERMINISTIC = True` in the file requires
candidates to be bitwise reproducible.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import GeneratorType, ModuleType
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from kernelwright.core.errors import ProblemError
from kernelwright.core.pytree import register_types
from kernelwright.problems.candidate_loaders import find_loader
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
from kernelwright.problems.problem import MODEL_SEED, Args, Candidate, Problem, one_line_expression, temporary_seed
from kernelwright.problems.scripts import watch_hints

PROBLEM_FORMAT_HINT = "a problem file defines Model and get_inputs(), or a function of the file's name and get_inputs()"


def load_problem(target: str) -> Problem:
    """Load the problem that a target names; `Model` is constructed under a fixed seed.

    Args:
        target: `file.py`, `file.py:NAME` or `package.module:NAME`.
    Raises:
        NotFoundError: no such file or module; suggests similar names.
        ProblemError: it does not import, lacks a part of a problem, or cannot be constructed.
    """
    location, name = split_target(target)
    module, path = _import_target(location, name)
    register_types(vars(module).values())
    target_object = _find_program(module, location, name)
    file = path or _file_of(module)
    program, init = _construct(target_object, module, file)
    owned = program if isinstance(program, torch.nn.Module) else None
    label = name or Path(location).stem
    make_inputs = _find_input_generator(module, location, name, program, file)
    with reraise_as(file, ProblemError, "does not initialise its lazy modules"):
        _initialize_lazy_modules(owned, make_inputs)
    return Problem(
        name=label,
        program=program,
        make_inputs=make_inputs,
        source=target,
        summary=one_line_expression(program) or _module_summary(module),
        deterministic=getattr(module, "DETERMINISTIC", False) is True,
        module=owned,
        init_inputs=init,
    )


def load_candidate(target: str, problem: Problem, device: str = "cpu") -> Candidate:
    """Load the candidate that a target names, ready to accept the problem's inputs on `device`.

    Args:
        target: `file.py`, `file.py:NAME`, `file.cpp`, or another suffix that `register_loader` added.
    Raises:
        NotFoundError: no such file; suggests similar names.
        CandidateError: it does not import; CompileError: it does not compile.
        SignatureError: it has other arguments or parameters than the reference.
    """
    location, name = split_target(target)
    path = find_file(location)
    return find_loader(path).load(path, name, problem, device)


def _import_target(location: str, name: str) -> tuple[ModuleType, Path | None]:
    if is_module_target(location, name):
        return import_module(location, ProblemError), None
    path = find_file(location)
    if path.suffix != ".py":
        message = f"{location} is not a Python file; {path.suffix or 'other'} files can only be candidates"
        raise ProblemError(message, where=location, next=PROBLEM_FORMAT_HINT)
    return import_file(path, ProblemError), path


def _file_of(module: ModuleType) -> Path | None:
    return Path(module.__file__) if module.__file__ else None


def _find_program(module: ModuleType, location: str, name: str) -> Any:
    """The program that the target refers to: the named object, `Model`, or the function with the file's name."""
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


def _construct(target_object: Any, module: ModuleType, path: Path | None) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The program, and the constructor arguments if it is a class."""
    if not inspect.isclass(target_object):
        if not callable(target_object):
            raise ProblemError(f"{target_object!r} is not callable", where=str(path), next=PROBLEM_FORMAT_HINT)
        return target_object, ()
    with reraise_as(path, ProblemError, "does not construct"), temporary_seed(MODEL_SEED):
        init = tuple(module.get_init_inputs()) if hasattr(module, "get_init_inputs") else ()
        program = target_object(*init)
    if not callable(program):
        raise ProblemError(f"{target_object.__name__} in {path} is not callable: not an nn.Module", where=str(path))
    return program, init


def _initialize_lazy_modules(program: Any, make_inputs: Callable[[], Args]) -> None:
    """Call a module with lazy parameters once: they have shapes only then."""
    if not isinstance(program, torch.nn.Module) or not any(map(is_lazy, program.state_dict().values())):
        return
    with temporary_seed(MODEL_SEED), torch.no_grad():
        args, kwargs = make_inputs()
        program(*args, **kwargs)


def _module_summary(module: ModuleType) -> str:
    return (module.__doc__ or "").strip().partition("\n")[0]


def _find_input_generator(
    module: ModuleType, location: str, name: str, program: Callable[..., Any], path: Path | None
) -> Callable[[], Args]:
    """The input generator in a program's module, returning (args, kwargs)."""
    generator_names = [f"{name}_inputs", "get_inputs"] if name else ["get_inputs", f"{Path(location).stem}_inputs"]
    generator = next((getattr(module, one) for one in generator_names if callable(getattr(module, one, None))), None)
    if generator is None:
        message = f"{location} has no example inputs; it defines {join_names(defined_callables(module))}"
        # In a script, a function with the file's name is its main function, not a program to be measured.
        is_meant = bool(name) or callable(getattr(module, "Model", None))
        hints = [] if name else watch_hints(module, location)
        if is_meant or not hints:
            hints = [*hints, f"add {generator_names[0]}(), which returns a list of arguments"]
        raise ProblemError(message, where=location, next="\n".join(hints))
    return wrap_with_reraise(lambda: split_arguments(generator()), path, ProblemError, "raised in its inputs")


def split_arguments(value: Any) -> Args:
    """Split the result of an inputs function into (args, kwargs).

    A list, tuple or generator holds positional arguments, a dict keyword arguments, a pair (list, dict) both; any other
    value is a single argument.
    """
    match value:
        case GeneratorType():
            return list(value), {}
        case (list() as args, dict() as kwargs) if isinstance(value, tuple) and all(isinstance(k, str) for k in kwargs):
            return list(args), dict(kwargs)
        case dict():
            return [], dict(value)
        case list() | tuple():
            return list(value), {}
    return [value], {}
