"""Stop, resume and inspect a child from outside, and read and write its memory, without its cooperation.

Linux only: uses `process_vm_readv` and `process_vm_writev`, permitted to processes that may trace the child.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import mmap
import os
import platform
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

STOP_TIMEOUT_S, STOP_POLL_S = 5.0, 20e-6
_PR_SET_TIMERSLACK = 29
FUTEX_SYSCALL = {"x86_64": "202", "aarch64": "98"}
RECEIVE_SYSCALLS = {"x86_64": ("45", "47"), "aarch64": ("207", "212")}
"""Syscall numbers of recvfrom and recvmsg."""
WAIT_SYSCALLS = {
    "x86_64": ("0", "7", "23", "61", "232", "247", "270", "271", "281"),
    "aarch64": ("22", "63", "72", "73", "95", "260"),
}
"""Syscall numbers of read, of the variants of poll, select and epoll, and of waiting for a process to end."""
IOV_MAX = 1024
"""Maximum number of extents per call."""


@functools.cache
def can_inspect() -> bool:
    """Whether the memory of children can be read on this system; tested on one."""
    if sys.platform != "linux":
        return False
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:
        try:
            start = Path(f"/proc/{child.pid}/maps").read_text().partition("-")[0]
            return len(read(child.pid, int(start, 16), 1)) == 1
        except (OSError, ValueError):
            return False
        finally:
            child.communicate()


def read(pid: int, address: int, size: int) -> bytearray:
    """Read `size` bytes of a process's memory.

    Raises:
        OSError: the address is not mapped or may not be read.
    """
    return read_extents(pid, [(address, size)])


def read_extents(pid: int, extents: Sequence[tuple[int, int]]) -> bytearray:
    """Read several (address, size) extents, concatenated, up to `IOV_MAX` of them in one call.

    Raises:
        OSError: an address is not mapped or may not be read.
    """
    data = bytearray(sum(size for _, size in extents))
    if data:
        transfer("process_vm_readv", pid, memoryview(data), extents)
    return data


def write(pid: int, address: int, data: memoryview) -> None:
    """Write to a process's memory.

    Raises:
        OSError: the address is not mapped or may not be written.
    """
    if len(data):
        transfer("process_vm_writev", pid, data, [(address, len(data))])


def write_extents(pid: int, data: memoryview, extents: Sequence[tuple[int, int]]) -> None:
    """Write consecutive parts of `data` to several (address, size) extents.

    Raises:
        OSError: an address is not mapped or may not be written; those before it are written.
    """
    if len(data):
        transfer("process_vm_writev", pid, data, extents)


def transfer(call: str, pid: int, buffer: memoryview, extents: Sequence[tuple[int, int]]) -> None:
    """Copy between `buffer`, which is contiguous and writable, and the extents of the process."""
    start = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    size, done, remaining = len(buffer), 0, list(extents)
    while done < size:
        batch = remaining[:IOV_MAX]
        local = struct.pack("@PN", start + done, size - done)
        remote = struct.pack("@" + "PN" * len(batch), *itertools.chain.from_iterable(batch))
        moved = _libc_functions()[call](pid, local, 1, remote, len(batch), 0)
        if moved <= 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        done += moved
        remaining = _remaining_extents(remaining, moved)


@functools.cache
def _libc_functions() -> dict[str, Callable[..., int]]:
    """The two libc functions with their argument types; cached because every microsecond counts in a timed call."""
    library, functions = ctypes.CDLL(None, use_errno=True), {}
    for name in ("process_vm_readv", "process_vm_writev"):
        functions[name] = function = getattr(library, name)
        function.restype = ctypes.c_ssize_t
        unsigned = ctypes.c_ulong
        function.argtypes = (ctypes.c_int, ctypes.c_char_p, unsigned, ctypes.c_char_p, unsigned, unsigned)
    return functions


def _remaining_extents(extents: list[tuple[int, int]], moved: int) -> list[tuple[int, int]]:
    """The extents that are left: one call moves at most 2 GiB, and stops at an unmapped page."""
    for at, (address, size) in enumerate(extents):
        if moved < size:
            return [(address + moved, size - moved), *extents[at + 1 :]]
        moved -= size
    return []


def descendants(pid: int) -> list[int]:
    """Process ids of all descendants of a process."""
    pids: list[int] = []
    todo = [pid]
    while todo:
        for thread in _threads(todo.pop()):
            with contextlib.suppress(OSError):
                started = [int(one) for one in (thread / "children").read_text().split()]
                pids += started
                todo += started
    return pids


def stop(pid: int, reaper_pid: int) -> list[int]:
    """Stop a process and its descendants, and wait until every thread of theirs is stopped.

    Args:
        reaper_pid: the subreaper above the process, which also has its orphaned descendants as children.
    Returns:
        The stopped processes, for `resume`.
    Raises:
        TimeoutError: a process keeps running.
    """
    _signal(pid, signal.SIGSTOP)  # first: the caller may depend on the exact time
    stopped, until = [pid], time.monotonic() + STOP_TIMEOUT_S
    while True:
        all_stopped = all(map(_is_stopped, stopped))
        started = [one for one in descendants(reaper_pid) if one not in stopped]
        if all_stopped and not started:
            return stopped
        for one in started:
            _signal(one, signal.SIGSTOP)
        stopped += started
        if time.monotonic() > until:
            raise TimeoutError(f"process {pid} or one of its descendants did not stop")
        pause(STOP_POLL_S)  # a thread needs a CPU in order to stop


def read_run_counts(pids: Sequence[int]) -> tuple[int, int]:
    """How many time slices the threads of these processes have run, and for how many nanoseconds; zeros if unknown."""
    times = nanoseconds = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - for every call of a candidate
                with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:  # noqa: PTH123
                    took, _, slices = map(int, file.read().split())
                times, nanoseconds = times + slices, nanoseconds + took
    return times, nanoseconds


def set_timer_slack() -> None:
    """Let sleeps of this thread end within 1 us of their time instead of 50 us."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1000), 0, 0, 0)


