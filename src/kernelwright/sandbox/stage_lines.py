"""Progress stages as log lines: `[ 12 s of 60 s] region_0: config 3 of 12`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TextIO

LINE_INTERVAL_S = 2.0
"""Delay of the first line, and between two lines of the same major stage."""
HEARTBEAT_S = 15.0
_COUNTER = re.compile(r"\d+ of \d+")


class ElapsedTime:
    """Seconds since its construction, as text, with the time budget if there is one.

    Args:
        budget_s: the budget; may be exceeded.
        clock: seconds since any fixed time.
    """

    def __init__(self, budget_s: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget_s, self._clock, self._start_s = budget_s, clock, clock()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start_s

    @property
    def text(self) -> str:
        """` 12 s`, or ` 12 s of 60 s`."""
        budget = f" of {self._budget_s:.0f} s" if self._budget_s else ""
        return f"{self.seconds:3.0f} s{budget}"


class StageLines:
    """Writes a line when a major stage begins, at most one every `LINE_INTERVAL_S` within it, and one every
    `HEARTBEAT_S`.

    A run that ends within `LINE_INTERVAL_S` writes nothing. If the reader closes the stream, the run continues without
    lines.

    Args:
        stream: receives the lines.
        clock: seconds since any fixed time.
        budget_s: a time budget to show next to the time.
    """

    def __init__(
        self, stream: TextIO, clock: Callable[[], float] = time.monotonic, budget_s: float | None = None
    ) -> None:
        self._stream, self._elapsed = stream, ElapsedTime(budget_s, clock)
        self._written = self._elapsed.seconds
        self._what, self._is_new, self._seen = "starting", True, {""}

    def stage(self, what: str) -> None:
        """Set the current stage."""
        self._is_new |= what != self._what
        self._what = what
        self.tick()

    def tick(self) -> None:
        """Write a line if one is due; call it a few times a second."""
        now = self._elapsed.seconds
        waited, major = now - self._written, major_stage(self._what)
        is_due = waited >= LINE_INTERVAL_S or (major not in self._seen and now >= LINE_INTERVAL_S)
        if (self._is_new and is_due) or waited >= HEARTBEAT_S:
            self._seen.add(major)
            self._write(now)

    def _write(self, now: float) -> None:
        what = "".join(c if c.isprintable() else " " for c in self._what)
        self._written, self._is_new = now, False
        try:
            print(f"[{self._elapsed.text}] {what}", file=self._stream, flush=True)
        except (OSError, ValueError):  # the reader has gone or the stream is closed
            self._written = float("inf")


def major_stage(what: str) -> str:
    """The text before the first colon or comma, without counters."""
    return _COUNTER.sub("", re.split(r"[:,] ", what)[0]).strip()
