"""Looks through decorators: what the functions behind a function name, and a function with one of these names bound
anew."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType
from typing import Any

MOST_DECORATORS = 16


def rebound(
    function: Any, name: str, suits: Callable[[Any], bool], value: Any, depth: int = MOST_DECORATORS
) -> FunctionType | None:
    """The function with `name` bound to `value` in itself, or in a function that it has in its closure, as a decorator
    has what it decorates. Neither the function nor its module changes.

    Args:
        suits: whether what the name is bound to so far may be replaced.
    Returns:
        None where no such function is found.
    """
    if not isinstance(function, FunctionType) or not depth:
        return None
    known, cells, inner = function.__globals__, list(function.__closure__ or ()), {}
    for at, free in enumerate(function.__code__.co_freevars):
        held = _content(cells[at])
        new = value if free == name and suits(held) else rebound(held, name, suits, value, depth - 1)
        if new is not None:
            cells[at], inner[id(held)] = CellType(new), new
    if name in names_in(function.__code__) and name in known and suits(known[name]):
        known = known | {name: value}
    elif not inner:
        return None
    made = FunctionType(function.__code__, known, function.__name__, function.__defaults__, tuple(cells) or None)
    made.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(made, function)
    vars(made).pop("__wrapped__")  # of `update_wrapper`: it is no decorator
    if wrapped := vars(function).get("__wrapped__"):
        made.__wrapped__ = inner.get(id(wrapped), wrapped)  # pyright: ignore[reportFunctionMemberAccess]
    return made


def names_behind(function: Any) -> set[str]:
    """Every global, attribute and closed-over name in the code of a function and of what it decorates."""
    return {name for one in _behind(function, set()) for name in (*names_in(one), *one.co_freevars)}


def names_in(code: CodeType) -> set[str]:
    """Globals and attributes in a function's code and in that of the functions inside it."""
    inner = (names_in(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inner)


def _behind(function: Any, seen: set[int]) -> Iterator[CodeType]:
    """The code of a function and of all functions that it wraps, however."""
    if id(function) in seen or len(seen) > MOST_DECORATORS**2:
        return
    seen.add(id(function))
    if isinstance(code := getattr(function, "__code__", None), CodeType):
        yield code
    held = [_content(cell) for cell in getattr(function, "__closure__", None) or ()]
    held += [getattr(function, name, None) for name in ("__wrapped__", "func", "__func__")]
    for one in held:
        if callable(one) and not isinstance(one, type):
            yield from _behind(one, seen)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty: it is bound later
        return None
