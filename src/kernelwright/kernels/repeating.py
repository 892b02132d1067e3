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

from kernelwright.kernels.operators import direct

MOST_KEPT = 4096
"""Calls that are remembered of one function; then all are forgotten."""
Function = TypeVar("Function", bound=Callable[..., Any])


class Launch(NamedTuple):
    """What was launched: Triton's compiled kernel, how many programs, and all arguments."""

    compiled: Any
    programs: int
    arguments: tuple[Any, ...]


class _Watch(threading.local):
    launches: list[Launch | None] | None = None


_WATCH = _Watch()


def watched(launch: Callable[[], Launch | None]) -> None:
    """Notes a launch where somebody watches, None for one that only its own way can launch."""
    if _WATCH.launches is not None:
        _WATCH.launches.append(launch())


@contextmanager
def _watching() -> Iterator[list[Launch | None]]:
    _WATCH.launches = []
    try:
        yield _WATCH.launches
    finally:
        _WATCH.launches = None


def repeated(function: Function) -> Function:
    """A function of tensors that launches kernels on nothing but its arguments and its results."""
    kept: _Kept = {}

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or _WATCH.launches is not None:
            return function(*args, **kwargs)
        given = (*args, *kwargs, *kwargs.values()) if kwargs else args
        tensors = [one for one in given if isinstance(one, Tensor)]
        if not direct(*tensors):
            return function(*args, **kwargs)
        about: list[Any] = []
        for one in given:
            if isinstance(one, Tensor):
                # all that a kernel and its launch depend on; of the place only what decides how wide loads can be
                about += one.shape, one.stride(), one.dtype, one.device, one.data_ptr() & 15
            else:
                about.append(one)
        plan = kept.get(key := tuple(about))
        if plan is None:
            return _first(kept, key, tensors, lambda: function(*args, **kwargs))
        return plan.run(tensors) if plan else function(*args, **kwargs)

    return call  # pyright: ignore[reportReturnType]


def _first(kept: _Kept, key: tuple[Any, ...], tensors: list[Tensor], call: Callable[[], Any]) -> Any:
    if len(kept) >= MOST_KEPT:
        kept.clear()
    with _watching() as launches:
        result = call()
    kept[key] = _plan(tensors, result, launches) or False
    return result


class _Plan:
    """Launches with places for the tensors of a call."""

    def __init__(
        self,
        tensors: Sequence[Tensor],
        results: Sequence[Tensor],
        alone: bool,
        launches: Sequence[tuple[Launch, list[int]]],
    ) -> None:
        self.device = results[0].device
        self._alone = alone
        self._results = [self._maker(tensors, one) for one in results]
        self._launches = [
            (
                launch.compiled.run,
                launch.programs,
                (launch.compiled.function, launch.compiled.packed_metadata, None, None, None),
                [None if isinstance(one, Tensor) else one for one in launch.arguments],
                [(at, place) for at, place in enumerate(places) if place >= 0],
            )
            for launch, places in launches
        ]

    def _maker(self, tensors: Sequence[Tensor], result: Tensor) -> Callable[[list[Tensor]], Tensor]:
        """Allocates one that lies as the result did; the quickest way is one that lies as what is given."""
        shape, stride, about = tuple(result.shape), result.stride(), {"dtype": result.dtype, "device": result.device}
        for at, given in enumerate(tensors):
            like = torch.empty_like(given, device="meta")
            same = (like.shape, like.stride(), like.dtype, given.device)
            if same == (shape, stride, result.dtype, result.device):
                return lambda here: torch.empty_like(here[at])
        return lambda here: torch.empty_strided(shape, stride, **about)

    def run(self, tensors: list[Tensor]) -> Any:
        index = self.device.index
        if index != torch._C._cuda_getDevice():
            with torch.cuda.device(index):
                return self.run(tensors)
        results = [make(tensors) for make in self._results]
        here = tensors + results
        stream = torch._C._cuda_getCurrentRawStream(index)
        for run, programs, about, arguments, places in self._launches:
            arguments = arguments.copy()
            for at, place in places:
                arguments[at] = here[place]
            run(programs, 1, 1, stream, *about, *arguments)
        return results[0] if self._alone else tuple(results)


_Kept = dict[tuple[Any, ...], _Plan | Literal[False]]
"""Plans by how tensors lie and all other arguments; False for what cannot be repeated."""


def _plan(tensors: Sequence[Tensor], result: Any, launches: Sequence[Launch | None]) -> _Plan | None:
    """None where a launch reads or writes what is neither given nor returned, or what is one tensor could be two."""
    results = [result] if isinstance(result, Tensor) else list(result)
    pointers = [one.data_ptr() for one in (*tensors, *results)]
    if not launches or len(set(pointers)) < len(pointers) or not all(pointers):
        return None
    found = []
    for launch in launches:
        if launch is None:
            return None
        at = [one.data_ptr() if isinstance(one, Tensor) else None for one in launch.arguments]
        if any(pointer is not None and pointer not in pointers for pointer in at):
            return None
        found.append((launch, [-1 if pointer is None else pointers.index(pointer) for pointer in at]))
    return _Plan(tensors, results, isinstance(result, Tensor), found)
