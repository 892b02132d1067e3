"""The time budget of one optimisation: what may still start, and what was left out."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kernelwright.measure.clock import wall_s


class OutOfTime(BaseException):
    """A step took longer than its limit. Not an Exception, so that the interrupted code does not handle it."""


RETRY_INTERVAL_S = 0.5
IMPORT_FUNCTION = ("<frozen importlib._bootstrap>", "_find_and_load")
"""File and name of the function that runs every import statement."""


class Budget:
    """Seconds for one optimisation, from its construction on.

    Attributes:
        total_s: the whole budget.
        reserved_s: what verification and the final timing will need; nothing else may use it.
        left_out: what was not tried because there was no time, for the report.
    """

    def __init__(self, total_s: float) -> None:
        self.total_s, self.reserved_s = total_s, 0.0
        self.left_out: list[str] = []
        self._start_s = wall_s()

    @property
    def spent_s(self) -> float:
        """Seconds since the start."""
        return wall_s() - self._start_s

    @property
    def until_end_s(self) -> float:
        """Seconds until the end of the budget, the reserve included; at least 0."""
        return max(self.total_s - self.spent_s, 0.0)

    @property
    def remaining_s(self) -> float:
        """Seconds that may still be used, without the reserve; at least 0."""
        return max(self.total_s - self.reserved_s - self.spent_s, 0.0)

    @contextmanager
    def keep(self, needed_s: float) -> Iterator[None]:
        """Within a block, nothing may use these seconds of the remaining time."""
        self.reserved_s += needed_s
        try:
            yield
        finally:
            self.reserved_s -= needed_s

    def allows(self, needed_s: float, what: str) -> bool:
        """Whether a step of about this length may start; if not, it is noted as left out."""
        if needed_s <= self.remaining_s:
            return True
        self.left_out.append(what)
        return False


@contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """Interrupt a block after `limit_s`; only the main thread can be interrupted, in others the limit is ignored.

    Raises:
        OutOfTime: the block took longer. Native code and imports end first: a module that is half imported stays so.
    """
    if math.isinf(limit_s) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_: int, frame: FrameType | None) -> None:
        if not _is_importing(frame):
            raise OutOfTime

    start_s, (outer_s, outer_interval_s) = wall_s(), signal.getitimer(signal.ITIMER_REAL)
    before = signal.signal(signal.SIGALRM, interrupt)
    # again, if a callback swallows it or an import ends
    signal.setitimer(signal.ITIMER_REAL, max(limit_s, 0.001), RETRY_INTERVAL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if outer_s:  # a timer that was running before goes on
            left_s = max(outer_s - (wall_s() - start_s), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, left_s, outer_interval_s)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if (frame.f_code.co_filename, frame.f_code.co_name) == IMPORT_FUNCTION:
            return True
        frame = frame.f_back
    return False
