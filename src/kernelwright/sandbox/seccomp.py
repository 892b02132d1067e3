"""Seccomp filter for system calls that no kernel under test needs.

It denies calls that inspect or modify other processes, change priorities, load code into the kernel, provide memory
lazily (userfaultfd), or have signals sent later (a stopped process would continue on SIGCONT). Processors, scheduling
and limits may only be changed for the calling process (0).

Source: the kernel's userspace-api/seccomp_filter; numbers of x86-64 and of the generic table (AArch64).
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import sys

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_X32 = 0x40000000
_ALLOW, _DENY = 0x7FFF0000, 0x00050000 | errno.EPERM
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _FIRST_ARGUMENT_OFFSET = 0, 4, 16
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_DENIED_SYSCALLS = {
    "x86_64": (101, 165, 166, 175, 222, 244, 246, 248, 249, 250, 272, 298, 308, 310, 311, 312, 313, 321, 323, 425, 438),
    "aarch64": (40, 39, 97, 104, 105, 107, 117, 184, 217, 218, 219, 241, 268, 270, 271, 272, 273, 280, 282, 425, 438),
}
"""ptrace, mount, umount, init_module, timer_create, mq_notify, kexec_load, add_key, request_key, keyctl, unshare,
perf_event_open, setns, process_vm_readv, process_vm_writev, kcmp, finit_module, bpf, userfaultfd, io_uring_setup,
pidfd_getfd."""
_PRIORITY_SYSCALLS = {"x86_64": (141, 251), "aarch64": (140, 30)}
"""setpriority, ioprio_set."""
_OWN_SYSCALLS = {"x86_64": (142, 144, 203, 302, 314), "aarch64": (118, 119, 122, 261, 274)}
"""sched_setparam, sched_setscheduler, sched_setaffinity, prlimit64, sched_setattr: the first argument is a process."""


def install_filter() -> bool:
    """Deny the system calls with EPERM to this process and its children; requires PR_SET_NO_NEW_PRIVS.

    Returns:
        Whether the filter is in effect: on Linux, x86-64 or AArch64.
    """
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _ARCHITECTURES:
        return False
    denied = _DENIED_SYSCALLS[machine] + _PRIORITY_SYSCALLS[machine]
    own = [step for number in _OWN_SYSCALLS[machine] for step in _allow_for_caller(number)]
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        # Other ABIs have other numbers for the same calls (32-bit x86, x32): deny them all.
        (_JUMP_EQUAL, 0, len(denied) + len(own) + 3, _ARCHITECTURES[machine]),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
        (_JUMP_AT_LEAST, len(denied) + len(own) + 1, 0, _X32),
        *((_JUMP_EQUAL, len(denied) - at + len(own), 0, number) for at, number in enumerate(denied)),
        *own,
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _DENY),
    ]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    packed = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(program)))
    return ctypes.CDLL(None, use_errno=True).prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, packed, 0, 0) == 0


def _allow_for_caller(number: int) -> list[tuple[int, int, int, int]]:
    """Steps that decide on a call of this number by its first argument."""
    return [
        (_JUMP_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_OFFSET),
        (_JUMP_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _DENY),
    ]
