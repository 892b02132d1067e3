"""How long and how large a child may become, and the watch that enforces it from outside."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

from kernelwright.core.errors import CrashError, MemoryLimitError, TimeLimitError
from kernelwright.core.units import bytes_text

MEMORY_SHARE = 0.8
MEMORY_POLL_S = 0.05
MAX_PROCESSES = 256


@dataclass(frozen=True)
class Limits:
    """What one run may use.

    Attributes:
        call_timeout_s: seconds from a call to its answer.
        memory_bytes: resident memory of the child and everything it started; None is 80 % of what is available
            when the run starts.
        build_timeout_s: the same as `call_timeout_s` for the call that loads a program: imports, compiles and
            constructs it; None is `call_timeout_s`.
    """

    call_timeout_s: float
    memory_bytes: int | None = None
    build_timeout_s: float | None = None


class Deadline:
    """A point in time that may be moved; None seconds never pass."""

    def __init__(self, timeout_s: float | None) -> None:
        self.stage = ""
        self.restart(timeout_s)

    def restart(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._deadline_s = None if timeout_s is None else time.monotonic() + timeout_s

    def check(self) -> None:
        """Raises:
        TimeLimitError: the time is over.
        """
        if self._deadline_s is not None and time.monotonic() > self._deadline_s:
            what = f" at: {self.stage}" if self.stage else ""
            raise TimeLimitError(f"stopped after {self._timeout_s:g} s{what}", where=self.stage)


class MemoryMonitor:
    """Resident memory of a process and of all that it started, looked at every 50 ms; `exclude_root`, without its own:
    an adopter has also what lost its parent.

    Resident rather than virtual, because CUDA reserves far more address space than it uses. Pages shared after a
    fork are counted in each process, so the sum is an upper bound.
    """

    def __init__(self, pid: int, memory_bytes: int | None, *, exclude_root: bool = False) -> None:
        import psutil

        self._limit = memory_bytes or int(MEMORY_SHARE * psutil.virtual_memory().available)
        self._pid, self._skipped, self._next_look = pid, int(exclude_root), 0.0

    def check(self) -> None:
        """Raises:
        MemoryLimitError: more is resident than the limit.
        CrashError: there are more processes than anything needs.
        """
        if time.monotonic() < self._next_look:
            return
        processes = process_tree(self._pid)[self._skipped :]
        if len(processes) > MAX_PROCESSES:
            raise CrashError(f"it started {len(processes)} processes, the limit is {MAX_PROCESSES}")
        used = sum(resident_bytes(process) for process in processes)
        # Set after the look: walking many processes must not eat the whole interval.
        self._next_look = time.monotonic() + MEMORY_POLL_S
        if used > self._limit:
            raise MemoryLimitError(
                f"it held {bytes_text(used)} of memory, the limit is {bytes_text(self._limit)}",
                next="try smaller inputs, or a machine with more memory",
            )


def process_tree(pid: int) -> list:
    """The process and all its descendants; an empty list when it is gone."""
    import psutil

    try:
        head = psutil.Process(pid)
        return [head, *head.children(recursive=True)]
    except psutil.Error:
        return []


def resident_bytes(process) -> int:
    import psutil

    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0


def wait_or_kill(processes: list, grace_s: float) -> None:
    """Waits until these psutil processes have ended, and kills whoever has not by then."""
    import psutil

    for process in psutil.wait_procs(processes, timeout=grace_s)[1]:
        kill_process_tree(process.pid)


def kill_process_tree(pid: int) -> None:
    """Kills the process's group, the process and its descendants; whoever is gone already is no error."""
    found = [process.pid for process in process_tree(pid)]
    for kill, target in [(os.killpg, pid), *((os.kill, each) for each in {pid, *found})]:
        try:
            kill(target, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
