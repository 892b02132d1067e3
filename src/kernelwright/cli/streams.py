"""Standard streams that the reader closes early, as `head` does, or that are not open."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


def tolerate_closed_streams() -> None:
    """Discard output to a closed pipe, and open /dev/null for a missing stream.

    The exit code then depends on the result alone, not on how much of it was read.
    """
    # The next socket or file would take over the number of a missing descriptor and be written to.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdout, sys.stderr = _tolerate_closed(sys.stdout, 1), _tolerate_closed(sys.stderr, 2)


class _ClosedPipeTolerant(io.FileIO):
    def write(self, data: Any, /) -> int | None:
        try:
            return super().write(data)
        except BrokenPipeError:
            return len(data)


def _tolerate_closed(stream: Any, number: int) -> Any:
    """The same stream over the same descriptor; any other stream, as in a test, is unchanged."""
    if stream is None:
        return io.TextIOWrapper(io.BufferedWriter(_ClosedPipeTolerant(number, "w", closefd=False)), encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper) or not _wraps_descriptor(stream, number):
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_ClosedPipeTolerant(number, "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _wraps_descriptor(stream: Any, number: int) -> bool:
    try:
        return stream.fileno() == number
    except (OSError, ValueError):
        return False
