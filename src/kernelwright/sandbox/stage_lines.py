"""Stages as plain lines for a log: `[ 12 s] region_0: choice 3 of 12`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TextIO

LINE_INTERVAL_S = 2.0
"""At the start, and between two lines about the same major stage."""
HEARTBEAT_S = 15.0
_COUNTER = re.compile(r"\d+ of \d+")


class StageLines:
    """Writes a line when a major stage begins, at most one every `LINE_INTERVAL_S` within it, and one every
    `HEARTBEAT_S`.

    A run that ends within `LINE_INTERVAL_S` writes nothing. A reader that closes the stream ends the lines, not the
    run.

    Args:
        stream: where the lines go.
        clock: seconds since any fixed moment.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._start = self._written = clock()
        self._what, self._is_new, self._seen = "starting", True, {""}

    def stage(self, what: str) -> None:
        """`what` begins now."""
        self._is_new |= what != self._what
        self._what = what
        self.tick()

    def tick(self) -> None:
        """Writes the line that is due, if any; to be called a few times a second."""
        now = self._clock()
        waited, major = now - self._written, major_stage(self._what)
        is_due = waited >= LINE_INTERVAL_S or (major not in self._seen and now - self._start >= LINE_INTERVAL_S)
        if (self._is_new and is_due) or waited >= HEARTBEAT_S:
            self._seen.add(major)
            self._write(now)

    def _write(self, now: float) -> None:
        what = "".join(c if c.isprintable() else " " for c in self._what)
        self._written, self._is_new = now, False
        try:
            print(f"[{now - self._start:3.0f} s] {what}", file=self._stream, flush=True)
        except (OSError, ValueError):  # nobody reads the stream any more, or it is closed
            self._written = float("inf")


def major_stage(what: str) -> str:
    """What comes before the first colon or comma, without its counters."""
    return _COUNTER.sub("", re.split(r"[:,] ", what)[0]).strip()
