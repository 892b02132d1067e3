"""Restrictions of a child before it runs user code.

Each protection is one function, called in order by `restrict_process`, and one entry of `protections`. Stronger ones
(Landlock, namespaces, seccomp) follow in `isolation`, after everything that they would block has been opened.
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

from kernelwright.core.cache import cache_dir, compiler_folders
from kernelwright.sandbox.limits import Limits

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
DEFAULT_ENVIRONMENT = {
    "OMP_WAIT_POLICY": "PASSIVE",  # two spinning libgomp processes slow each other sixty-fold
    "THP_MEM_ALLOC_ENABLE": "1",  # page faults dominate large eager programs without it
}
"""Thread waiting and memory allocation policy, the same in every process of this package; read when torch is loaded.
Variables that the user has set are kept."""

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
    """Names of the protections that apply to every run."""
    time_limit = f"time limit {limits.call_timeout_s:g} s" if limits else "time limit"
    return ("own process", time_limit, "memory limit", "stripped environment", "private scratch folder")


def filter_environment() -> dict[str, str]:
    """The environment of the fork server, with all cache folders set, because HOME moves to the scratch folder."""
    kept = {
        name: value for name, value in os.environ.items() if name in KEPT_VARIABLES or name.startswith(KEPT_PREFIXES)
    }
    caches = cache_dir("").resolve()
    return compiler_folders(caches) | DEFAULT_ENVIRONMENT | kept | {"KERNELWRIGHT_CACHE": str(caches)}


def restrict_process(scratch_dir: str, channel: int, output: int, parent_pid: int) -> int:
    """Restrict this newly forked process.

    Args:
        scratch_dir: a private empty folder, which becomes the working folder, HOME and TMPDIR.
        channel: the only descriptor kept open in addition to stdin, stdout and stderr.
        output: becomes stdout and stderr; stdin is empty.
        parent_pid: this process is killed when that one dies.
    Returns:
        The channel's descriptor, which may have changed.
    """
    os.setsid()
    die_with_parent(parent_pid)
    channel = redirect_descriptors(channel, output)
    disable_core_dumps()
    os.chdir(scratch_dir)
    tempfile.tempdir = scratch_dir
    os.environ.update(HOME=scratch_dir, TMPDIR=scratch_dir)  # the rest was filtered when the fork server started
    sys.dont_write_bytecode = True
    return channel


def die_with_parent(parent_pid: int) -> None:
    """Linux: have the kernel kill this process when its parent dies, and prefer it when memory runs out."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("900")


def become_subreaper() -> None:
    """Linux: make orphaned descendants children of this process, so that it can kill them."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def prctl(option: int, value: int) -> None:
    """Call Linux's prctl; does nothing on other systems."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def redirect_descriptors(channel: int, output: int) -> int:
    """Keep only stdin (empty), stdout and stderr (`output`) and the channel open, as descriptors 0 to 3."""
    sys.stdout.flush()
    sys.stderr.flush()
    channel, output = (_duplicate_above(number, 3) for number in (channel, output))
    null_device = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null_device, 0), (output, 1), (output, 2), (channel, 3)):
        os.dup2(source, target, inheritable=target < 3)
    os.closerange(4, _highest_descriptor() + 1)
    return 3


def _duplicate_above(number: int, highest_reserved: int) -> int:
    """A copy of a descriptor that dup2 to 0..highest_reserved cannot overwrite."""
    import fcntl

    return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, highest_reserved + 1)


def _highest_descriptor() -> int:
    listing = Path("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")
    return max(int(entry.name) for entry in listing.iterdir())


def disable_core_dumps() -> None:
    """Set the core file size limit to zero."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def hide_argument(value: str) -> None:
    """Overwrite an argument of this process's command line, or the part after its `=`, which the system shows to every
    other process. The command line of a shell that started this process cannot be changed."""
    if sys.platform != "linux":
        return
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, of which the third field is the first here
    at = start
    for argument in ctypes.string_at(start, end - start).split(b"\0"):
        if argument == value.encode() or argument.endswith(b"=" + value.encode()):
            ctypes.memset(at + len(argument) - len(value), ord("x"), len(value))
        at += len(argument) + 1
