"""Where a long deed says what it is doing. Whoever shows it (a bar) or enforces it (a time limit) sets the listener."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

Listener = Callable[[str, float | None], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def stage(what: str, limit_s: float | None = None) -> None:
    """Says that `what` begins now, ending whatever was said before; `limit_s` is how long it may take."""
    if listener := _listener.get():
        listener(what, limit_s)


def listen(listener: Listener | None) -> None:
    """Sends every later stage of this context to `listener`."""
    _listener.set(listener)
