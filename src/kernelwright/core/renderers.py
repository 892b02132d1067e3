"""Where records find how they are drawn, without knowing who draws: `report` registers itself when it is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Renderer = Callable[[Any], str]
_renderers: dict[str, tuple[tuple[type, ...], Renderer]] = {}


def register_renderer(output_format: str, record_types: tuple[type, ...], renderer: Renderer) -> None:
    """Says how records of these kinds are drawn in a manner: `text` or `html`."""
    _renderers[output_format] = (record_types, renderer)


def render_record(output_format: str, record: object) -> str | None:
    """The record drawn, None when nobody here draws such a record."""
    kinds, draw = _renderers.get(output_format, ((), repr))
    return draw(record) if isinstance(record, kinds) else None
