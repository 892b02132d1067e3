"""Further isolation of a child before it runs untrusted code: one function per protection, called by `isolate`.

Linux only; each protection applies where the system allows it to this process.
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

from kernelwright.core.cache import READ_ONLY_CACHE, compiler_folders
from kernelwright.sandbox import landlock, seccomp
from kernelwright.sandbox.process_limits import die_with_parent, prctl

PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWNET = 0x08000000, 0x10000000, 0x40000000
CAPABILITIES_VERSION = 0x20080522
MAX_FILE_BYTES = 8 << 30
COMPILE_CACHES = ("cpp", "cuda", "owned")
"""Folders of the cache that hold compiler output, named by the language."""
LINKED_CACHES = ("owned",)
"""Files that `kw optimize` wrote depend on torch alone: they look into one folder, which links to the shared one."""
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
    """File system access of untrusted code.

    Attributes:
        readable_paths: folders and files in addition to Python's and the system's own.
        cache_dir: private folder for compiler output, kept from one process to the next.
        allow_cuda: the code runs on a CUDA device; the CUDA library renames its threads through /proc.
        compile_cache: folder of torch.compile and Triton, instead of those in `cache_dir`.
    """

    readable_paths: tuple[str, ...]
    cache_dir: str
    allow_cuda: bool = False
    compile_cache: str = ""


def isolate(isolation: Isolation, scratch_dir: str, parent_pid: int) -> list[str]:
    """Isolate this newly forked and already restricted process.

    Returns:
        The names of the protections in effect.
    """
    if sys.platform != "linux":
        return []
    shared_caches = use_private_cache(isolation.cache_dir)
    if isolation.compile_cache:
        os.environ.update(compiler_folders(Path(isolation.compile_cache)))
    active = unshare_namespaces()
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    paths = [
        sys.prefix,
        sys.base_prefix,
        *SYSTEM_FOLDERS,
        *filter(None, sys.path),
        *shared_caches,
        *isolation.readable_paths,
    ]
    library_paths = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    devices = ["/dev", *(["/proc/self"] if isolation.allow_cuda else [])]
    if abi := landlock.restrict_files(
        [*paths, *filter(None, library_paths)],
        [scratch_dir, isolation.cache_dir, *filter(None, [isolation.compile_cache])],
        devices,
    ):
        active.append(f"restricted file system (Landlock ABI {abi})")
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    if seccomp.install_filter():
        active.append("seccomp filter")
    if drop_capabilities():
        active.append("no capabilities")
    # A change of credentials resets both: the parent-death signal, and being readable by the verifier.
    die_with_parent(parent_pid)
    prctl(PR_SET_DUMPABLE, 1)
    return active


def use_private_cache(cache_dir: str) -> list[str]:
    """Direct compiler output to a private folder; the shared caches are read-only.

    Returns:
        The shared cache folders, which the process must be able to read.
    """
    root, folders = os.environ.get("KERNELWRIGHT_CACHE"), []
    for kind in COMPILE_CACHES if root else ():
        shared, own = Path(root or "", kind), Path(cache_dir, kind)
        own.mkdir(parents=True, exist_ok=True)
        if shared.is_dir():
            folders.append(str(shared))
        if shared.is_dir() and kind in LINKED_CACHES:
            for name in {file.name for file in shared.iterdir()} - {file.name for file in own.iterdir()}:
                with contextlib.suppress(FileExistsError):
                    (own / name).symlink_to(shared / name)
    if root:
        os.environ[READ_ONLY_CACHE] = root
    os.environ.update(
        **compiler_folders(Path(cache_dir)),
        KERNELWRIGHT_CACHE=cache_dir,
        TORCHINDUCTOR_COMPILE_THREADS="1",  # a pool of compilers needs semaphores in /dev/shm
    )
    return folders


def unshare_namespaces() -> list[str]:
    """Enter network and IPC namespaces without any connection, and a user namespace where the system allows it."""
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    for flags in (CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC, CLONE_NEWNET | CLONE_NEWIPC):
        if unshare(flags) == 0:
            return ["no network", *(["user namespace"] if flags & CLONE_NEWUSER else [])]
    return []


def drop_capabilities() -> bool:
    """Drop all capabilities of root; returns whether that succeeded."""
    header, empty_sets = struct.pack("=Ii", CAPABILITIES_VERSION, 0), bytes(24)
    return ctypes.CDLL(None, use_errno=True).capset(header, empty_sets) == 0
