"""What a child gives up before it runs a person's code.

Each protection is one function here, called in order by `restrict_process`, and one line of `protections`. A stronger
one (Landlock, namespaces, an unprivileged user) is added the same way, last, when everything it needs is open.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path

from kernelwright.core.cache import cache_dir
from kernelwright.sandbox.limits import Limits

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
DEFAULT_ENVIRONMENT = {
    "OMP_WAIT_POLICY": "PASSIVE",  # two spinning libgomp processes slow each other sixty-fold
    "THP_MEM_ALLOC_ENABLE": "1",  # page faults dominate large eager programs without it
}
"""How threads wait and memory is allocated, alike in every process that we start; read when torch is loaded. What a
person has set is kept."""

KEPT_VARIABLES = (
    "PATH",
    "LANG",
    "USER",
    "LOGNAME",
    "CC",
    "CXX",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "PYTHONPATH",
    *DEFAULT_ENVIRONMENT,
)
KEPT_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "OMP_", "MKL_", "KERNELWRIGHT_", "KW_", "TRITON_", "TORCHINDUCTOR_")


def protections(limits: Limits | None = None) -> tuple[str, ...]:
    """The names of the protections under which a run stands."""
    time_limit = f"time limit {limits.call_timeout_s:g} s" if limits else "time limit"
    return ("own process", time_limit, "memory limit", "stripped environment", "private scratch folder")


def filter_environment() -> dict[str, str]:
    """The variables that the nursery keeps, with every cache named, because HOME will move to the scratch folder."""
    kept = {
        name: value for name, value in os.environ.items() if name in KEPT_VARIABLES or name.startswith(KEPT_PREFIXES)
    }
    caches = cache_dir("").resolve()
    defaults = {"TRITON_CACHE_DIR": str(caches / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor")}
    return defaults | DEFAULT_ENVIRONMENT | kept | {"KERNELWRIGHT_CACHE": str(caches)}


def restrict_process(scratch_dir: str, channel: int, output: int, parent_pid: int) -> int:
    """Cuts this freshly forked process off.

    Args:
        scratch_dir: a private empty folder, which becomes the working folder, HOME and TMPDIR.
        channel: the one descriptor that stays open beside stdin, stdout and stderr.
        output: becomes stdout and stderr; stdin is empty.
        parent_pid: the process with which this one must die.
    Returns:
        The channel's descriptor, which may have moved.
    """
    os.setsid()
    die_with_parent(parent_pid)
    channel = redirect_descriptors(channel, output)
    disable_core_dumps()
    os.chdir(scratch_dir)
    tempfile.tempdir = scratch_dir
    os.environ.update(HOME=scratch_dir, TMPDIR=scratch_dir)  # the rest was stripped when the nursery was started
    sys.dont_write_bytecode = True
    return channel


def die_with_parent(parent_pid: int) -> None:
    """Linux: the kernel kills this process when its parent dies, and prefers it when memory runs out."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("900")


def become_subreaper() -> None:
    """Linux: descendants that lose their parent become this process's children, so that it can end them."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def redirect_descriptors(channel: int, output: int) -> int:
    """Leaves stdin (empty), stdout and stderr (`output`) and the channel open, as 0 to 3."""
    sys.stdout.flush()
    sys.stderr.flush()
    channel, output = (_duplicate_above(number, 3) for number in (channel, output))
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2), (channel, 3)):
        os.dup2(source, target, inheritable=target < 3)
    os.closerange(4, _highest_descriptor() + 1)
    return 3


def _duplicate_above(number: int, least: int) -> int:
    """A copy of a descriptor that dup2 to 0..least cannot overwrite."""
    import fcntl

    return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, least + 1)


def _highest_descriptor() -> int:
    listing = Path("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")
    return max(int(entry.name) for entry in listing.iterdir())


def disable_core_dumps() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def hide_argument(value: str) -> None:
    """Overwrites an argument of this process's command line, or what follows `=` in one, where the system shows it to
    every other process. The command line of a shell that started this one is not ours to change."""
    if sys.platform != "linux":
        return
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, of which the third field is the first here
    at = start
    for argument in ctypes.string_at(start, end - start).split(b"\0"):
        if argument == value.encode() or argument.endswith(b"=" + value.encode()):
            ctypes.memset(at + len(argument) - len(value), ord("x"), len(value))
        at += len(argument) + 1
