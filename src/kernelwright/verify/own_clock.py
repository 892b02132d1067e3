"""The clock in the candidate's process, which nobody has to believe; it is the finer one.

Knows nothing about what is right.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernelwright.measure.clock import wall_s
from kernelwright.verify.poison import POISON_BYTE
from kernelwright.verify.state import same_bits

CYCLES_PER_US = 2000
"""Of a device, or nearly: how it waits is all that hangs on it."""


class OwnClock:
    """Of the host."""

    def start(self) -> None:
        self._start_s = wall_s()

    def stop_ns(self, outputs: Sequence[Tensor]) -> int:
        return int((wall_s() - self._start_s) * 1e9)

    def in_order(self) -> bool:
        """Whether what came after the call, on the caller's stream, found the outputs that are there now."""
        return True


class OwnDeviceClock(OwnClock):
    """Of the device: between two events, before the first of which it waits, so that the host is ahead.

    Args:
        ahead_us: that it waits.
        late: inputs that come, on the caller's stream, only when the device has waited: whoever does not keep that
            stream's order reads NaN, and what comes after it there does not find its outputs.
    """

    def __init__(self, ahead_us: float, late: list[torch.UntypedStorage]) -> None:
        self._cycles = int(CYCLES_PER_US * ahead_us)
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._late = [torch.empty(0, dtype=torch.uint8, device="cuda").set_(block) for block in late]
        self._kept = [torch.empty_like(block) for block in self._late]
        self._pairs: list[tuple[Tensor, Tensor]] = []
        torch.cuda.synchronize()

    def start(self) -> None:
        for kept, block in zip(self._kept, self._late, strict=True):
            kept.copy_(block)
            block.fill_(POISON_BYTE)
        torch.cuda._sleep(self._cycles)
        for kept, block in zip(self._kept, self._late, strict=True):
            block.copy_(kept)
        self._begin.record()

    def stop_ns(self, outputs: Sequence[Tensor]) -> int:
        self._end.record()
        if self._late:
            there = [one.detach() for one in outputs if one.is_cuda and one.layout == torch.strided]
            self._pairs = [(one, one.clone()) for one in there]
        torch.cuda.synchronize()
        return int(self._begin.elapsed_time(self._end) * 1e6)

    def in_order(self) -> bool:
        return all(same_bits(now, then) for now, then in self._pairs)


def clock_for(device: str, ahead_us: float, late: list[torch.UntypedStorage]) -> OwnClock:
    return OwnClock() if device == "cpu" else OwnDeviceClock(ahead_us, late)
