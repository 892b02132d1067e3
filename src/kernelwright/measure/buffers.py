"""Rotating input buffers, so that a call does not find its inputs in the cache from earlier calls."""

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
    """Copies of one set of inputs, used in rotation by all programs together, so that none finds what another cached.

    With `cache="cold"` there are enough copies to exceed the last-level cache twice. Inputs below 1 MiB stay warm: a
    program that small does not run on a cold cache in practice either, and its time is mostly overhead.

    Args:
        inputs: (args, kwargs) on the device.
        last_cache_bytes: capacity of the device's last-level cache.
        cache: the requested state; the attribute `cache` holds the actual one.
        parameter_bytes: parameters that the programs read in every call; if they exceed the last-level cache they make
            it cold by themselves.
    """

    def __init__(
        self, inputs: tuple[Any, Any], last_cache_bytes: int, cache: CacheState = "cold", parameter_bytes: int = 0
    ) -> None:
        footprint = max(1, storage_bytes(inputs))
        rotated = cache == "cold" and footprint >= MIN_COLD_BYTES
        self.cache: CacheState = "cold" if rotated or parameter_bytes > last_cache_bytes else "warm"
        num_copies = -(-2 * last_cache_bytes // footprint) + 1 if rotated else 1
        self.input_sets = [inputs, *(clone_inputs(inputs) for _ in range(min(num_copies, MAX_COPIES) - 1))]
        self._pristine: tuple[Any, Any] | None = None
        self._next_inputs = cycle(self.input_sets)

    def bind(self, program: Callable[..., Any]) -> Callable[[], Any]:
        """A function without arguments that calls `program` with the next buffers each time."""
        input_sets = self._next_inputs

        def call() -> Any:
            args, kwargs = next(input_sets)
            return program(*args, **kwargs)

        if len(self.input_sets) == 1:
            args, kwargs = self.input_sets[0]
            return lambda: program(*args, **kwargs)
        return call

    def save_if_mutated(self, program: Callable[..., Any]) -> None:
        """Run `program` once; if it changes its inputs, keep a copy that `restore` writes back."""
        before = clone_inputs(self.input_sets[0])
        program(*self.input_sets[0][0], **self.input_sets[0][1])
        if not all(map(torch.equal, tensor_leaves(before), tensor_leaves(self.input_sets[0]))):
            self._pristine = before
            self.restore()

    def restore(self) -> None:
        """Write the original inputs back if a program modifies them in place; otherwise do nothing."""
        if self._pristine is not None:
            with torch.no_grad():
                for inputs in self.input_sets:
                    for target, source in zip(tensor_leaves(inputs), tensor_leaves(self._pristine), strict=True):
                        target.copy_(source)


def parameter_bytes(program: Callable[..., Any]) -> int:
    """Bytes of the parameters and buffers of an nn.Module; 0 for any other callable."""
    if not isinstance(program, torch.nn.Module):
        return 0
    return storage_bytes([*program.parameters(), *program.buffers()])
