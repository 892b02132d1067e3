"""Input buffers in rotation, so that a call meets memory that the calls before it did not leave in the cache."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any, Literal

import torch

from kernelwright.core.pytree import clone_inputs, storage_bytes, tensor_leaves

CacheState = Literal["cold", "warm"]
MIN_COLD_BYTES = 2**20
MAX_COPIES = 256


class RotatingBuffers:
    """Copies of one set of inputs, used in turn: one turn for all programs, so that no call finds what another left.

    Cold: enough copies that together they pass twice the last cache. Inputs below a MiB stay warm: a program that
    small never meets a cold cache in real life either, and its time is its overhead.

    Args:
        inputs: (args, kwargs) on the device.
        last_cache_bytes: capacity of the last cache of the device.
        cache: what is wanted; `self.cache` says what was done.
        parameter_bytes: parameters that the programs hold and read in every call; past the last cache they are cold
            alone.
    """

    def __init__(
        self, inputs: tuple[Any, Any], last_cache_bytes: int, cache: CacheState = "cold", parameter_bytes: int = 0
    ) -> None:
        footprint = max(1, storage_bytes(inputs))
        rotated = cache == "cold" and footprint >= MIN_COLD_BYTES
        self.cache: CacheState = "cold" if rotated or parameter_bytes > last_cache_bytes else "warm"
        wanted = -(-2 * last_cache_bytes // footprint) + 1 if rotated else 1
        self.input_sets = [inputs, *(clone_inputs(inputs) for _ in range(min(wanted, MAX_COPIES) - 1))]
        self._pristine: tuple[Any, Any] | None = None
        self._next_inputs = cycle(self.input_sets)

    def bind(self, program: Callable[..., Any]) -> Callable[[], Any]:
        """A call of `program` without arguments that takes the next buffers each time."""
        turn = self._next_inputs

        def call() -> Any:
            args, kwargs = next(turn)
            return program(*args, **kwargs)

        if len(self.input_sets) == 1:
            args, kwargs = self.input_sets[0]
            return lambda: program(*args, **kwargs)
        return call

    def save_if_mutated(self, program: Callable[..., Any]) -> None:
        """Runs `program` once; if it changes its inputs, keeps a copy that `restore` writes back."""
        before = clone_inputs(self.input_sets[0])
        program(*self.input_sets[0][0], **self.input_sets[0][1])
        if not all(map(torch.equal, tensor_leaves(before), tensor_leaves(self.input_sets[0]))):
            self._pristine = before
            self.restore()

    def restore(self) -> None:
        """Undoes what in-place programs did to the buffers; nothing for the others."""
        if self._pristine is not None:
            with torch.no_grad():
                for inputs in self.input_sets:
                    for target, source in zip(tensor_leaves(inputs), tensor_leaves(self._pristine), strict=True):
                        target.copy_(source)


def parameter_bytes(program: Callable[..., Any]) -> int:
    """Bytes of the parameters and buffers that a program holds; 0 for one that is no nn.Module."""
    if not isinstance(program, torch.nn.Module):
        return 0
    return storage_bytes([*program.parameters(), *program.buffers()])
