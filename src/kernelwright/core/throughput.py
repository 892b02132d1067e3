"""Throughput of verification."""

from __future__ import annotations

from kernelwright.core.record import Record


class Throughput(Record, frozen=True, kw_only=True):
    """Verdicts and their wall-clock time, by `workers` judges in parallel, including their start."""

    verdicts: int
    time_s: float
    workers: int = 1

    @property
    def verdicts_per_minute(self) -> float:
        return 60 * self.verdicts / self.time_s if self.time_s else 0.0
