"""Reads a program while it runs, whatever it does: training, inference, a script of somebody else's."""

from __future__ import annotations

import contextlib
from types import TracebackType

from msgspec import structs

from kernelwright.core.diagnosis import Diagnosis
from kernelwright.core.machine import Machine
from kernelwright.core.units import time_text
from kernelwright.core.work import ProgramWork
from kernelwright.diagnosis.observation import ASSUMED_LAUNCH_US, observe
from kernelwright.diagnosis.record_builder import build_diagnosis
from kernelwright.machines import machine as machine_here
from kernelwright.measure.clock import wall_s
from kernelwright.measure.operators import OperatorTimes, record_operator_times
from kernelwright.work import CountingMode


class watch:
    """Watches every operator inside the block, forward and backward.

    After the block `seen.diagnosis` holds the reading, operators grouped by module and ranked by what could be
    gained; printing `seen` prints it.

    Args:
        name: how the reading is headed.
        device: `cpu` or `cuda`; by default the GPU where there is one.
    """

    def __init__(self, name: str = "watched program", device: str | None = None) -> None:
        import torch

        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.name, self.diagnosis = name, None
        self._stack = contextlib.ExitStack()

    diagnosis: Diagnosis | None

    def __enter__(self) -> watch:
        self._machine = machine_here(self.device)
        self._times = self._stack.enter_context(record_operator_times(self.device))
        self._counting = self._stack.enter_context(CountingMode())
        self._start_s = wall_s()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        wall_us = (wall_s() - self._start_s) * 1e6
        self._stack.close()
        times = self._times()
        work = self._counting.finish()
        times = OperatorTimes(
            times.times_us[: len(work.operators)], times.faulted_calls
        )  # the last call may have raised
        seen = observe(self.name, self._machine, work, times, _unprofiled_us(self._machine, work, times))
        note = f"the block took {time_text(wall_us)} while watched, everything outside of torch's operators included"
        found = build_diagnosis(seen, self.name, rank_by_gain=True)
        self.diagnosis = structs.replace(found, notes=(note, *found.notes))

    def __str__(self) -> str:
        return str(self.diagnosis) if self.diagnosis else f"watching {self.name}"

    def _repr_html_(self) -> str | None:
        return self.diagnosis._repr_html_() if self.diagnosis else None


def _unprofiled_us(machine: Machine, work: ProgramWork, times: OperatorTimes) -> float:
    """What the operators take when nobody watches. Watching costs the host some 70 us a call, so the wall clock says
    little: on the CPU it is the sum of the calls; a GPU needs its kernels' time or the host's for launching them."""
    busy_us = sum(times.times_us)
    if machine.device == "cpu":
        return busy_us
    launched = sum(operator.kind != "view" for operator in work.operators)
    return max(busy_us, launched * (machine.dispatch_us or ASSUMED_LAUNCH_US))
