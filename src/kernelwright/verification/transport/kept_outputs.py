"""Outputs that the verifier keeps as a caller may: they must still be there after later calls.

A program may write all of its outputs to one buffer: then the very next call overwrites them, which is allowed unless
the user wants fresh outputs, and a note of the verdict states it. An output that is still there after the next call
has to stay.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kernelwright.core.errors import TamperingError
from kernelwright.verification.transport.control_block import Extent
from kernelwright.verification.transport.remote_memory import RemoteMemory

MAX_KEPT, MAX_KEPT_BYTES = 12, 128 << 20
"""Beyond the call before; one is kept whatever its size."""
MAX_OUTPUT_BYTES = 1 << 30
"""Of one call: outputs of more bytes are not kept."""
KEEP_SHARE = 0.5
"""Share of the calls whose outputs are kept beyond the next call, which the candidate cannot predict."""


@dataclass
class KeptOutputs:
    """The outputs of some earlier calls, by the number of the call.

    Attributes:
        are_reused: the outputs of one call were in the memory of those of the call before.
        overwritten: number of a call whose outputs did not stay, else None.
    """

    memory: RemoteMemory
    are_reused: bool = False
    overwritten: int | None = None
    _kept: dict[int, Mapping[Extent, Tensor]] = field(default_factory=dict)
    _last: tuple[int, Mapping[Extent, Tensor]] | None = None
    _released: list[int] = field(default_factory=list)
    _rng: random.Random = field(default_factory=random.SystemRandom)

    def plan_call(self) -> dict[str, int | list[int] | None]:
        """What the worker keeps alive before the next call: `keep`, the number under which it keeps the last result,
        and `release`, the numbers of those that it drops."""
        keep = self._last[0] if self._last else None
        released, self._released = self._released, []
        return {"keep": keep, "release": released}

    def add(
        self, number: int, outputs: Mapping[Extent, Tensor], *, in_state: bool = False, is_series: bool = False
    ) -> None:
        """Take the outputs of a finished call, read while the process is stopped, and compare those of the call
        before it.

        Args:
            in_state: an output is in the memory of a parameter or buffer: later calls overwrite it.
            is_series: of several calls; memory of the series before is then that of an output which is older than the
                call before.
        """
        if in_state:
            self.are_reused = True
        if self._last:
            self._compare_last(*self._last, outputs, is_series=is_series)
        size_bytes = sum(size for _, size in outputs)
        self._last = (number, outputs) if 0 < size_bytes <= MAX_OUTPUT_BYTES else None

    def skip(self) -> None:
        """A call whose outputs are not read: the one before it stays as it is kept."""
        if self._last:
            self._keep_or_release(*self._last)
        self._last = None

    def find_overwritten(self) -> int | None:
        """Number of a kept call whose outputs have changed; None if all are as they were."""
        for number, outputs in self._kept.items():
            if self.overwritten is None and not self.are_reused and not self._are_unchanged(outputs):
                self.overwritten = number
        return self.overwritten

    def _compare_last(
        self, number: int, before: Mapping[Extent, Tensor], now: Mapping[Extent, Tensor], *, is_series: bool
    ) -> None:
        if not is_series:
            self.are_reused = self.are_reused or any(overlap(one, other) for one in before for other in now)
        if not self.are_reused and not self._are_unchanged(before):
            self.overwritten = number
        self._keep_or_release(number, before)

    def _keep_or_release(self, number: int, outputs: Mapping[Extent, Tensor]) -> None:
        kept_bytes = sum(size for one in (outputs, *self._kept.values()) for _, size in one)
        if self.are_reused or (self._kept and kept_bytes > MAX_KEPT_BYTES) or self._rng.random() > KEEP_SHARE:
            self._released.append(number)
            return
        self._kept[number] = outputs
        if len(self._kept) > MAX_KEPT:
            dropped = self._rng.choice(list(self._kept))
            if not self._are_unchanged(self._kept.pop(dropped)):
                self.overwritten = dropped
            self._released.append(dropped)

    def _are_unchanged(self, outputs: Mapping[Extent, Tensor]) -> bool:
        try:
            return all(torch.equal(self.memory.read(extent), value) for extent, value in outputs.items() if extent[1])
        except TamperingError:
            return False


def overlap(one: Extent, other: Extent) -> bool:
    """Whether two extents have a byte in common."""
    return one[0] < other[0] + other[1] and other[0] < one[0] + one[1] and one[1] > 0 and other[1] > 0
