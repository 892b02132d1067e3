"""The conditions that samples share: how memory is allocated, what disturbed them, how many threads there were."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

if sys.platform != "win32":
    import resource

HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
"""Read by torch's CPU allocator once, at its first large allocation: set before that."""


def use_huge_pages() -> None:
    """One allocation policy for every arm: transparent huge pages, unless the person set the variable."""
    os.environ.setdefault(HUGE_PAGES, "1")


def allocation_policy() -> str:
    """How large CPU tensors of this process are backed: `huge pages` or `4 KiB pages`."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    kernel = setting.read_text() if setting.exists() else "[never]"
    if "[always]" in kernel:
        return "huge pages"
    return "huge pages" if os.environ.get(HUGE_PAGES) == "1" and "[madvise]" in kernel else "4 KiB pages"


@dataclass(frozen=True)
class Disturbance:
    """Counters of this process and machine at one moment; the difference of two says what happened between."""

    faults: int
    involuntary_switches: int
    stolen_ticks: int

    @classmethod
    def now(cls) -> Disturbance:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return cls(usage.ru_minflt, usage.ru_nivcsw, _stolen_ticks())

    def since(self, start: Disturbance) -> Disturbance:
        return Disturbance(
            self.faults - start.faults,
            self.involuntary_switches - start.involuntary_switches,
            self.stolen_ticks - start.stolen_ticks,
        )


def page_faults() -> int:
    """Page faults of this process so far that needed no disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _stolen_ticks() -> int:
    """Hundredths of a second that the hypervisor took from this machine; 0 where that is not told."""
    try:
        with Path("/proc/stat").open() as stat:
            return int(stat.readline().split()[8])
    except (OSError, IndexError, ValueError):
        return 0


class Throttle:
    """Whether the GPU held its clock back; answers nothing where NVML is missing."""

    _BENIGN = 0x1 | 0x2  # idle, and clocks set by an application

    def __init__(self, device: str) -> None:
        self._handle = None
        if device == "cuda":
            try:
                import pynvml

                pynvml.nvmlInit()
                self._nvml, self._handle = pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
            except Exception:  # any NVML failure means only that nobody can say
                self._handle = None

    def reasons(self) -> int:
        """NVML's bit mask of throttle reasons now, 0 when there is none or it is unknown."""
        if self._handle is None:
            return 0
        return self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle) & ~self._BENIGN

    def text(self, mask: int) -> str:
        names = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "thermal", 0x40: "thermal", 0x80: "power brake"}
        return ", ".join(dict.fromkeys(name for bit, name in names.items() if mask & bit)) or hex(mask)
