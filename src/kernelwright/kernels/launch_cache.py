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

from kernelwright.kernels.dynamic_rows import LeadingDims, Replay, RowCountGroup, find_leading_dims, row_key
from kernelwright.kernels.launch_codegen import (
    ALIGNMENT_MASK,
    CACHE_MISS,
    GeneratedFunction,
    GuardedCall,
    RecordedLaunch,
    RowCountGuard,
    compile_guarded_call,
    fits_int32,
    generate_replay,
)
from kernelwright.kernels.operators import FAST_PATH, is_plain_eager, is_plain_tensor

MAX_CACHED_CALLS, MAX_RECENT_CALLS = 4096, 4
"""Calls that are remembered of one function, then all are forgotten; and those that are tried before a key is made."""
Function = TypeVar("Function", bound=Callable[..., Any])


class _Recording(NamedTuple):
    """Of one call what it launched, None for what only its own way can do, what it made for that, zeros or not, and
    what it decided by its number of rows."""

    launches: list[RecordedLaunch | None]
    allocations: list[tuple[Tensor, bool]]
    row_guards: list[RowCountGuard]


class _RecorderState(threading.local):
    recording: _Recording | None = None


_RECORDER = _RecorderState()
_RECORDING_THREADS: set[int] = set()
"""Threads that watch: a set is the quickest to ask."""


def record_launch(make_launch: Callable[[], RecordedLaunch | None]) -> None:
    """Notes a launch where somebody watches, None for what only its own way can do."""
    if _RECORDER.recording is not None:
        _RECORDER.recording.launches.append(make_launch())


def allocate_workspace(shape: Sequence[int], dtype: torch.dtype, device: torch.device, *, zero: bool = False) -> Tensor:
    """What the launches of one call tell each other: nothing else writes it."""
    made = (torch.zeros if zero else torch.empty)(tuple(shape), dtype=dtype, device=device)
    if _RECORDER.recording is not None:
        _RECORDER.recording.allocations.append((made, zero))
    return made


def choose_by_rows(function: Callable[..., Any], rows: int, *args: Any) -> Any:
    """function(rows, *about), noted where somebody watches. All that a function `cached_launch` over rows decides by
    their number, and does not pass to a launch as `RowCountExpr`, has to be decided by this.

    Args:
        function: of a module, cheap, and of its arguments alone: each replay calls it.
    """
    value = function(rows, *args)
    if _RECORDER.recording is not None:
        _RECORDER.recording.row_guards.append(RowCountGuard(function, args, value))
    return value


@contextmanager
def _record_call() -> Iterator[_Recording]:
    _RECORDING_THREADS.add(thread := threading.get_ident())
    _RECORDER.recording, FAST_PATH.enabled = _Recording([], [], []), True
    try:
        yield _RECORDER.recording
    finally:
        _RECORDER.recording, FAST_PATH.enabled = None, False
        _RECORDING_THREADS.discard(thread)


@overload
def cached_launch(function: Function) -> Function: ...


@overload
def cached_launch(*, rows: str) -> Callable[[Function], Function]: ...


def cached_launch(function: Callable[..., Any] | None = None, *, rows: str | None = None) -> Any:
    """A function of tensors that launches kernels on nothing but its arguments, its results and `allocate_workspace`,
    and gives new tensors or none. Its `seed`, if it takes one, may be another each time: kernels read it, nothing else
    does.

    Args:
        rows: the name of the tensor whose rows it computes. Of the leading dimensions of that tensor and of those that
            have the same, the function may use nothing but how many rows they are, by `choose_by_rows`,
            `allocate_workspace`, the shapes of its results, and launches.
    Returns:
        The function; its `forget()` forgets all calls.
    """
    return partial(_make_cached_launch, rows=rows) if function is None else _make_cached_launch(function, rows)


def _make_cached_launch(function: Callable[..., Any], rows: str | None) -> Callable[..., Any]:
    calls = _CallCache(function, rows)
    recent, by_key = calls.recent, calls.call_or_record

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or FAST_PATH.enabled:
            return function(*args, **kwargs)
        if not (_RECORDING_THREADS or forward_ad._current_level >= 0 or torch._C._len_torch_dispatch_stack()):
            for like in recent:
                if (result := like(args, kwargs)) is not CACHE_MISS:
                    return result
        return by_key(args, kwargs)

    vars(call)["cache_clear"] = calls.clear
    return call


