"""Check before a run that a candidate accepts the problem's inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch

from kernelwright.core.errors import SignatureError
from kernelwright.problems.problem import Args, Problem
from kernelwright.problems.state import describe_value


def get_signature(program: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of a function or of a module's forward; None if Python cannot determine it."""
    try:
        return inspect.signature(program.forward if isinstance(program, torch.nn.Module) else program)
    except (TypeError, ValueError):
        return None


def is_wrapped(program: Callable[..., Any]) -> bool:
    """Whether a function, or a module's forward, is a wrapper that takes every argument of what it calls by keyword."""
    function = program.forward if isinstance(program, torch.nn.Module) else program
    signature = get_signature(program) if hasattr(function, "__wrapped__") else None
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
    return signature is not None and all(one.kind not in by_position for one in signature.parameters.values())


def check_call(program: Callable[..., Any], args: Args, where: str, parameters: Iterable[str] = ()) -> None:
    """Check a candidate's signature against the problem's inputs.

    Args:
        parameters: names of the reference's parameters that are passed as keyword arguments.
    Raises:
        SignatureError: the call would fail.
    """
    signature = get_signature(program)
    if signature is None:
        return
    try:
        signature.bind(*args[0], **args[1], **dict.fromkeys(parameters))
    except TypeError as error:
        arguments = [describe_value(value) for value in args[0]]
        arguments += [f"{name}={describe_value(value)}" for name, value in args[1].items()]
        arguments += [f"{name}=parameter" for name in parameters]
        message = f"takes {signature}, but is called with ({', '.join(arguments)}): {error}"
        raise SignatureError(message, where=where, next="use the signature of the reference") from error


def argument_names(problem: Problem) -> list[str]:
    """Names of the positional inputs, from the reference's signature; `arg0`, `arg1` if it has none."""
    signature, count = get_signature(problem.program), len(problem.meta_inputs[0])
    names: list[str] = []
    for parameter in signature.parameters.values() if signature else ():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{i}" for i in range(count - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return [*names, *(f"arg{i}" for i in range(len(names), count))][:count]
