"""Calls that were made before, made again without finding anything out anew.

Half of what a small kernel costs is Python: checks, strides, layouts, and Triton's own way to what it compiled. All of
it depends on how tensors lie and on nothing in them, so a call on tensors that lie as those of an earlier one allocates
its results and launches what that one launched. Whether they do, torch's compiler can tell of all tensors at once, of
the last few calls; of all others a key tells, which takes ten times as long to make.

Where a function names the tensor whose rows it computes, a call whose tensors differ from those of earlier calls in
their number of rows alone is made again too, of any number (`row_counts`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from inspect import signature
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from kernelwright.kernels.operators import CALL, plain, undisturbed
from kernelwright.kernels.replaying import ALIGNED, MISSED, Choice, Launch, Recent, call_again, call_like, is_short
from kernelwright.kernels.row_counts import Group, Leading, leading_of, row_key

MOST_KEPT, MOST_RECENT = 4096, 4
"""Calls that are remembered of one function, then all are forgotten; and those that are tried before a key is made."""
Function = TypeVar("Function", bound=Callable[..., Any])


class _Seen(NamedTuple):
    """Of one call what it launched, None for what only its own way can do, what it made for that, zeros or not, and
    what it decided by its number of rows."""

    launches: list[Launch | None]
    made: list[tuple[Tensor, bool]]
    choices: list[Choice]


class _Watch(threading.local):
    seen: _Seen | None = None


_WATCH = _Watch()
_WATCHING: set[int] = set()
"""Threads that watch: a set is the quickest to ask."""


def watched(launch: Callable[[], Launch | None]) -> None:
    """Notes a launch where somebody watches, None for what only its own way can do."""
    if _WATCH.seen is not None:
        _WATCH.seen.launches.append(launch())


def scratch(shape: Sequence[int], dtype: torch.dtype, device: torch.device, *, zero: bool = False) -> Tensor:
    """What the launches of one call tell each other: nothing else writes it."""
    made = (torch.zeros if zero else torch.empty)(tuple(shape), dtype=dtype, device=device)
    if _WATCH.seen is not None:
        _WATCH.seen.made.append((made, zero))
    return made


def chosen(function: Callable[..., Any], rows: int, *about: Any) -> Any:
    """function(rows, *about), noted where somebody watches. All that a function `repeated` over rows decides by their
    number, and does not pass to a launch as `Counted`, has to be decided by this.

    Args:
        function: of a module, cheap, and of its arguments alone: each replay calls it.
    """
    value = function(rows, *about)
    if _WATCH.seen is not None:
        _WATCH.seen.choices.append(Choice(function, about, value))
    return value


@contextmanager
def _watching() -> Iterator[_Seen]:
    _WATCHING.add(thread := threading.get_ident())
    _WATCH.seen, CALL.plain = _Seen([], [], []), True
    try:
        yield _WATCH.seen
    finally:
        _WATCH.seen, CALL.plain = None, False
        _WATCHING.discard(thread)


def repeated(function: Function | None = None, *, rows: str | None = None) -> Any:
    """A function of tensors that launches kernels on nothing but its arguments, its results and `scratch`, and gives
    new tensors or none. Its `seed`, if it takes one, may be another each time: kernels read it, nothing else does.

    Args:
        rows: the name of the tensor whose rows it computes. Of the leading dimensions of that tensor and of those that
            have the same, the function may use nothing but how many rows they are, by `chosen`, `scratch`, the shapes
            of its results, and launches.
    Returns:
        The function; its `forget()` forgets all calls.
    """
    if function is None:
        return partial(repeated, rows=rows)
    kept: _Kept = {}
    groups: dict[tuple[Any, ...], Group] = {}
    recent: list[Recent] = []
    names = list(signature(function).parameters)
    seed_at = names.index("seed") if "seed" in names else None
    rows_at = names.index(rows) if rows else None

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or CALL.plain:
            return function(*args, **kwargs)
        if not (_WATCHING or forward_ad._current_level >= 0 or torch._C._len_torch_dispatch_stack()):
            for like in recent:
                if (result := like(args, kwargs)) is not MISSED:
                    return result
        return by_key(args, kwargs)

    def by_key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if CALL.plain or not undisturbed():
            return function(*args, **kwargs)
        alike, seed = _without_seed(args, kwargs, seed_at)
        if not all(is_short(one) for one in seed) or (given := _given(alike, len(seed))) is None:
            return function(*args, **kwargs)
        if found := kept.get(given.key):
            again, like = found
            prefer(like)
            return again(*given.tensors, *seed)
        group, leading = group_of(args, kwargs, given)
        for again, like in group.replays if group else ():
            if (result := again(*given.tensors, *seed)) is not MISSED:
                prefer(like)
                return result
        exact, grouped = given.key in kept and found is None, group is not None and group.records()
        if given.key not in kept:
            _remember(kept, given.key)
        if not (exact or grouped):
            return _plainly(function, args, kwargs)
        with _watching() as seen:
            result = function(*args, **kwargs)
        if exact:
            kept[given.key] = replay(args, kwargs, given, seed, result, seen)
        if group and leading and grouped:
            source = call_again(given.tensors, seed, result, *seen, leading)
            if group.confirmed(leading.rows, source) and source:
                again = source.compiled()
                group.replays.append((again, call_like(args, kwargs, seed_at, given.tensors, again, leading)))
        return result

    def prefer(like: Recent | None) -> None:
        if like:
            recent[:] = [like, *(one for one in recent if one is not like)][:MOST_RECENT]

    def replay(
        args: tuple[Any, ...], kwargs: dict[str, Any], given: _Given, seed: tuple[Any, ...], result: Any, seen: _Seen
    ) -> tuple[Callable[..., Any], Recent | None] | Literal[False]:
        if (source := call_again(given.tensors, seed, result, *seen)) is None:
            return False
        again = source.compiled()
        return again, call_like(args, kwargs, seed_at, given.tensors, again)

    def group_of(args: tuple[Any, ...], kwargs: dict[str, Any], given: _Given) -> tuple[Group | None, Leading | None]:
        if rows_at is None:
            return None, None
        x = args[rows_at] if rows_at < len(args) else kwargs.get(rows or "")
        if (leading := leading_of(given.tensors, x)) is None or (key := row_key(leading, given.tensors)) is None:
            return None, None
        if len(groups) >= MOST_KEPT:
            groups.clear()
        return groups.setdefault((*key, *given.other), Group()), leading

    def forget() -> None:
        for one in (kept, groups, recent):
            one.clear()

    call.forget = forget  # pyright: ignore[reportFunctionMemberAccess]
    return call


class _Given(NamedTuple):
    """A call's tensors, all else that a replay depends on, and a key of that and of how the tensors lie."""

    tensors: list[Tensor]
    other: tuple[Any, ...]
    key: tuple[Any, ...]


