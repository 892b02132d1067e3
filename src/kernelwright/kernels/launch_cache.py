"""Replay of earlier calls without repeating checks, layout choices and Triton's dispatch.

Python is half the cost of a small kernel: checks, strides, layouts, and Triton's launcher. All of it depends on the
layout of the tensors and not on their contents, so a call on tensors with the layout of an earlier call allocates
its results and launches the same kernels. torch's TensorGuards check all tensors of the last few calls at once; for
all other calls a key is built, which takes ten times as long.

A function that names the tensor whose rows it computes also replays calls for any number of rows (`dynamic_rows`).
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
"""Calls cached per function, after which the cache is cleared; and guards tried before a key is built."""
Function = TypeVar("Function", bound=Callable[..., Any])


class _Recording(NamedTuple):
    """A recorded call: launches, None for one that cannot be replayed; allocated workspaces and whether they are
    zeroed; and decisions that depend on the number of rows."""

    launches: list[RecordedLaunch | None]
    allocations: list[tuple[Tensor, bool]]
    row_guards: list[RowCountGuard]


class _RecorderState(threading.local):
    recording: _Recording | None = None


_RECORDER = _RecorderState()
_RECORDING_THREADS: set[int] = set()
"""Threads that are recording: membership in a set is the fastest check."""


def record_launch(make_launch: Callable[[], RecordedLaunch | None]) -> None:
    """Record a launch if a call is being recorded; None for a launch that cannot be replayed."""
    if _RECORDER.recording is not None:
        _RECORDER.recording.launches.append(make_launch())


def allocate_workspace(shape: Sequence[int], dtype: torch.dtype, device: torch.device, *, zero: bool = False) -> Tensor:
    """Allocate memory for communication between the launches of one call."""
    workspace = (torch.zeros if zero else torch.empty)(tuple(shape), dtype=dtype, device=device)
    if _RECORDER.recording is not None:
        _RECORDER.recording.allocations.append((workspace, zero))
    return workspace


def choose_by_rows(function: Callable[..., Any], rows: int, *args: Any) -> Any:
    """function(rows, *args), recorded as a guard if a call is being recorded.

    In a function `cached_launch(rows=...)`, everything that depends on the number of rows must go through this,
    unless it is passed to a launch as `RowCountExpr`.

    Args:
        function: a cheap module-level function of its arguments alone; each replay calls it.
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
def cached_launch(function: Function) -> Function:
    """Without arguments."""


@overload
def cached_launch(*, rows: str) -> Callable[[Function], Function]:
    """With the name of the tensor whose rows the function computes."""


def cached_launch(function: Callable[..., Any] | None = None, *, rows: str | None = None) -> Any:
    """Decorator that caches the launches of a function of tensors.

    The function must launch kernels on nothing but its arguments, its results and `allocate_workspace`, and return
    new tensors or None. An argument `seed` may change from call to call: only kernels read it.

    Args:
        rows: name of the tensor whose rows it computes. The function may use the leading dimensions of this tensor,
            and of those that share them, only through the number of rows, in `choose_by_rows`, `allocate_workspace`,
            shapes of results, and launches.
    Returns:
        The function, with a method `cache_clear()`.
    """
    return partial(_make_cached_launch, rows=rows) if function is None else _make_cached_launch(function, rows)


def _make_cached_launch(function: Callable[..., Any], rows: str | None) -> Callable[..., Any]:
    cache = _CallCache(function, rows)
    recent, call_or_record = cache.recent, cache.call_or_record

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or FAST_PATH.enabled:
            return function(*args, **kwargs)
        if not (_RECORDING_THREADS or forward_ad._current_level >= 0 or torch._C._len_torch_dispatch_stack()):
            for guarded_call in recent:
                if (result := guarded_call(args, kwargs)) is not CACHE_MISS:
                    return result
        return call_or_record(args, kwargs)

    vars(call)["cache_clear"] = cache.clear
    return call


