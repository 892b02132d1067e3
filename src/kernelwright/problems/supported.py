"""Programs that can be optimised and verified: dense tensors in their inputs and state, a class or function by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelwright.core.errors import ProblemError
from kernelwright.problems.problem import Args, Problem

DENSE_HINT = "build it inside the program, from dense tensors"
NESTED_HINT = "pass tensors in tuples, lists, dicts, named tuples or dataclasses of the file"

FUNCTION_PACKAGES = ("builtins", "functools", "torch")
"""Where the types of functions, of partial ones and of operators are defined."""


def require_supported(problem: Problem, inputs: Args) -> None:
    """Check what a program is, and its inputs and state.

    Raises:
        ProblemError: it is an object that is no module, or a tensor is sparse, nested or of a subclass, or hidden in
            an object.
    """
    program = problem.program
    name, package = type(program).__name__, type(program).__module__.partition(".")[0]
    if problem.module is None and package not in FUNCTION_PACKAGES:
        raise ProblemError(f"{name} is not an nn.Module", next=f"derive {name} from torch.nn.Module, or use a function")
    for path, leaf in pytree.tree_flatten_with_path(inputs)[0]:
        if kind := _unsupported_kind(leaf):
            raise ProblemError(f"input {_input_name(path)} is {kind}", next=DENSE_HINT)
        if not isinstance(leaf, torch.Tensor) and any(isinstance(one, torch.Tensor) for one in _attributes(leaf)):
            message = f"input {_input_name(path)} is a {type(leaf).__name__}, whose tensors are not found"
            raise ProblemError(message, next=NESTED_HINT)
    for name, value in _named_state(problem.module):
        if kind := _unsupported_kind(value):
            raise ProblemError(f"{name} is {kind}", next=DENSE_HINT)


def _unsupported_kind(value: Any) -> str:
    """What is unsupported about a value that is a tensor, or an empty string."""
    if not isinstance(value, torch.Tensor):
        return ""
    if value.is_nested:
        return "a nested tensor"
    if value.layout != torch.strided:
        return f"a tensor of layout {str(value.layout).removeprefix('torch.')}"
    if type(value) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return f"a {type(value).__name__}, a subclass of torch.Tensor"
    return ""


def _attributes(leaf: Any) -> list[Any]:
    if dataclasses.is_dataclass(leaf):
        return [getattr(leaf, one.name, None) for one in dataclasses.fields(leaf)]
    return list(getattr(leaf, "__dict__", {}).values())


def _named_state(module: torch.nn.Module | None) -> Iterator[tuple[str, torch.Tensor]]:
    if module is not None:
        yield from ((f"parameter {name}", value) for name, value in module.named_parameters())
        yield from ((f"buffer {name}", value) for name, value in module.named_buffers())


def _input_name(path: Any) -> str:
    """`0` or `name` and the path inside it, of a path in (args, kwargs)."""
    first = path[1]
    return f"{getattr(first, 'idx', getattr(first, 'key', first))}{pytree.keystr(path[2:])}"
