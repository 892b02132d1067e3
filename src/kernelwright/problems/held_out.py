"""The inputs of other shapes that a problem's file declares beside its own, by `get_held_out_inputs()`.

Only who judges asks for them: what a problem is measured with are its own.
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


def held_out_inputs(problem: Problem) -> list[Args]:
    """New inputs of other shapes, drawn from torch's current random state; none where the problem declares none.

    Raises:
        ProblemError: their generator raises, or returns no list.
    """
    module = _find_module(problem)
    generator = getattr(module, GENERATOR_NAME, None)
    if module is None or generator is None:
        return []
    path = Path(module.__file__) if module.__file__ else None
    found = wrap_with_reraise(generator, path, ProblemError, f"raised in {GENERATOR_NAME}()")()
    if not isinstance(found, (list, tuple)):
        message = f"{GENERATOR_NAME}() returned a {type(found).__name__}, not a list"
        raise ProblemError(message, where=str(path), next="return a list, each entry as get_inputs() returns it")
    return [split_arguments(one) for one in found]


def _find_module(problem: Problem) -> ModuleType | None:
    """That which the problem was loaded from; None for live objects."""
    if problem.source is None:
        return None
    place, _ = split_target(problem.source)
    file = str(Path(place).expanduser().absolute())
    loaded = list(sys.modules.values())
    by_file = [one for one in loaded if getattr(one, "__dict__", {}).get("__file__") == file]
    return by_file[-1] if by_file else sys.modules.get(place)  # the first may be a script that is its own problem
