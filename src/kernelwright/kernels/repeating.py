"""Calls that were made before, made again without finding anything out anew.

Half of what a small kernel costs is Python: checks, strides, layouts, and Triton's own way to what it compiled. All of
it depends on how tensors lie and on nothing in them, so a call on tensors that lie as those of an earlier one allocates
its results and launches what that one launched. Whether they do, torch's compiler can tell of all tensors at once, of
the last few calls; of all others a key tells, which takes ten times as long to make.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from kernelwright.kernels.operators import CALL, plain, undisturbed
from kernelwright.kernels.replaying import ALIGNED, MISSED, Launch, Recent, call_again, call_like, is_short

MOST_KEPT, MOST_RECENT = 4096, 4
"""Calls that are remembered of one function, then all are forgotten; and those that are tried before a key is made."""
Function = TypeVar("Function", bound=Callable[..., Any])


class _Seen(NamedTuple):
    """Of one call what it launched, None for what only its own way can do, and what it made for that, zeros or not."""

    launches: list[Launch | None]
    made: list[tuple[Tensor, bool]]


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


@contextmanager
def _watching() -> Iterator[_Seen]:
    _WATCHING.add(thread := threading.get_ident())
    _WATCH.seen, CALL.plain = _Seen([], []), True
    try:
        yield _WATCH.seen
    finally:
        _WATCH.seen, CALL.plain = None, False
        _WATCHING.discard(thread)


def repeated(function: Function) -> Function:
    """A function of tensors that launches kernels on nothing but its arguments, its results and `scratch`, and gives
    new tensors or none. Its `seed`, if it takes one, may be another each time: kernels read it, nothing else does."""
    kept: _Kept = {}
    recent: list[Recent] = []
    names = list(signature(function).parameters)
    seed_at = names.index("seed") if "seed" in names else None

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
        if not all(is_short(one) for one in seed):
            return function(*args, **kwargs)
        asks = torch.is_grad_enabled()
        tensors: list[Tensor] = []
        about: list[Any] = [len(seed)]
        places: list[int] = []
        for one in alike:
            if not isinstance(one, Tensor):
                about.append(one)
            elif plain(one, asks):
                tensors.append(one)
                places.append(place := one.data_ptr())
                # all that a kernel and its launch depend on; of the place only what decides how wide loads can be
                about += one.shape, one.stride(), one.dtype, one.device, place & ALIGNED
            else:
                return function(*args, **kwargs)
        if len(set(places)) < len(places):  # which of them begin where another one does
            about += map(places.index, places)
        if (key := tuple(about)) not in kept:
            _remember(kept, key)
            return _plainly(function, args, kwargs)
        if (found := kept[key]) is None:
            with _watching() as seen:
                result = function(*args, **kwargs)
            again = call_again(tensors, seed, result, *seen)
            kept[key] = (again, call_like(args, kwargs, seed_at, tensors, again)) if again else False
            return result
        if not found:
            return _plainly(function, args, kwargs)
        again, like = found
        if like:
            recent[:] = [like, *(one for one in recent if one is not like)][:MOST_RECENT]
        return again(*tensors, *seed)

    return call  # pyright: ignore[reportReturnType]


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
