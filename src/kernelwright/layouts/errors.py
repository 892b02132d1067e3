"""What the algebra says when there is no answer: it never returns a layout that is wrong."""

from __future__ import annotations

from kernelwright.core.errors import UsageError


class LayoutError(UsageError):
    """A layout that cannot be, or an operation that has no layout as its answer."""

    code = "layout"
    default_next = "docs/layouts.md explains every operation with examples"
