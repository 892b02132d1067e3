"""Diagnoses code while it runs: training, inference, or any script."""

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
from kernelwright.machines import machine as measured_machine
from kernelwright.measure.clock import wall_s
from kernelwright.measure.operators import OperatorTimes, record_operator_times
from kernelwright.work import CountingMode


class watch:
    """Context manager that records every operator in its block, forward and backward.

    After the block, its `diagnosis` groups the operators by module and ranks them by possible gain; printing the object
    prints the diagnosis.

    Args:
        name: title of the diagnosis.
        device: `cpu` or `cuda`; by default the GPU if there is one.
    """

    def __init__(self, name: str = "watched program", device: str | None = None) -> None:
        import torch

        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.name, self.diagnosis = name, None
        self._stack = contextlib.ExitStack()

    diagnosis: Diagnosis | None

    def __enter__(self) -> watch:
        self._machine = measured_machine(self.device)
        self._times = self._stack.enter_context(record_operator_times(self.device))
        self._counting = self._stack.enter_context(CountingMode())
        self._start_s = wall_s()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wall_us = (wall_s() - self._start_s) * 1e6
        self._stack.close()
        times = self._times()
        work = self._counting.finish()
        # The last call may have raised and is then timed but not counted.
        times = OperatorTimes(times.times_us[: len(work.operators)], times.faulted_calls)
        observation = observe(self.name, self._machine, work, times, _unprofiled_us(self._machine, work, times))
        note = f"the block took {time_text(wall_us)} with recording, including everything outside torch operators"
        diagnosis = build_diagnosis(observation, self.name, rank_by_gain=True)
        self.diagnosis = structs.replace(diagnosis, notes=(note, *diagnosis.notes))

    def __str__(self) -> str:
        return str(self.diagnosis) if self.diagnosis else f"watching {self.name}"

    def _repr_html_(self) -> str | None:
        return self.diagnosis._repr_html_() if self.diagnosis else None


def _unprofiled_us(machine: Machine, work: ProgramWork, times: OperatorTimes) -> float:
    """Estimated time of the operators without recording, which costs the host about 70 us per call.

    On the CPU it is the sum of the calls; on a GPU the time of the kernels or of their launches, whichever is longer.
    """
    busy_us = sum(times.times_us)
    if machine.device == "cpu":
        return busy_us
    launched = sum(operator.kind != "view" for operator in work.operators)
    return max(busy_us, launched * (machine.dispatch_us or ASSUMED_LAUNCH_US))
