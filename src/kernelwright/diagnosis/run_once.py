"""Runs a person's program once, and lets what goes wrong be told as its doing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from kernelwright.core.errors import MemoryLimitError, ProblemError
from kernelwright.sandbox.exceptions import place, task_error


def run_once(program: Callable[..., Any], inputs: Any) -> None:
    """Runs the program and forgets what it gave.

    Raises:
        ProblemError: it raised.
        MemoryLimitError: it ran out of memory.
    """
    with blaming_the_program():
        program(*inputs[0], **inputs[1])


@contextlib.contextmanager
def blaming_the_program() -> Iterator[None]:
    """Turns whatever is raised inside into a ProblemError, or into the limit that it met."""
    try:
        yield
    except Exception as fault:
        error = task_error(fault)
        if isinstance(error, MemoryLimitError):
            raise error from fault
        raise ProblemError(
            f"the program raised {error.message}",
            where=place(fault),
            next="run the file by itself first, with the inputs of get_inputs()",
        ) from fault