def pause(seconds: float) -> None:
    """Yield the CPU for this long."""
    time.sleep(seconds)


def queued_us(pid: int) -> float:
    """How long a process's first thread has waited for a CPU so far; 0 if unknown."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e3
    except (OSError, ValueError, IndexError):
        return 0.0


def computed_us(pid: int) -> float:
    """How long a process's first thread has computed so far; 0 if unknown."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e3
    except (OSError, ValueError, IndexError):
        return 0.0


class PageFaults(NamedTuple):
    """How many pages of memory the threads of a process, and its children that have ended, have touched for the first
    time so far."""

    own: int = 0
    of_children: int = 0


def count_page_faults(pid: int) -> PageFaults:
    """The page faults of a process; zeros if unknown."""
    try:
        own, of_children = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[7:9]
        return PageFaults(int(own), int(of_children))
    except (OSError, ValueError):
        return PageFaults()


def resident_bytes(pid: int) -> int:
    """Memory of a process that is not swapped out; 0 if unknown."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        return 0


def find_running_threads(pid: int) -> dict[int, tuple[int, int]]:
    """Instruction pointer and stack pointer of the threads that were running when the process was stopped.

    Keyed by thread id; the first thread has the process's. Threads that were blocked in a system call are left out.
    """
    running = {}
    for thread in _threads(pid):
        with contextlib.suppress(OSError):
            match (thread / "syscall").read_text().split():
                case ["-1", stack, instruction]:
                    running[int(thread.name)] = int(instruction, 16), int(stack, 16)
    return running


def find_futex_stack(pid: int) -> int | None:
    """Stack pointer of a stopped process's first thread if it was waiting for another thread (in a futex)."""
    match _current_syscall(pid):
        case [number, *_, stack, _] if number == FUTEX_SYSCALL.get(platform.machine()):
            return int(stack, 16)
    return None


def waits_for_message(pid: int) -> bool:
    """Whether the first thread of a stopped process was waiting for a message."""
    return (_current_syscall(pid) or [""])[0] in RECEIVE_SYSCALLS.get(platform.machine(), ())


def waits_for_process_or_file(pid: int) -> bool:
    """Whether the first thread of a stopped process was waiting for a file, a pipe or the end of a process."""
    return (_current_syscall(pid) or [""])[0] in WAIT_SYSCALLS.get(platform.machine(), ())


def _current_syscall(pid: int) -> list[str]:
    """The system call that the first thread of a stopped process is in, with its arguments."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/syscall").read_text().split()
    return []


def list_code_mappings(pid: int) -> list[tuple[int, int, str]]:
    """Executable mappings of a process: start, end and file, which is empty for code generated at run time.

    Raises:
        OSError: the process is gone or may not be inspected.
    """
    mappings = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, permissions, _, _, _, *path = line.split(maxsplit=5)
        if "x" in permissions:
            start, _, end = span.partition("-")
            mappings.append((int(start, 16), int(end, 16), path[0] if path else ""))
    return mappings


def resume(pids: Sequence[int]) -> None:
    """Continue stopped processes."""
    for pid in pids:
        _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_stopped(pid: int) -> bool:
    return all(_thread_state(thread) in b"TtZX" for thread in _threads(pid))


def _threads(pid: int) -> list[Path]:
    """The /proc folder of each thread; empty if the process has gone, also while they are listed."""
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _thread_state(thread: Path) -> bytes:
    try:
        return (thread / "stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return b"X"
