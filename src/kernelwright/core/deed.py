"""A folder named for a deed can be called: `kernelwright.verify(...)` is the function of the package of that name."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Deed(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)


def callable_package(name: str) -> None:
    """Makes the package `name`, which is being imported, answer calls with its function of the same name."""
    sys.modules[name].__class__ = _Deed
