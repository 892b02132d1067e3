"""An object with some attributes replaced, to run a module's own forward with."""

from __future__ import annotations

from typing import Any


class View:
    """An object whose attributes are another object's, except those in `replaced`.

    A module's forward that is called with a view of the module runs unchanged, but finds the replacements. Neither
    the module nor its class changes, so calls in other threads are not affected, and torch.compile traces it.
    """

    def __init__(self, viewed: Any, replaced: dict[str, Any]) -> None:
        self._viewed, self._replaced = viewed, replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced[name] if name in self._replaced else getattr(self._viewed, name)