def _given(alike: tuple[Any, ...], seeds: int) -> _Given | None:
    """None where a tensor is not plain."""
    asks = torch.is_grad_enabled()
    tensors: list[Tensor] = []
    about: list[Any] = [seeds]
    lie: list[Any] = []
    places: list[int] = []
    for one in alike:
        if not isinstance(one, Tensor):
            about.append(one)
        elif plain(one, asks):
            tensors.append(one)
            places.append(place := one.data_ptr())
            # all that a kernel and its launch depend on; of the place only what decides how wide loads can be
            about += Tensor, one.dtype, one.device, place & ALIGNED
            lie += one.shape, one.stride()
        else:
            return None
    if len(set(places)) < len(places):  # which of them begin where another one does
        about += map(places.index, places)
    return _Given(tensors, other := tuple(about), (*other, *lie))


def _remember(kept: _Kept, key: tuple[Any, ...]) -> None:
    """A call is written down when it is made again: of shapes that come once, that costs more than the call."""
    if len(kept) >= MOST_KEPT:
        kept.clear()
    kept[key] = None


def _plainly(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    CALL.plain = True
    try:
        return function(*args, **kwargs)
    finally:
        CALL.plain = False


def _without_seed(
    args: tuple[Any, ...], kwargs: dict[str, Any], at: int | None
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """All that makes a call what it is, and the seed, if it has one."""
    seed: tuple[Any, ...] = ()
    if at is not None and at < len(args):
        args, seed = (*args[:at], *args[at + 1 :]), (args[at],)
    elif at is not None and "seed" in kwargs:
        seed = (kwargs["seed"],)
        kwargs = {name: one for name, one in kwargs.items() if name != "seed"}
    return (*args, *kwargs, *kwargs.values()), seed


_Kept = dict[tuple[Any, ...], tuple[Callable[..., Any], Recent | None] | Literal[False] | None]
"""Calls by how tensors lie and all other arguments, of tensors and the seed alone and as they are given; None for what
was called once, False for what cannot be repeated."""
