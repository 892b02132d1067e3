"""Registry of renderers, so that records need not import `report`, which registers its own on import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Renderer = Callable[[Any], str]
_renderers: dict[str, tuple[tuple[type, ...], Renderer]] = {}


def register_renderer(output_format: str, record_types: tuple[type, ...], renderer: Renderer) -> None:
    """Set the renderer of these record types for an output format, `text` or `html`."""
    _renderers[output_format] = (record_types, renderer)


def render_record(output_format: str, record: object) -> str | None:
    """Render a record; None without a renderer for its type."""
    record_types, renderer = _renderers.get(output_format, ((), repr))
    return renderer(record) if isinstance(record, record_types) else None
