"""Data caches of this CPU, as the operating system reports them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SYSFS = Path("/sys/devices/system/cpu")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class CpuCache:
    """One cache level: size of an instance, and number of instances that the threads in use can reach."""

    name: str
    instance_bytes: int
    instances: int

    @property
    def capacity_bytes(self) -> int:
        """Size of all instances together."""
        return self.instance_bytes * self.instances


def cpu_caches(threads: int, *, sysfs: Path = SYSFS, cpus: set[int] | None = None) -> tuple[CpuCache, ...]:
    """Data caches from L1 to the last level; empty if unknown.

    A private cache counts once for each thread in use, a shared one counts once.
    """
    if sys.platform == "darwin" and sysfs == SYSFS:
        return _read_sysctl_caches(threads)
    levels: dict[int, tuple[int, set[str]]] = {}
    for cpu in sorted(cpus if cpus is not None else _usable_cpus()):
        for folder in sorted((sysfs / f"cpu{cpu}" / "cache").glob("index*")):
            entry = _read_sysfs_cache(folder)
            if entry is not None:
                level, size, sharers = entry
                levels.setdefault(level, (size, set()))[1].add(sharers)
    return tuple(
        CpuCache(f"L{level}", size, min(threads, len(sharers))) for level, (size, sharers) in sorted(levels.items())
    )


def _usable_cpus() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _read_sysfs_cache(folder: Path) -> tuple[int, int, str] | None:
    """(level, bytes, CPUs that share it) of a sysfs entry; None for an instruction cache or an unreadable entry."""
    try:
        kind, level, size, sharers = (
            (folder / name).read_text().strip() for name in ("type", "level", "size", "shared_cpu_list")
        )
        digits, unit = re.fullmatch(r"(\d+)([KMG]?)", size).groups()  # type: ignore[union-attr]
    except (OSError, AttributeError):
        return None
    return None if kind == "Instruction" else (int(level), int(digits) * _UNITS[unit], sharers)


def _read_sysctl_caches(threads: int) -> tuple[CpuCache, ...]:
    """macOS: caches of the performance cores, if there are two kinds; a cluster shares one L2."""
    l1 = _sysctl_int("hw.perflevel0.l1dcachesize") or _sysctl_int("hw.l1dcachesize")
    l2 = _sysctl_int("hw.perflevel0.l2cachesize") or _sysctl_int("hw.l2cachesize")
    l3 = _sysctl_int("hw.l3cachesize")
    sharing = _sysctl_int("hw.perflevel0.cpusperl2") or 1
    sizes = (("L1", l1, threads), ("L2", l2, -(-threads // sharing)), ("L3", l3, 1))
    return tuple(CpuCache(name, size, count) for name, size, count in sizes if size)


def _sysctl_int(name: str) -> int:
    text = sysctl_text(name)
    return int(text) if text.isdigit() else 0


def sysctl_text(name: str) -> str:
    """Output of macOS's `sysctl -n NAME`; empty if the name is unknown."""
    try:
        completed = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return completed.stdout.strip()
