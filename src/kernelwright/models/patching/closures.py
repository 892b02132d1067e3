"""Inspect and rebuild decorated functions: the names that their code uses, and a copy with one name rebound."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType
from typing import Any

MAX_DECORATORS = 16


def rebind(
    function: Any, name: str, predicate: Callable[[Any], bool], value: Any, depth: int = MAX_DECORATORS
) -> FunctionType | None:
    """A copy of a function with `name` bound to `value`, in itself or in a function in its closure, as in a
    decorator.

    Neither the function nor its module changes.

    Args:
        predicate: whether the current value of the name may be replaced.
    Returns:
        None if there is no such name.
    """
    if not isinstance(function, FunctionType) or not depth:
        return None
    namespace, cells, replaced = function.__globals__, list(function.__closure__ or ()), {}
    for i, free_name in enumerate(function.__code__.co_freevars):
        contents = _cell_contents(cells[i])
        new = (
            value if free_name == name and predicate(contents) else rebind(contents, name, predicate, value, depth - 1)
        )
        if new is not None:
            cells[i], replaced[id(contents)] = CellType(new), new
    if name in code_names(function.__code__) and name in namespace and predicate(namespace[name]):
        namespace = namespace | {name: value}
    elif not replaced:
        return None
    rebound = FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, tuple(cells) or None)
    rebound.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(rebound, function)
    vars(rebound).pop("__wrapped__")  # set by `update_wrapper`, but this is not a wrapper
    if wrapped := vars(function).get("__wrapped__"):
        rebound.__wrapped__ = replaced.get(id(wrapped), wrapped)  # pyright: ignore[reportFunctionMemberAccess]
    return rebound


def collect_names(function: Any) -> set[str]:
    """All global, attribute and closure names in the code of a function and of the functions that it wraps."""
    return {name for one in _unwrap_code(function, set()) for name in (*code_names(one), *one.co_freevars)}


def collect_strings(function: Any) -> set[str]:
    """All string constants in the code of a function and of the functions that it wraps, names of keywords included."""
    return {text for one in _unwrap_code(function, set()) for text in _constant_strings(one.co_consts)}


def _constant_strings(constants: tuple[Any, ...]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, (tuple, CodeType)):
            yield from _constant_strings(constant if isinstance(constant, tuple) else constant.co_consts)


def code_names(code: CodeType) -> set[str]:
    """Globals and attributes in a code object and in the functions nested in it."""
    inner = (code_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inner)


def _unwrap_code(function: Any, seen: set[int]) -> Iterator[CodeType]:
    """The code of a function and of all functions that it wraps."""
    if id(function) in seen or len(seen) > MAX_DECORATORS**2:
        return
    seen.add(id(function))
    if isinstance(code := getattr(function, "__code__", None), CodeType):
        yield code
    candidates = [_cell_contents(cell) for cell in getattr(function, "__closure__", None) or ()]
    candidates += [getattr(function, name, None) for name in ("__wrapped__", "func", "__func__")]
    for candidate in candidates:
        if callable(candidate) and not isinstance(candidate, type):
            yield from _unwrap_code(candidate, seen)


def _cell_contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty: it is bound later
        return None
