"""Runs the user's program once and reports its errors as problem errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from kernelwright.core.errors import MemoryLimitError, ProblemError
from kernelwright.sandbox.exceptions import find_location, to_task_error


def run_once(program: Callable[..., Any], inputs: Any) -> None:
    """Run the program and discard its result.

    Raises:
        ProblemError: the program raised.
        MemoryLimitError: the program ran out of memory.
    """
    with reraise_as_problem_error():
        program(*inputs[0], **inputs[1])


@contextlib.contextmanager
def reraise_as_problem_error() -> Iterator[None]:
    """Re-raise exceptions of the block as ProblemError, or as MemoryLimitError."""
    try:
        yield
    except Exception as exc:
        error = to_task_error(exc)
        if isinstance(error, MemoryLimitError):
            raise error from exc
        raise ProblemError(
            f"the program raised {error.message}",
            where=find_location(exc),
            next="run the file on its own first, with the inputs of get_inputs()",
        ) from exc
