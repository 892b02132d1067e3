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
from typing import Any, Literal, NamedTuple, TypeVar, overload

import torch
from torch import Tensor
from torch.autograd import forward_ad

from kernelwright.kernels.launch_codegen import (
    ALIGNED,
    MISSED,
    Choice,
    Launch,
    Recent,
    Source,
    call_again,
    call_like,
    is_short,
)
from kernelwright.kernels.operators import CALL, plain, undisturbed
from kernelwright.kernels.row_counts import Group, Leading, Replay, leading_of, row_key

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


@overload
def repeated(function: Function) -> Function: ...


@overload
def repeated(*, rows: str) -> Callable[[Function], Function]: ...


def repeated(function: Callable[..., Any] | None = None, *, rows: str | None = None) -> Any:
    """A function of tensors that launches kernels on nothing but its arguments, its results and `scratch`, and gives
    new tensors or none. Its `seed`, if it takes one, may be another each time: kernels read it, nothing else does.

    Args:
        rows: the name of the tensor whose rows it computes. Of the leading dimensions of that tensor and of those that
            have the same, the function may use nothing but how many rows they are, by `chosen`, `scratch`, the shapes
            of its results, and launches.
    Returns:
        The function; its `forget()` forgets all calls.
    """
    return partial(_repeated, rows=rows) if function is None else _repeated(function, rows)


def _repeated(function: Callable[..., Any], rows: str | None) -> Callable[..., Any]:
    calls = _Calls(function, rows)
    recent, by_key = calls.recent, calls.by_key

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or CALL.plain:
            return function(*args, **kwargs)
        if not (_WATCHING or forward_ad._current_level >= 0 or torch._C._len_torch_dispatch_stack()):
            for like in recent:
                if (result := like(args, kwargs)) is not MISSED:
                    return result
        return by_key(args, kwargs)

    vars(call)["forget"] = calls.forget
    return call


class _Calls:
    """What is remembered of the calls of one function.

    Attributes:
        recent: checks of arguments, each of which makes the call where it is like one before; the latest first.
    """

    def __init__(self, function: Callable[..., Any], rows: str | None) -> None:
        names = list(signature(function).parameters)
        self._function, self._rows = function, rows
        self._seed_at = names.index("seed") if "seed" in names else None
        self._rows_at = names.index(rows) if rows else None
        self._kept: dict[tuple[Any, ...], Replay | Literal[False] | None] = {}
        """By how tensors lie and all other arguments; None for what was called once, False for what cannot be
        repeated."""
        self._groups: dict[tuple[Any, ...], Group] = {}
        """By all that but the number of rows."""
        self.recent: list[Recent] = []

    def by_key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call, by a replay where there is one, else recorded where it is made again."""
        if CALL.plain or not undisturbed():
            return self._function(*args, **kwargs)
        alike, seed = _without_seed(args, kwargs, self._seed_at)
        if not all(is_short(one) for one in seed) or (given := _given(alike, len(seed))) is None:
            return self._function(*args, **kwargs)
        if found := self._kept.get(given.key):
            self._prefer(found)
            return found.again(*given.tensors, *seed)
        group, leading = self._group_of(args, kwargs, given)
        for found in group.replays if group else ():
            if (result := found.again(*given.tensors, *seed)) is not MISSED:
                self._prefer(found)
                return result
        exact, grouped = self._called_before(given.key), group is not None and group.records()
        if not (exact or grouped):
            return _plainly(self._function, args, kwargs)
        with _watching() as seen:
            result = self._function(*args, **kwargs)
        if exact:
            source = call_again(given.tensors, seed, result, *seen)
            self._kept[given.key] = self._replay(source, args, kwargs, given) if source else False
        if grouped and group and leading:
            source = call_again(given.tensors, seed, result, *seen, leading)
            if group.confirmed(leading.rows, source) and source:
                group.replays.append(self._replay(source, args, kwargs, given, leading))
        return result

    def forget(self) -> None:
        for one in (self._kept, self._groups, self.recent):
            one.clear()

    def _called_before(self, key: tuple[Any, ...]) -> bool:
        """Whether it is the second call: of shapes that come once, writing it down costs more than the call."""
        if key in self._kept:
            return self._kept[key] is None
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[key] = None
        return False

    def _replay(
        self,
        source: Source,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        given: _Given,
        leading: Leading | None = None,
    ) -> Replay:
        again = source.compiled()
        return Replay(again, call_like(args, kwargs, self._seed_at, given.tensors, again, leading))

    def _prefer(self, replay: Replay) -> None:
        if like := replay.like:
            self.recent[:] = [like, *(one for one in self.recent if one is not like)][:MOST_RECENT]

    def _group_of(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], given: _Given
    ) -> tuple[Group | None, Leading | None]:
        if self._rows is None or self._rows_at is None:
            return None, None
        x = args[self._rows_at] if self._rows_at < len(args) else kwargs.get(self._rows)
        if (leading := leading_of(given.tensors, x)) is None or (key := row_key(leading, given.tensors)) is None:
            return None, None
        if len(self._groups) >= MOST_KEPT:
            self._groups.clear()
        return self._groups.setdefault((*key, *given.other), Group()), leading


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
