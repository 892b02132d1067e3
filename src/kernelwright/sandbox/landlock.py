"""Linux's Landlock: what of the file system, the network and other processes is left to a process and its children.

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
"""How many of the rights over files each version knows; later ones know those of 5."""
_TCP, _SCOPED = 0b11, 0b11
_NETWORK_SINCE, _SCOPED_SINCE = 4, 6


def abi_version() -> int:
    """Landlock's ABI here; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    return max(0, _landlock_call(_CREATE, None, 0, _VERSION))


def restrict_files(readable: Iterable[str], writable: Iterable[str], devices: Iterable[str] = ("/dev",)) -> int:
    """Leaves this process and all that it starts these folders and files alone; needs `no_new_privileges`.

    Neither TCP from ABI 4 on, nor signals and abstract sockets to whoever is outside from 6 on; from 1 on, nobody
    outside can be traced, and their memory not be read.

    Returns:
        The ABI that holds now; 0 where there is none, and nothing is restricted.
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
    """One path and what lies beneath it; a path that is not there needs no rule."""
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
