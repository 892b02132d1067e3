"""A child seen from outside: stopped and continued, its memory read and written, whatever it says of itself.

Linux alone: the calls are `process_vm_readv` and `process_vm_writev`, allowed to whoever may trace the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import platform
import signal
import struct
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

STOP_TIMEOUT_S, STOP_POLL_S = 5.0, 20e-6
_PR_SET_TIMERSLACK = 29
FUTEX_SYSCALL = {"x86_64": "202", "aarch64": "98"}
RECEIVE_SYSCALLS = {"x86_64": ("45", "47"), "aarch64": ("207", "212")}
"""Numbers of recvfrom and recvmsg."""
WAIT_SYSCALLS = {
    "x86_64": ("0", "7", "23", "61", "232", "247", "270", "271", "281"),
    "aarch64": ("22", "63", "72", "73", "95", "260"),
}
"""Numbers of read, of poll, select and epoll in their forms, and of what waits for a process to end."""
IOV_MAX = 1024
"""How many pieces one call takes (IOV_MAX)."""


def can_inspect() -> bool:
    """Whether the memory of children can be reached here: tried on ourselves."""
    if sys.platform != "linux":
        return False
    sample = ctypes.create_string_buffer(b"sample")
    try:
        return bytes(read(os.getpid(), ctypes.addressof(sample), 6)) == b"sample"
    except OSError:
        return False


def read(pid: int, address: int, size: int) -> bytearray:
    """So many bytes of a process's memory.

    Raises:
        OSError: nothing lies there, or it may not be read.
    """
    return read_extents(pid, [(address, size)])


def read_extents(pid: int, extents: Sequence[tuple[int, int]]) -> bytearray:
    """Several (address, size) one after the other, up to `IOV_MAX` in one call.

    Raises:
        OSError: nothing lies there, or it may not be read.
    """
    into = bytearray(sum(size for _, size in extents))
    if into:
        transfer("process_vm_readv", pid, memoryview(into), extents)
    return into


def write(pid: int, address: int, data: memoryview) -> None:
    """Raises:
    OSError: nothing lies there, or it may not be written.
    """
    if len(data):
        transfer("process_vm_writev", pid, data, [(address, len(data))])


def transfer(call: str, pid: int, buffer: memoryview, extents: Sequence[tuple[int, int]]) -> None:
    """Moves between `buffer`, which is contiguous and writable, and the pieces there."""
    start = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    size, done, pieces = len(buffer), 0, list(extents)
    while done < size:
        now = pieces[:IOV_MAX]
        local = struct.pack("@PN", start + done, size - done)
        far = struct.pack("@" + "PN" * len(now), *itertools.chain.from_iterable(now))
        moved = _libc_functions()[call](pid, local, 1, far, len(now), 0)
        if moved <= 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        done += moved
        pieces = _remaining_extents(pieces, moved)


@functools.cache
def _libc_functions() -> dict[str, Callable[..., int]]:
    """The two calls: every microsecond of theirs lies in somebody's window."""
    library, found = ctypes.CDLL(None, use_errno=True), {}
    for name in ("process_vm_readv", "process_vm_writev"):
        found[name] = function = getattr(library, name)
        function.restype = ctypes.c_ssize_t
        unsigned = ctypes.c_ulong
        function.argtypes = (ctypes.c_int, ctypes.c_char_p, unsigned, ctypes.c_char_p, unsigned, unsigned)
    return found


def _remaining_extents(pieces: list[tuple[int, int]], moved: int) -> list[tuple[int, int]]:
    """What is left of the pieces: one call moves at most 2 GiB, and stops where a page is not there."""
    for at, (address, size) in enumerate(pieces):
        if moved < size:
            return [(address + moved, size - moved), *pieces[at + 1 :]]
        moved -= size
    return []


def descendants(pid: int) -> list[int]:
    """Processes that a process started, and what those started."""
    found: list[int] = []
    todo = [pid]
    while todo:
        for thread in _threads(todo.pop()):
            with contextlib.suppress(OSError):
                started = [int(one) for one in (thread / "children").read_text().split()]
                found += started
                todo += started
    return found


