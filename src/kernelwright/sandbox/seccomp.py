"""System calls that no kernel under judgement needs, refused by a seccomp filter: those that look into or move other
processes, load code into the operating system, hand memory out lazily (userfaultfd), or send signals by themselves: a
process that is stopped would go on by SIGCONT.

Source: the kernel's userspace-api/seccomp_filter; numbers of x86-64 and of arm64's generic table.
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
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_DENIED_SYSCALLS = {
    "x86_64": (101, 165, 166, 175, 222, 244, 246, 248, 249, 250, 272, 298, 308, 310, 311, 312, 313, 321, 323, 425, 438),
    "aarch64": (40, 39, 97, 104, 105, 107, 117, 184, 217, 218, 219, 241, 268, 270, 271, 272, 273, 280, 282, 425, 438),
}
"""ptrace, mount, umount, init_module, timer_create, mq_notify, kexec_load, add_key, request_key, keyctl, unshare,
perf_event_open, setns, process_vm_readv, process_vm_writev, kcmp, finit_module, bpf, userfaultfd, io_uring_setup,
pidfd_getfd."""


def install_filter() -> bool:
    """Refuses them from now on, with EPERM, to this process and all that it starts; needs `no_new_privileges`.

    Returns:
        Whether it holds: on Linux, x86-64 or arm64.
    """
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _ARCHITECTURES:
        return False
    refused = _DENIED_SYSCALLS[machine]
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        # Other numbers for the same calls (x86 in 32 bits, x32): none of them.
        (_JUMP_EQUAL, 0, len(refused) + 3, _ARCHITECTURES[machine]),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
        (_JUMP_AT_LEAST, len(refused) + 1, 0, _X32),
        *((_JUMP_EQUAL, len(refused) - at, 0, number) for at, number in enumerate(refused)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _DENY),
    ]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    packed = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(program)))
    return ctypes.CDLL(None, use_errno=True).prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, packed, 0, 0) == 0
