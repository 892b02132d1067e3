"""Where a long deed says what it is doing. Whoever shows it (a bar) or enforces it (a time limit) sets the listener."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

StageListener = Callable[[str, float | None], None]
_listener: ContextVar[StageListener | None] = ContextVar("listener", default=None)


def report_stage(description: str, limit_s: float | None = None) -> None:
    """Says that `description` begins now, ending whatever was said before; `limit_s` is how long it may take."""
    if listener := _listener.get():
        listener(description, limit_s)


def set_listener(listener: StageListener | None) -> None:
    """Sends every later stage of this context to `listener`."""
    _listener.set(listener)
