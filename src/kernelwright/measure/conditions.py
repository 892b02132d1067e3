"""Conditions of a measurement: memory allocation, interference by other processes, GPU clock limits."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

if sys.platform != "win32":
    import resource

HUGE_PAGES_ENV = "THP_MEM_ALLOC_ENABLE"
"""torch's CPU allocator reads it once, at its first large allocation: set it before that."""


def allocation_policy() -> str:
    """How large CPU tensors of this process are backed: `huge pages` or `4 KiB pages`."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    kernel = setting.read_text() if setting.exists() else "[never]"
    if "[always]" in kernel:
        return "huge pages"
    return "huge pages" if os.environ.get(HUGE_PAGES_ENV) == "1" and "[madvise]" in kernel else "4 KiB pages"


TICKS_PER_S = 100
INTERFERENCE_SHARE = 0.1
"""Share of one CPU used by other processes above which a measurement is disturbed: another torch process on the same
two cores made a matmul up to a thousand times slower."""


@dataclass(frozen=True)
class SystemCounters:
    """Counters of this process and machine at one time; subtract two with `since`.

    `other_processes_s` is the CPU time of all other processes, accurate to some hundredths of a second.
    """

    page_faults: int
    steal_ticks: int
    other_processes_s: float

    @classmethod
    def now(cls) -> SystemCounters:
        """Read the counters."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        busy_ticks, stolen_ticks = _read_cpu_ticks()
        own_s = usage.ru_utime + usage.ru_stime
        return cls(usage.ru_minflt, stolen_ticks, busy_ticks / TICKS_PER_S - own_s if busy_ticks else 0.0)

    def since(self, start: SystemCounters) -> SystemCounters:
        """The difference from an earlier reading."""
        return SystemCounters(
            self.page_faults - start.page_faults,
            self.steal_ticks - start.steal_ticks,
            self.other_processes_s - start.other_processes_s,
        )

    def shows_interference(self, wall_s: float, threads: int | None) -> bool:
        """Whether other processes competed for the CPUs of this process's `threads` threads during `wall_s` seconds."""
        cores = os.cpu_count() or 1
        spare = max(0, cores - (threads or cores))
        lost_s = self.steal_ticks / TICKS_PER_S + self.other_processes_s
        return lost_s > (spare + INTERFERENCE_SHARE) * max(wall_s, 1e-9)


def count_page_faults() -> int:
    """Minor page faults of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _read_cpu_ticks() -> tuple[int, int]:
    """Clock ticks of busy and of stolen time, over all CPUs; zeros if unknown."""
    try:
        with Path("/proc/stat").open() as stat:
            user, nice, system, _, _, irq, soft_irq, stolen = map(int, stat.readline().split()[1:9])
        return user + nice + system + irq + soft_irq, stolen
    except (OSError, ValueError):
        return 0, 0


class ThrottleMonitor:
    """Reports GPU clock throttling; reports none if NVML is missing."""

    _BENIGN = 0x1 | 0x2  # idle, and application clocks

    def __init__(self, device: str) -> None:
        self._handle = None
        if device == "cuda":
            try:
                import pynvml

                pynvml.nvmlInit()
                self._nvml, self._handle = pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
            except Exception:  # any NVML failure only means that throttling is unknown
                self._handle = None

    def reasons(self) -> int:
        """NVML's bit mask of the current throttle reasons; 0 if there are none or they are unknown."""
        if self._handle is None:
            return 0
        return self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle) & ~self._BENIGN

    def describe(self, mask: int) -> str:
        """Names of the throttle reasons in a bit mask."""
        names = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "thermal", 0x40: "thermal", 0x80: "power brake"}
        return ", ".join(dict.fromkeys(name for bit, name in names.items() if mask & bit)) or hex(mask)
