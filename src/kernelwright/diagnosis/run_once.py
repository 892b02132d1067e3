"""Runs a person's program once, and lets what goes wrong be told as its doing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from kernelwright.core.errors import MemoryLimitError, ProblemError
from kernelwright.sandbox.exceptions import find_location, to_task_error


def run_once(program: Callable[..., Any], inputs: Any) -> None:
    """Runs the program and forgets what it gave.

    Raises:
        ProblemError: it raised.
        MemoryLimitError: it ran out of memory.
    """
    with reraise_as_problem_error():
        program(*inputs[0], **inputs[1])


@contextlib.contextmanager
def reraise_as_problem_error() -> Iterator[None]:
    """Turns whatever is raised inside into a ProblemError, or into the limit that it met."""
    try:
        yield
    except Exception as fault:
        error = to_task_error(fault)
        if isinstance(error, MemoryLimitError):
            raise error from fault
        raise ProblemError(
            f"the program raised {error.message}",
            where=find_location(fault),
            next="run the file by itself first, with the inputs of get_inputs()",
        ) from fault