class _CallCache:
    """What is remembered of the calls of one function.

    Attributes:
        recent: checks of arguments, each of which makes the call where it is like one before; the latest first.
    """

    def __init__(self, function: Callable[..., Any], rows: str | None) -> None:
        names = list(signature(function).parameters)
        self._function, self._rows_name = function, rows
        self._seed_index = names.index("seed") if "seed" in names else None
        self._rows_index = names.index(rows) if rows else None
        self._replays: dict[tuple[Any, ...], Replay | Literal[False] | None] = {}
        """By how tensors lie and all other arguments; None for what was called once, False for what cannot be
        repeated."""
        self._groups: dict[tuple[Any, ...], RowCountGroup] = {}
        """By all that but the number of rows."""
        self.recent: list[GuardedCall] = []

    def call_or_record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call, by a replay where there is one, else recorded where it is made again."""
        if FAST_PATH.enabled or not is_plain_eager():
            return self._function(*args, **kwargs)
        alike, seed = _split_seed(args, kwargs, self._seed_index)
        if not all(fits_int32(one) for one in seed) or (given := _make_call_key(alike, len(seed))) is None:
            return self._function(*args, **kwargs)
        if found := self._replays.get(given.key):
            self._move_to_front(found)
            return found.call(*given.tensors, *seed)
        group, leading = self._find_group(args, kwargs, given)
        for found in group.replays if group else ():
            if (result := found.call(*given.tensors, *seed)) is not CACHE_MISS:
                self._move_to_front(found)
                return result
        exact, grouped = self._is_second_call(given.key), group is not None and group.should_record()
        if not (exact or grouped):
            return _call_on_fast_path(self._function, args, kwargs)
        with _record_call() as seen:
            result = self._function(*args, **kwargs)
        if exact:
            source = generate_replay(given.tensors, seed, result, *seen)
            self._replays[given.key] = self._make_replay(source, args, kwargs, given) if source else False
        if grouped and group and leading:
            source = generate_replay(given.tensors, seed, result, *seen, leading)
            if group.confirm(leading.rows, source) and source:
                group.replays.append(self._make_replay(source, args, kwargs, given, leading))
        return result

    def clear(self) -> None:
        for one in (self._replays, self._groups, self.recent):
            one.clear()

    def _is_second_call(self, key: tuple[Any, ...]) -> bool:
        """Whether it is the second call: of shapes that come once, writing it down costs more than the call."""
        if key in self._replays:
            return self._replays[key] is None
        if len(self._replays) >= MAX_CACHED_CALLS:
            self._replays.clear()
        self._replays[key] = None
        return False

    def _make_replay(
        self,
        source: GeneratedFunction,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        given: _CallKey,
        leading: LeadingDims | None = None,
    ) -> Replay:
        again = source.compile()
        return Replay(again, compile_guarded_call(args, kwargs, self._seed_index, given.tensors, again, leading))

    def _move_to_front(self, replay: Replay) -> None:
        if like := replay.guarded_call:
            self.recent[:] = [like, *(one for one in self.recent if one is not like)][:MAX_RECENT_CALLS]

    def _find_group(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], given: _CallKey
    ) -> tuple[RowCountGroup | None, LeadingDims | None]:
        if self._rows_name is None or self._rows_index is None:
            return None, None
        x = args[self._rows_index] if self._rows_index < len(args) else kwargs.get(self._rows_name)
        if (leading := find_leading_dims(given.tensors, x)) is None or (key := row_key(leading, given.tensors)) is None:
            return None, None
        if len(self._groups) >= MAX_CACHED_CALLS:
            self._groups.clear()
        return self._groups.setdefault((*key, *given.static_args), RowCountGroup()), leading


class _CallKey(NamedTuple):
    """A call's tensors, all else that a replay depends on, and a key of that and of how the tensors lie."""

    tensors: list[Tensor]
    static_args: tuple[Any, ...]
    key: tuple[Any, ...]


def _make_call_key(alike: tuple[Any, ...], seeds: int) -> _CallKey | None:
    """None where a tensor is not plain."""
    asks = torch.is_grad_enabled()
    tensors: list[Tensor] = []
    about: list[Any] = [seeds]
    lie: list[Any] = []
    places: list[int] = []
    for one in alike:
        if not isinstance(one, Tensor):
            about.append(one)
        elif is_plain_tensor(one, asks):
            tensors.append(one)
            places.append(place := one.data_ptr())
            # all that a kernel and its launch depend on; of the place only what decides how wide loads can be
            about += Tensor, one.dtype, one.device, place & ALIGNMENT_MASK
            lie += one.shape, one.stride()
        else:
            return None
    if len(set(places)) < len(places):  # which of them begin where another one does
        about += map(places.index, places)
    return _CallKey(tensors, other := tuple(about), (*other, *lie))


def _call_on_fast_path(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    FAST_PATH.enabled = True
    try:
        return function(*args, **kwargs)
    finally:
        FAST_PATH.enabled = False


def _split_seed(
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
