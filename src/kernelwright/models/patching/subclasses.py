"""Classes of patched modules: a subclass of a module's own class whose forward is replaced and wrapped by parts.

A module has one such class, however many parts were patched in it, so that a second call of `patch` can add parts and
`unpatch` sets the original class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import nn

from kernelwright.models.patching.report import PatchError

WRAPPING_PARTS = ("attention", "projections", "residuals")
"""Parts that wrap a module's forward, in this order, the innermost first; the others replace it."""


class PatchedModule:
    """Base of patched modules.

    Attributes:
        parts: each part that was patched with its forward, or, for a part of `WRAPPING_PARTS`, the function that makes
            the new forward from the forward before.
    """

    parts: tuple[tuple[str, Callable[..., Any]], ...] = ()


def patched_parts(module: nn.Module) -> set[str]:
    """The names of the parts that were patched in a module."""
    return {part for part, _ in module.parts} if isinstance(module, PatchedModule) else set()


def install(module: nn.Module, part: str, function: Callable[..., Any]) -> None:
    """Patch one more part of a module: `function` is its forward, or makes its forward if the part wraps it."""
    parts = (*(module.parts if isinstance(module, PatchedModule) else ()), (part, function))
    module.__class__ = _make_subclass(unpatched_class(module), tuple(sorted(parts, key=_rank)))


def unpatched_class(module: nn.Module) -> type[nn.Module]:
    """The class of a module without our parts.

    Raises:
        PatchError: its class was changed after it was patched.
    """
    if not isinstance(module, PatchedModule):
        return type(module)
    base, *original = type(module).__bases__
    if base is not PatchedModule:
        name = type(module).__name__
        raise PatchError(f"the class of {name} was changed after patch", next="unpatch before fully_shard and the like")
    return original[0]


def replace_attributes(module: nn.Module, replaced: dict[str, Any], cls: type | None = None) -> Any:
    """A module with the same parameters, children and attributes, except those in `replaced`.

    A forward that is called with it runs unchanged, but finds the replacements. The module does not change, so calls
    in other threads are not affected.

    Args:
        cls: class of the result; default is the module's own.
    """
    view = object.__new__(cls or type(module))
    vars(view).update(vars(module) | replaced)
    return view


def _rank(part: tuple[str, Any]) -> int:
    return WRAPPING_PARTS.index(part[0]) if part[0] in WRAPPING_PARTS else -1


@functools.cache
def _make_subclass(original: Any, parts: tuple[tuple[str, Callable[..., Any]], ...]) -> type:
    """Cached, so that modules of one class stay in one class, which torch.compile compiles once."""
    forward = original.forward
    for part, function in parts:
        forward = function(forward) if part in WRAPPING_PARTS else function
    namespace = {"__module__": original.__module__, "__qualname__": original.__qualname__, "__doc__": original.__doc__}
    return type(original.__name__, (PatchedModule, original), namespace | {"parts": parts, "forward": forward})
