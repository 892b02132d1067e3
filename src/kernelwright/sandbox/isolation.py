"""What a child gives up besides before it runs a stranger's code: each protection one function, called by `isolate`.

Linux alone, and of it what the system at hand lets everybody or us do.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

from kernelwright.sandbox import landlock, seccomp
from kernelwright.sandbox.process_limits import die_with_parent, prctl

PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWNET = 0x08000000, 0x10000000, 0x40000000
CAPABILITIES_VERSION = 0x20080522
MAX_FILE_BYTES = 8 << 30
COMPILE_CACHES = ("cpp", "cuda", "owned")
"""The folders of the cache that hold what a compiler made, by what it was made from."""
SYSTEM_FOLDERS = (
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/sbin",
    "/etc",
    "/opt",
    "/proc",
    "/sys",
    "/nix",
    "/run/opengl-driver",
)


@dataclass(frozen=True)
class Isolation:
    """What is left of the file system to a stranger.

    Attributes:
        readable_paths: folders and files besides Python's and the system's own.
        cache_dir: a folder for what is compiled, the stranger's alone, kept from one process to the next.
        allow_cuda: it computes on a device of CUDA, whose library names its threads in /proc.
    """

    readable_paths: tuple[str, ...]
    cache_dir: str
    allow_cuda: bool = False


def isolate(isolation: Isolation, scratch_dir: str, parent_pid: int) -> list[str]:
    """Cuts this process, freshly forked and confined, off from what a stranger has no business with.

    Returns:
        The names of the protections that hold.
    """
    if sys.platform != "linux":
        return []
    shared = use_private_cache(isolation.cache_dir)
    held = unshare_namespaces()
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    paths = [sys.prefix, sys.base_prefix, *SYSTEM_FOLDERS, *filter(None, sys.path), *shared, *isolation.readable_paths]
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    devices = ["/dev", *(["/proc/self"] if isolation.allow_cuda else [])]
    if abi := landlock.restrict_files([*paths, *filter(None, libraries)], [scratch_dir, isolation.cache_dir], devices):
        held.append(f"files read-only and few (Landlock {abi})")
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    if seccomp.install_filter():
        held.append("system calls refused")
    if drop_capabilities():
        held.append("no privileges")
    # A change of credentials undoes both: the first watches over the end, the second lets its memory be read.
    die_with_parent(parent_pid)
    prctl(PR_SET_DUMPABLE, 1)
    return held


def use_private_cache(cache_dir: str) -> list[str]:
    """What is compiled from now on is kept in a folder of this stranger's own, in which it finds what others compiled.

    Returns:
        The folders of the others, which it has to be able to read.
    """
    root, folders = os.environ.get("KERNELWRIGHT_CACHE"), []
    for kind in COMPILE_CACHES if root else ():
        others, own = Path(root or "", kind), Path(cache_dir, kind)
        own.mkdir(parents=True, exist_ok=True)
        if others.is_dir():
            folders.append(str(others))
            for name in {file.name for file in others.iterdir()} - {file.name for file in own.iterdir()}:
                with contextlib.suppress(FileExistsError):
                    (own / name).symlink_to(others / name)
    os.environ.update(
        KERNELWRIGHT_CACHE=cache_dir,
        TRITON_CACHE_DIR=str(Path(cache_dir, "triton")),
        TORCHINDUCTOR_CACHE_DIR=str(Path(cache_dir, "inductor")),
        TORCHINDUCTOR_COMPILE_THREADS="1",  # a pool of compilers needs semaphores in /dev/shm
    )
    return folders


def unshare_namespaces() -> list[str]:
    """A network without any way out and no privileges, where the system lets everybody or us have that."""
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    for flags in (CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC, CLONE_NEWNET | CLONE_NEWIPC):
        if unshare(flags) == 0:
            return ["no network", *(["no user of this system"] if flags & CLONE_NEWUSER else [])]
    return []


def drop_capabilities() -> bool:
    """Whether this process has none of root's rights from now on."""
    header, none = struct.pack("=Ii", CAPABILITIES_VERSION, 0), bytes(24)
    return ctypes.CDLL(None, use_errno=True).capset(header, none) == 0