def stop(pid: int, reaper_pid: int) -> list[int]:
    """Stops a process and all that it started, and waits until every thread of theirs stands still.

    Args:
        reaper_pid: its parent, under which whatever it started stays, also what has lost its own parent.
    Returns:
        Those that were stopped, for `resume`.
    Raises:
        TimeoutError: one runs on.
    """
    _signal(pid, signal.SIGSTOP)  # before anything else: whoever stops a process may mean this very moment
    stopped, until = [pid], time.monotonic() + STOP_TIMEOUT_S
    while True:
        still = all(map(_is_stopped, stopped))
        started = [one for one in descendants(reaper_pid) if one not in stopped]
        if still and not started:
            return stopped
        for one in started:
            _signal(one, signal.SIGSTOP)
        stopped += started
        if time.monotonic() > until:
            raise TimeoutError(f"process {pid} or one that it started did not stop")
        pause(STOP_POLL_S)  # to stop, a thread needs a processor


def read_run_counts(pids: Sequence[int]) -> tuple[int, int]:
    """How often all threads of these have been given a processor so far, and for how many nanoseconds; zeros where the
    system does not say."""
    times = nanoseconds = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - for every call of a candidate
                with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:  # noqa: PTH123
                    took, _, slices = map(int, file.read().split())
                times, nanoseconds = times + slices, nanoseconds + took
    return times, nanoseconds


def set_timer_slack() -> None:
    """From now on a pause of this thread ends within a microsecond of its time; else fifty."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1000), 0, 0, 0)


def pause(seconds: float) -> None:
    """Leaves the processor to others for so long."""
    time.sleep(seconds)


def queued_us(pid: int) -> float:
    """How long a process's first thread has waited for a processor so far, as the system says; 0 where it does not."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e3
    except (OSError, ValueError, IndexError):
        return 0.0


def find_running_threads(pid: int) -> dict[int, tuple[int, int]]:
    """Where the threads of a stopped process were that computed when it was stopped: instruction and top of the stack.

    By number of the thread, the first has the process's. Those that waited in the system are left out.
    """
    found = {}
    for thread in _threads(pid):
        with contextlib.suppress(OSError):
            match (thread / "syscall").read_text().split():
                case ["-1", stack, instruction]:
                    found[int(thread.name)] = int(instruction, 16), int(stack, 16)
    return found


def find_futex_stack(pid: int) -> int | None:
    """The top of a stopped process's first stack, where that thread waited for another (in a futex)."""
    match _current_syscall(pid):
        case [number, *_, stack, _] if number == FUTEX_SYSCALL.get(platform.machine()):
            return int(stack, 16)
    return None


def waits_for_message(pid: int) -> bool:
    """Whether the first thread of a stopped process waited for a message."""
    return (_current_syscall(pid) or [""])[0] in RECEIVE_SYSCALLS.get(platform.machine(), ())


def waits_for_process_or_file(pid: int) -> bool:
    """Whether the first thread of a stopped process waited for a file or pipe, or for a process to end."""
    return (_current_syscall(pid) or [""])[0] in WAIT_SYSCALLS.get(platform.machine(), ())


def _current_syscall(pid: int) -> list[str]:
    """The system call that the first thread of a stopped process is in, with its arguments."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/syscall").read_text().split()
    return []


def list_code_mappings(pid: int) -> list[tuple[int, int, str]]:
    """What of a process's memory is code: start, end, and the file it comes from, empty for what was made at run time.

    Raises:
        OSError: it is gone, or may not be looked into.
    """
    found = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, rights, _, _, _, *path = line.split(maxsplit=5)
        if "x" in rights:
            start, _, end = span.partition("-")
            found.append((int(start, 16), int(end, 16), path[0] if path else ""))
    return found


def resume(pids: Sequence[int]) -> None:
    for pid in pids:
        _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_stopped(pid: int) -> bool:
    return all(_thread_state(thread) in b"TtZX" for thread in _threads(pid))


def _threads(pid: int) -> list[Path]:
    """A folder for each thread of a process; none where the process has gone, also while they are listed."""
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _thread_state(thread: Path) -> bytes:
    try:
        return (thread / "stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return b"X"
