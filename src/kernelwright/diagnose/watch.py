"""Reads a program while it runs, whatever it does: training, inference, a script of somebody else's."""

from __future__ import annotations

import contextlib
from types import TracebackType

from kernelwright.core.records import Diagnosis
from kernelwright.diagnose.observation import observe
from kernelwright.diagnose.reading import diagnosis
from kernelwright.machine import machine as machine_here
from kernelwright.measure.clock import steady_us, wall_s
from kernelwright.measure.operators import OperatorTimes, clocked
from kernelwright.work import CountingMode


class watch:  # noqa: N801 - used like a function: `with kernelwright.watch() as seen:`
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
        self._times = self._stack.enter_context(clocked(self.device))
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
        clean_us = max(wall_us - len(work.operators) * _bookkeeping_us(self.device), sum(times.times_us))
        seen = observe(self.name, self._machine, work, _alike(times, len(work.operators)), clean_us)
        self.diagnosis = diagnosis(seen, self.name, ranked=True)

    def __str__(self) -> str:
        from kernelwright.report.terminal import text

        return text(self.diagnosis) if self.diagnosis else f"watching {self.name}"


def _alike(times: OperatorTimes, calls: int) -> OperatorTimes:
    """The last call may have raised while it was clocked and before it was counted."""
    return OperatorTimes(times.times_us[:calls], times.faulted)


def _bookkeeping_us(device: str) -> float:
    """What watching adds to one operator, measured on the smallest one."""
    import torch

    tiny = torch.ones(1)
    plain = steady_us(lambda: tiny.add(tiny), "cpu", budget_s=0.02)
    with clocked(device), CountingMode():
        watched = steady_us(lambda: tiny.add(tiny), "cpu", budget_s=0.02)
    return max(watched - plain, 0.0)
