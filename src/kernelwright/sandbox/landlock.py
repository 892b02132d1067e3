"""Linux Landlock: restrict file system, network and signal access of a process and its children.

Source: the kernel's userspace-api/landlock, structures and bits as of ABI 7.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1
_EXECUTE, _WRITE, _READ, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_DEVICES = 1 << 6 | 1 << 11
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_NUM_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Number of file access rights that each ABI version defines; later ones define those of 5."""
_TCP, _SCOPED = 0b11, 0b11
_NETWORK_SINCE, _SCOPED_SINCE = 4, 6


def abi_version() -> int:
    """Landlock's ABI version; 0 if it is not available."""
    if sys.platform != "linux":
        return 0
    return max(0, _landlock_call(_CREATE, None, 0, _VERSION))


def restrict_files(readable: Iterable[str], writable: Iterable[str], devices: Iterable[str] = ("/dev",)) -> int:
    """Restrict this process and its children to these folders and files; requires PR_SET_NO_NEW_PRIVS.

    Also blocks TCP (ABI 4 and later) and signals and abstract sockets to outside processes (ABI 6 and later). At every
    ABI, processes outside cannot be traced and their memory cannot be read.

    Returns:
        The ABI version in effect; 0 if Landlock is not available and nothing is restricted.
    """
    if not (abi := abi_version()):
        return 0
    rights = (1 << _NUM_RIGHTS_BY_ABI[min(abi, 5)]) - 1
    fields = (rights, _TCP if abi >= _NETWORK_SINCE else 0, _SCOPED if abi >= _SCOPED_SINCE else 0)
    count = 3 if abi >= _SCOPED_SINCE else 2 if abi >= _NETWORK_SINCE else 1
    rules = _landlock_call(_CREATE, struct.pack(f"{count}Q", *fields[:count]), 8 * count, 0)
    if rules < 0:
        return 0
    try:
        for path in readable:
            _add_rule(rules, path, rights & (_EXECUTE | _READ | _READ_DIR))
        for path in devices:
            _add_rule(rules, path, rights & (_READ | _READ_DIR | _WRITE | _TRUNCATE | _IOCTL))
        for path in writable:
            _add_rule(rules, path, rights & ~_MAKE_DEVICES)
        return abi if _landlock_call(_RESTRICT, rules, 0) == 0 else 0
    finally:
        os.close(rules)


def _add_rule(rules: int, path: str, rights: int) -> None:
    """Allow access to one path and everything below it; a missing path needs no rule."""
    with contextlib.suppress(OSError):
        number = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not Path(path).is_dir():
                rights &= _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
            _landlock_call(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", rights, number), 0)
        finally:
            os.close(number)


def _landlock_call(number: int, *arguments: int | bytes | None) -> int:
    call = ctypes.CDLL(None, use_errno=True).syscall
    return call(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
