"""Where records find how they are drawn, without knowing who draws: `report` registers itself when it is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Draw = Callable[[Any], str]
_drawers: dict[str, tuple[tuple[type, ...], Draw]] = {}


def register(manner: str, kinds: tuple[type, ...], draw: Draw) -> None:
    """Says how records of these kinds are drawn in a manner: `text` or `html`."""
    _drawers[manner] = (kinds, draw)


def drawn(manner: str, record: object) -> str | None:
    """The record drawn, None when nobody here draws such a record."""
    kinds, draw = _drawers.get(manner, ((), repr))
    return draw(record) if isinstance(record, kinds) else None
