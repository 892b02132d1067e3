"""Self-reported time in the candidate's process: finer than the external timer, and not trusted.

Has no access to the expected values.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernelwright.measure.clock import wall_s
from kernelwright.verification.transport.control_block import DEVICE_START, ControlBlock
from kernelwright.verification.transport.device_memory import reset_persisting_l2, stream_wait_value
from kernelwright.verification.transport.state import bitwise_equal


class SelfTimer:
    """Times a call on the host."""

    def start(self) -> None:
        self._start_s = self._stop_s = wall_s()

    def stop(self, outputs: Sequence[Tensor]) -> None:
        self._stop_s = wall_s()

    def time_ns(self) -> int:
        """From start to stop; waits until all work is done."""
        return int((self._stop_s - self._start_s) * 1e9)

    def is_stream_ordered(self) -> bool:
        """Whether work after the call on the caller's stream read the outputs in their final state."""
        return True


class DeviceSelfTimer(SelfTimer):
    """Times a call on the device between two events. The stream waits for the verifier's start signal before the
    first event; the host does not, so its launches run ahead.

    Args:
        control_block: contains the word that the stream waits for.
        number: value of that word.
        check_order: copy the outputs after the call, on the caller's stream, to check the order.
    """

    def __init__(self, control_block: ControlBlock, number: int, *, check_order: bool) -> None:
        self._address, self._number, self._checked = control_block.address + 8 * DEVICE_START, number, check_order
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._pairs: list[tuple[Tensor, Tensor]] = []
        reset_persisting_l2()
        torch.cuda.synchronize()

    def start(self) -> None:
        stream_wait_value(self._address, self._number)
        self._begin.record()

    def stop(self, outputs: Sequence[Tensor]) -> None:
        self._end.record()
        if self._checked:
            on_device = [one.detach() for one in outputs if one.is_cuda and one.layout == torch.strided]
            self._pairs = [(one, one.clone()) for one in on_device]

    def time_ns(self) -> int:
        torch.cuda.synchronize()
        return int(self._begin.elapsed_time(self._end) * 1e6)

    def is_stream_ordered(self) -> bool:
        return all(bitwise_equal(output, copy) for output, copy in self._pairs)
