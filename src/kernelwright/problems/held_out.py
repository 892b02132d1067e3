"""Held-out inputs of other shapes, which a problem's file declares with `get_held_out_inputs()`.

Only verification uses them; timing uses the problem's own inputs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from kernelwright.core.errors import ProblemError
from kernelwright.problems.importing import split_target, wrap_with_reraise
from kernelwright.problems.loading import split_arguments
from kernelwright.problems.problem import Args, Problem

GENERATOR_NAME = "get_held_out_inputs"


def declares_held_out_inputs(problem: Problem) -> bool:
    """Whether a problem declares inputs of other shapes."""
    return hasattr(_find_module(problem), GENERATOR_NAME)


def held_out_inputs(problem: Problem) -> list[Args]:
    """New inputs of other shapes, sampled from torch's current random state; empty if the problem declares none.

    Raises:
        ProblemError: the generator raises, or does not return a list.
    """
    module = _find_module(problem)
    generator = getattr(module, GENERATOR_NAME, None)
    if module is None or generator is None:
        return []
    path = Path(module.__file__) if module.__file__ else None
    input_sets = wrap_with_reraise(generator, path, ProblemError, f"raised in {GENERATOR_NAME}()")()
    if not isinstance(input_sets, (list, tuple)):
        message = f"{GENERATOR_NAME}() returned a {type(input_sets).__name__}, not a list"
        raise ProblemError(message, where=str(path), next="return a list, each entry as get_inputs() returns it")
    return [split_arguments(inputs) for inputs in input_sets]


def _find_module(problem: Problem) -> ModuleType | None:
    """The module that the problem was loaded from; None for in-process objects."""
    if problem.source is None:
        return None
    location, _ = split_target(problem.source)
    file = str(Path(location).expanduser().absolute())
    loaded = list(sys.modules.values())
    by_file = [module for module in loaded if getattr(module, "__dict__", {}).get("__file__") == file]
    return by_file[-1] if by_file else sys.modules.get(location)  # the first may be a script that is its own problem
