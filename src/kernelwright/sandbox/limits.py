"""Time and memory limits of a child, and their enforcement from outside."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

from kernelwright.core.errors import CrashError, MemoryLimitError, TimeLimitError
from kernelwright.core.units import bytes_text

MEMORY_SHARE = 0.8
MEMORY_POLL_S = 0.05
KILL_POLL_S = 0.005
MAX_PROCESSES = 256


@dataclass(frozen=True)
class Limits:
    """Limits of one run.

    Attributes:
        call_timeout_s: seconds from the start of a call to its result.
        memory_bytes: resident memory of the child and its descendants; None is 80 % of what is available when the run
            starts.
        build_timeout_s: limit for the call that loads a program (import, compilation, construction); None is
            `call_timeout_s`.
    """

    call_timeout_s: float
    memory_bytes: int | None = None
    build_timeout_s: float | None = None


class Deadline:
    """A deadline that can be restarted; a timeout of None never expires."""

    def __init__(self, timeout_s: float | None) -> None:
        self.stage = ""
        self.restart(timeout_s)

    def restart(self, timeout_s: float | None) -> None:
        """Set the deadline to `timeout_s` from now."""
        self._timeout_s = timeout_s
        self._deadline_s = None if timeout_s is None else time.monotonic() + timeout_s

    def check(self) -> None:
        """Check the deadline.

        Raises:
            TimeLimitError: the deadline has passed.
        """
        if self._deadline_s is not None and time.monotonic() > self._deadline_s:
            what = f" at: {self.stage}" if self.stage else ""
            raise TimeLimitError(f"stopped after {self._timeout_s:g} s{what}", where=self.stage)


class MemoryMonitor:
    """Resident memory of a process and its descendants, sampled every 50 ms.

    Resident rather than virtual, because CUDA reserves far more address space than it uses. Pages shared after a fork
    are counted in each process, so the sum is an upper bound.

    Args:
        pid: root of the process tree.
        memory_bytes: the limit; None is 80 % of what is available now.
        exclude_root: do not count the root itself, a subreaper that also has the orphans as children.
    """

    def __init__(self, pid: int, memory_bytes: int | None, *, exclude_root: bool = False) -> None:
        import psutil

        self._limit = memory_bytes or int(MEMORY_SHARE * psutil.virtual_memory().available)
        self._pid, self._num_skipped, self._next_poll_s = pid, int(exclude_root), 0.0

    def check(self) -> None:
        """Check the limits, at most every 50 ms.

        Raises:
            MemoryLimitError: resident memory exceeds the limit.
            CrashError: more than `MAX_PROCESSES` processes are running.
        """
        if time.monotonic() < self._next_poll_s:
            return
        processes = process_tree(self._pid)[self._num_skipped :]
        if len(processes) > MAX_PROCESSES:
            raise CrashError(f"the program started {len(processes)} processes, the limit is {MAX_PROCESSES}")
        used = sum(resident_bytes(process) for process in processes)
        # Set afterwards: listing many processes must not use up the whole interval.
        self._next_poll_s = time.monotonic() + MEMORY_POLL_S
        if used > self._limit:
            raise MemoryLimitError(
                f"used {bytes_text(used)} of memory, the limit is {bytes_text(self._limit)}",
                next="try smaller inputs, or a machine with more memory",
            )


def process_tree(pid: int) -> list:
    """The psutil processes of a process and its descendants; empty if it is gone."""
    import psutil

    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


def resident_bytes(process) -> int:
    """Resident memory of a psutil process; 0 if it is gone."""
    import psutil

    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0


def wait_or_kill(processes: list, grace_s: float) -> None:
    """Wait until these psutil processes have ended, and kill those that are still running after `grace_s`."""
    import psutil

    for process in psutil.wait_procs(processes, timeout=grace_s)[1]:
        kill_process_tree(process.pid)


def kill_process_tree(pid: int, wait_s: float = 0.0) -> None:
    """Kill a process group, its process and all descendants; those already gone are ignored.

    Args:
        wait_s: how long to wait at most until all have ended; they are killed at once, but die a little later.
    """
    tree = process_tree(pid)
    for kill, target in [(os.killpg, pid), *((os.kill, one) for one in {pid, *(process.pid for process in tree)})]:
        try:
            kill(target, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    deadline_s = time.monotonic() + wait_s
    while time.monotonic() < deadline_s and any(runs(process) for process in tree):
        time.sleep(KILL_POLL_S)


def runs(process) -> bool:
    """Whether a psutil process has not ended; one that ended and was not waited for does not run."""
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
