"""Memory of the device that two processes see: one makes it or has it, the other opens it by a handle.

Used on both sides; knows nothing about what is right. Source: the driver's "interprocess communication" of CUDA.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
from typing import Any, NamedTuple

import torch
from torch import Tensor

HANDLE_BYTES = 64
WHOLE_BYTES = 2 << 20
"""What the driver hands out lies in pages of this size: no handle of ours opens one that holds something else too."""
_LAZY_PEER_ACCESS = 1


class Segment(NamedTuple):
    """What the driver handed out in one piece, as the process that has it sees it."""

    base: int
    size: int
    handle: bytes


class _Handle(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * HANDLE_BYTES),)


class DriverError(Exception):
    """The driver refused."""


@functools.cache
def _driver() -> ctypes.CDLL:
    torch.cuda.init()
    torch.cuda.synchronize()  # the driver's calls are for the context that is current
    driver = ctypes.CDLL("libcuda.so.1")
    pointer, size, address = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64
    driver.cuMemAlloc_v2.argtypes = (pointer, size)
    driver.cuMemFree_v2.argtypes = driver.cuIpcCloseMemHandle.argtypes = (address,)
    driver.cuMemGetAddressRange_v2.argtypes = (pointer, pointer, address)
    driver.cuIpcGetMemHandle.argtypes = (pointer, address)
    driver.cuIpcOpenMemHandle_v2.argtypes = (pointer, _Handle, ctypes.c_uint)
    driver.cuMemHostRegister_v2.argtypes = (pointer, size, ctypes.c_uint)
    driver.cuMemHostUnregister.argtypes = (pointer,)
    driver.cuStreamWaitValue32_v2.argtypes = (pointer, address, ctypes.c_uint32, ctypes.c_uint)
    return driver


def _asked(call: str, *arguments: Any) -> None:
    if error := getattr(_driver(), call)(*arguments):
        raise DriverError(f"{call}: error {error}")


def forget_persisting() -> None:
    """What somebody marked as persisting in the L2 is there like everything else, and goes with the next flush."""
    with contextlib.suppress(DriverError):  # devices before sm_80 know nothing of it
        _asked("cuCtxResetPersistingL2Cache")


def allocate(size: int) -> Segment:
    """New memory that nothing else shares a page with, so many bytes at least."""
    address, size = ctypes.c_uint64(), -(-size // WHOLE_BYTES) * WHOLE_BYTES
    _asked("cuMemAlloc_v2", ctypes.byref(address), size)
    return Segment(address.value, size, _handle_of(address.value))


def free(base: int) -> None:
    _asked("cuMemFree_v2", base)


def segment_of(address: int) -> Segment | None:
    """Where an address lies; None for memory that cannot be handed on, such as an asynchronous pool's."""
    try:
        base, size = range_of(address)
        return Segment(base, size, _handle_of(base))
    except DriverError:
        return None


def range_of(address: int) -> tuple[int, int]:
    """The base and the size of what the driver handed out, or opened, there."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    _asked("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), address)
    return base.value, size.value


def _handle_of(base: int) -> bytes:
    handle = _Handle()
    _asked("cuIpcGetMemHandle", ctypes.byref(handle), base)
    return ctypes.string_at(ctypes.byref(handle), HANDLE_BYTES)


def open_handle(handle: bytes) -> int:
    """Where another process's memory lies in this one."""
    address = ctypes.c_uint64()
    _asked("cuIpcOpenMemHandle_v2", ctypes.byref(address), _Handle.from_buffer_copy(handle), _LAZY_PEER_ACCESS)
    return address.value


def close(address: int) -> None:
    _asked("cuIpcCloseMemHandle", address)


def bytes_at(address: int, size: int) -> Tensor:
    """What lies there, not copied. Nobody keeps it alive."""
    return torch.as_tensor(_View(address, size), device="cuda") if size else torch.empty(0, dtype=torch.uint8).cuda()


def register_host(address: int, size: int) -> None:
    """The device can read this memory of the host from now on, where the host has it."""
    _asked("cuMemHostRegister_v2", address, size, 0)


def wait_for_word(address: int, word: int) -> None:
    """What comes on the current stream waits until the lower half of a word there is this number or a later one."""
    stream = torch.cuda.current_stream().cuda_stream
    _asked("cuStreamWaitValue32_v2", stream, address, word & 0xFFFFFFFF, 0)


class _View:
    def __init__(self, address: int, size: int) -> None:
        described = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}
        self.__cuda_array_interface__ = described


@functools.cache
def can_share() -> bool:
    """Whether memory of the device can be handed to another process here, and a stream waits for a word: tried."""
    try:
        free(allocate(1).base)
        with mmap.mmap(-1, mmap.PAGESIZE) as page:
            address = ctypes.addressof(ctypes.c_char.from_buffer(page))
            register_host(address, mmap.PAGESIZE)
            wait_for_word(address, 0)
            torch.cuda.synchronize()
            _asked("cuMemHostUnregister", address)
    except (DriverError, OSError, RuntimeError):
        return False
    return True