class _CallCache:
    """The cached calls of one function.

    Attributes:
        recent: guarded replays, the latest first; each returns CACHE_MISS if its guards fail.
    """

    def __init__(self, function: Callable[..., Any], rows: str | None) -> None:
        names = list(signature(function).parameters)
        self._function, self._rows_name = function, rows
        self._seed_index = names.index("seed") if "seed" in names else None
        self._rows_index = names.index(rows) if rows else None
        self._replays: dict[tuple[Any, ...], Replay | Literal[False] | None] = {}
        """By tensor layouts and all other arguments; None after one call, False if it cannot be replayed."""
        self._groups: dict[tuple[Any, ...], RowCountGroup] = {}
        """By the same without the number of rows."""
        self.recent: list[GuardedCall] = []

    def call_or_record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Replay the call if it is cached, else run it, and record it if it is repeated."""
        if FAST_PATH.enabled or not is_plain_eager():
            return self._function(*args, **kwargs)
        others, seed = _split_seed(args, kwargs, self._seed_index)
        if not all(fits_int32(one) for one in seed) or (key := _make_call_key(others, len(seed))) is None:
            return self._function(*args, **kwargs)
        if replay := self._replays.get(key.key):
            self._move_to_front(replay)
            return replay.call(*key.tensors, *seed)
        group, leading = self._find_group(args, kwargs, key)
        for replay in group.replays if group else ():
            if (result := replay.call(*key.tensors, *seed)) is not CACHE_MISS:
                self._move_to_front(replay)
                return result
        exact, grouped = self._is_second_call(key.key), group is not None and group.should_record()
        if not (exact or grouped):
            return _call_on_fast_path(self._function, args, kwargs)
        with _record_call() as recording:
            result = self._function(*args, **kwargs)
        if exact:
            source = generate_replay(key.tensors, seed, result, *recording)
            self._replays[key.key] = self._make_replay(source, args, kwargs, key) if source else False
        if grouped and group and leading:
            source = generate_replay(key.tensors, seed, result, *recording, leading)
            if group.confirm(leading.rows, source) and source:
                group.replays.append(self._make_replay(source, args, kwargs, key, leading))
        return result

    def clear(self) -> None:
        """Discard all cached calls."""
        for one in (self._replays, self._groups, self.recent):
            one.clear()

    def _is_second_call(self, key: tuple[Any, ...]) -> bool:
        """Whether it is the second call: for shapes that occur once, recording costs more than the call."""
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
        key: _CallKey,
        leading: LeadingDims | None = None,
    ) -> Replay:
        replay = source.compile()
        return Replay(replay, compile_guarded_call(args, kwargs, self._seed_index, key.tensors, replay, leading))

    def _move_to_front(self, replay: Replay) -> None:
        if guarded_call := replay.guarded_call:
            self.recent[:] = [guarded_call, *(one for one in self.recent if one is not guarded_call)][:MAX_RECENT_CALLS]

    def _find_group(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], key: _CallKey
    ) -> tuple[RowCountGroup | None, LeadingDims | None]:
        if self._rows_name is None or self._rows_index is None:
            return None, None
        x = args[self._rows_index] if self._rows_index < len(args) else kwargs.get(self._rows_name)
        leading = find_leading_dims(key.tensors, x)
        if leading is None or (rows := row_key(leading, key.tensors)) is None:
            return None, None
        if len(self._groups) >= MAX_CACHED_CALLS:
            self._groups.clear()
        return self._groups.setdefault((*rows, *key.static_args), RowCountGroup()), leading


class _CallKey(NamedTuple):
    """The tensors of a call, all other values that a replay depends on, and a key of these and the tensors' layouts."""

    tensors: list[Tensor]
    static_args: tuple[Any, ...]
    key: tuple[Any, ...]


def _make_call_key(arguments: tuple[Any, ...], num_seeds: int) -> _CallKey | None:
    """The key of a call; None if a tensor is not plain."""
    grad_enabled = torch.is_grad_enabled()
    tensors: list[Tensor] = []
    values: list[Any] = [num_seeds]
    layouts: list[Any] = []
    addresses: list[int] = []
    for one in arguments:
        if not isinstance(one, Tensor):
            values.append(one)
        elif is_plain_tensor(one, grad_enabled):
            tensors.append(one)
            addresses.append(address := one.data_ptr())
            # everything that kernels and launches depend on; of the address only the vectorization of loads
            values += Tensor, one.dtype, one.device, address & ALIGNMENT_MASK
            layouts += one.shape, one.stride()
        else:
            return None
    if len(set(addresses)) < len(addresses):  # which tensors alias
        values += map(addresses.index, addresses)
    return _CallKey(tensors, static_args := tuple(values), (*static_args, *layouts))


def _call_on_fast_path(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    FAST_PATH.enabled = True
    try:
        return function(*args, **kwargs)
    finally:
        FAST_PATH.enabled = False


def _split_seed(
    args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """All arguments but the seed, and the seed, if there is one."""
    seed: tuple[Any, ...] = ()
    if index is not None and index < len(args):
        args, seed = (*args[:index], *args[index + 1 :]), (args[index],)
    elif index is not None and "seed" in kwargs:
        seed = (kwargs["seed"],)
        kwargs = {name: one for name, one in kwargs.items() if name != "seed"}
    return (*args, *kwargs, *kwargs.values()), seed
