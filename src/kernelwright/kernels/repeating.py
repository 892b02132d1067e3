"""Calls that were made before, made again without finding anything out anew.

Half of what a small kernel costs is Python: checks, strides, layouts, and Triton's own way to what it compiled. All of
it depends on how tensors lie and on nothing in them, so a call on tensors that lie as those of an earlier one allocates
its results and launches what that one launched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from kernelwright.kernels.operators import plain, undisturbed

MOST_KEPT = 4096
"""Calls that are remembered of one function; then all are forgotten."""
Function = TypeVar("Function", bound=Callable[..., Any])


STREAM = object()
"""Stands for the handle of the current stream."""


class Launch(NamedTuple):
    """
    Attributes:
        run: what launched.
        before: what it takes before the kernel's arguments, among them `STREAM`.
        arguments: the kernel's; tensors stand for their addresses.
    """

    run: Callable[..., None]
    before: tuple[Any, ...]
    arguments: tuple[Any, ...]


class _Seen(NamedTuple):
    """Of one call what it launched, None for what only its own way can do, and what it made for that, zeros or not."""

    launches: list[Launch | None]
    made: list[tuple[Tensor, bool]]


class _Watch(threading.local):
    seen: _Seen | None = None


_WATCH = _Watch()


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
    _WATCH.seen = _Seen([], [])
    try:
        yield _WATCH.seen
    finally:
        _WATCH.seen = None


def repeated(function: Function) -> Function:
    """A function of tensors that launches kernels on nothing but its arguments, its results and `scratch`, and gives
    new tensors or none."""
    kept: _Kept = {}

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _WATCH.seen is not None or not undisturbed():
            return function(*args, **kwargs)
        asks = torch.is_grad_enabled()
        tensors: list[Tensor] = []
        about: list[Any] = []
        for one in (*args, *kwargs, *kwargs.values()) if kwargs else args:
            if not isinstance(one, Tensor):
                about.append(one)
            elif plain(one, asks):
                tensors.append(one)
                # all that a kernel and its launch depend on; of the place only what decides how wide loads can be
                about += one.shape, one.stride(), one.dtype, one.device, one.data_ptr() & 15
            else:
                return function(*args, **kwargs)
        again = kept.get(key := tuple(about))
        if again is None:
            return _first(kept, key, tensors, lambda: function(*args, **kwargs))
        return again(*tensors) if again else function(*args, **kwargs)

    return call  # pyright: ignore[reportReturnType]


def _first(kept: _Kept, key: tuple[Any, ...], tensors: list[Tensor], call: Callable[[], Any]) -> Any:
    if len(kept) >= MOST_KEPT:
        kept.clear()
    with _watching() as seen:
        result = call()
    kept[key] = _again(tensors, result, *seen) or False
    return result


def _again(
    tensors: Sequence[Tensor], result: Any, launches: list[Launch | None], made: list[tuple[Tensor, bool]]
) -> Callable[..., Any] | None:
    """The call, of tensors alone; None where a launch reads or writes what is neither given nor returned nor made for
    it, or what is one tensor could be two.

    It is written down and compiled: a third of what loops over launches and arguments cost. Pointers are passed as
    numbers, since Triton asks the driver about each tensor."""
    results = [] if result is None else [result] if isinstance(result, Tensor) else list(result)
    lists = {"t": tensors, "r": results, "s": [one for one, _ in made]}
    held = [
        (one.data_ptr(), f"{letter}{at}")
        for letter, some in lists.items()
        for at, one in enumerate(some)
        if one.numel()
    ]
    names, own = dict(held), [one for one in launches if one is not None]
    if not own or len(own) < len(launches) or len(names) < len(held):
        return None
    index = [*results, *tensors][0].device.index
    known: dict[str, Any] = {"there": index, "here": torch._C._cuda_getDevice, "device": torch.cuda.device}
    known |= {"stream_of": torch._C._cuda_getCurrentRawStream, "like": torch.empty_like, "strided": torch.empty_strided}
    known |= {"zeros": torch.zeros}
    lines = ["if here() != there:", "    with device(there):", f"        return again({_given(tensors)})"]
    lines += [f"r{at} = {_made(tensors, one, f'r{at}', known)}" for at, one in enumerate(results)]
    for at, (one, zero) in enumerate(made):
        lines.append(f"s{at} = {_zeros(one, f's{at}', known) if zero else _made(tensors, one, f's{at}', known)}")
    lines += ["stream = stream_of(there)", *(f"p{name} = {name}.data_ptr()" for name in names.values())]
    for at, launch in enumerate(own):
        known[f"run{at}"], passed = launch.run, []
        for number, one in enumerate((*launch.before, *launch.arguments)):
            if one is STREAM:
                passed.append("stream")
            elif not isinstance(one, Tensor):
                known[constant := f"c{at}_{number}"] = one
                passed.append(constant)
            elif name := names.get(one.data_ptr()):
                passed.append(f"p{name}")
            else:
                return None
        lines.append(f"run{at}({', '.join(passed)})")
    given = "r0" if isinstance(result, Tensor) else f"({_given(results, 'r')},)" if results else "None"
    lines.append(f"return {given}")
    exec(f"def again({_given(tensors)}):\n" + "".join(f"    {line}\n" for line in lines), known)
    return known["again"]


def _given(tensors: Sequence[Tensor], letter: str = "t") -> str:
    return ", ".join(f"{letter}{at}" for at in range(len(tensors)))


def _made(tensors: Sequence[Tensor], result: Tensor, name: str, known: dict[str, Any]) -> str:
    """An expression that allocates one that lies as the result did; the quickest is one that lies as what is given."""
    lies = tuple(result.shape), result.stride()
    for at, given in enumerate(tensors):
        like = torch.empty_like(given, device="meta")
        if (tuple(like.shape), like.stride(), like.dtype, given.device) == (*lies, result.dtype, result.device):
            return f"like(t{at})"
    known |= {f"lies_{name}": lies, f"kind_{name}": {"dtype": result.dtype, "device": result.device}}
    return f"strided(*lies_{name}, **kind_{name})"


def _zeros(made: Tensor, name: str, known: dict[str, Any]) -> str:
    known[f"kind_{name}"] = {"size": tuple(made.shape), "dtype": made.dtype, "device": made.device}
    return f"zeros(**kind_{name})"


_Kept = dict[tuple[Any, ...], Callable[..., Any] | Literal[False]]
"""Calls by how tensors lie and all other arguments; False for what cannot be repeated."""
