"""The error of the layout algebra, raised instead of returning a wrong layout."""

from __future__ import annotations

from kernelwright.core.errors import UsageError


class LayoutError(UsageError):
    """An invalid layout, or an operation whose result is not a layout."""

    code = "layout"
    default_next = "docs/layouts.md explains every operation with examples"
