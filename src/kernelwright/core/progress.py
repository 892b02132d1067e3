"""Progress of long operations. The progress bar or the time limit that consumes it sets the listener."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

StageListener = Callable[[str, float | None], None]
_listener: ContextVar[StageListener | None] = ContextVar("listener", default=None)


def report_stage(description: str, limit_s: float | None = None) -> None:
    """Report that the stage `description` starts, which ends the previous one; `limit_s` is its time limit."""
    if listener := _listener.get():
        listener(description, limit_s)


def set_listener(listener: StageListener | None) -> None:
    """Send all later stages of this context to `listener`."""
    _listener.set(listener)


@contextmanager
def observe_stages(observer: StageListener) -> Iterator[None]:
    """Send the stages within a block to `observer` too."""
    listener = _listener.get()

    def both(description: str, limit_s: float | None) -> None:
        observer(description, limit_s)
        if listener:
            listener(description, limit_s)

    token = _listener.set(both)
    try:
        yield
    finally:
        _listener.reset(token)
