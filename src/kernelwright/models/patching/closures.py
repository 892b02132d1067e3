"""Looks through decorators: what the functions behind a function name, and a function with one of these names bound
anew."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType
from typing import Any

MAX_DECORATORS = 16


def rebind(
    function: Any, name: str, predicate: Callable[[Any], bool], value: Any, depth: int = MAX_DECORATORS
) -> FunctionType | None:
    """The function with `name` bound to `value` in itself, or in a function that it has in its closure, as a decorator
    has what it decorates. Neither the function nor its module changes.

    Args:
        predicate: whether what the name is bound to so far may be replaced.
    Returns:
        None where no such function is found.
    """
    if not isinstance(function, FunctionType) or not depth:
        return None
    known, cells, inner = function.__globals__, list(function.__closure__ or ()), {}
    for at, free in enumerate(function.__code__.co_freevars):
        held = _cell_contents(cells[at])
        new = value if free == name and predicate(held) else rebind(held, name, predicate, value, depth - 1)
        if new is not None:
            cells[at], inner[id(held)] = CellType(new), new
    if name in code_names(function.__code__) and name in known and predicate(known[name]):
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


def collect_names(function: Any) -> set[str]:
    """Every global, attribute and closed-over name in the code of a function and of what it decorates."""
    return {name for one in _unwrap_code(function, set()) for name in (*code_names(one), *one.co_freevars)}


def code_names(code: CodeType) -> set[str]:
    """Globals and attributes in a function's code and in that of the functions inside it."""
    inner = (code_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inner)


def _unwrap_code(function: Any, seen: set[int]) -> Iterator[CodeType]:
    """The code of a function and of all functions that it wraps, however."""
    if id(function) in seen or len(seen) > MAX_DECORATORS**2:
        return
    seen.add(id(function))
    if isinstance(code := getattr(function, "__code__", None), CodeType):
        yield code
    held = [_cell_contents(cell) for cell in getattr(function, "__closure__", None) or ()]
    held += [getattr(function, name, None) for name in ("__wrapped__", "func", "__func__")]
    for one in held:
        if callable(one) and not isinstance(one, type):
            yield from _unwrap_code(one, seen)


def _cell_contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty: it is bound later
        return None
