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
ALLOCATION_GRANULARITY_BYTES = 2 << 20
"""What the driver hands out lies in pages of this size: no handle of ours opens one that holds something else too."""
_LAZY_PEER_ACCESS = 1


class Segment(NamedTuple):
    """What the driver handed out in one piece, as the process that has it sees it."""

    base: int
    size_bytes: int
    ipc_handle: bytes


class _IpcHandle(ctypes.Structure):
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
    driver.cuIpcOpenMemHandle_v2.argtypes = (pointer, _IpcHandle, ctypes.c_uint)
    driver.cuMemHostRegister_v2.argtypes = (pointer, size, ctypes.c_uint)
    driver.cuMemHostUnregister.argtypes = (pointer,)
    driver.cuStreamWaitValue32_v2.argtypes = (pointer, address, ctypes.c_uint32, ctypes.c_uint)
    return driver


def _call_driver(call: str, *arguments: Any) -> None:
    if error := getattr(_driver(), call)(*arguments):
        raise DriverError(f"{call}: error {error}")


def reset_persisting_l2() -> None:
    """What somebody marked as persisting in the L2 is there like everything else, and goes with the next flush."""
    with contextlib.suppress(DriverError):  # devices before sm_80 know nothing of it
        _call_driver("cuCtxResetPersistingL2Cache")


def allocate(size: int) -> Segment:
    """New memory that nothing else shares a page with, so many bytes at least."""
    address, size = ctypes.c_uint64(), -(-size // ALLOCATION_GRANULARITY_BYTES) * ALLOCATION_GRANULARITY_BYTES
    _call_driver("cuMemAlloc_v2", ctypes.byref(address), size)
    return Segment(address.value, size, _get_ipc_handle(address.value))


def free(base: int) -> None:
    _call_driver("cuMemFree_v2", base)


def find_segment(address: int) -> Segment | None:
    """Where an address lies; None for memory that cannot be handed on, such as an asynchronous pool's."""
    try:
        base, size = address_range(address)
        return Segment(base, size, _get_ipc_handle(base))
    except DriverError:
        return None


def address_range(address: int) -> tuple[int, int]:
    """The base and the size of what the driver handed out, or opened, there."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    _call_driver("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), address)
    return base.value, size.value


def _get_ipc_handle(base: int) -> bytes:
    handle = _IpcHandle()
    _call_driver("cuIpcGetMemHandle", ctypes.byref(handle), base)
    return ctypes.string_at(ctypes.byref(handle), HANDLE_BYTES)


def open_ipc_handle(handle: bytes) -> int:
    """Where another process's memory lies in this one."""
    address = ctypes.c_uint64()
    _call_driver("cuIpcOpenMemHandle_v2", ctypes.byref(address), _IpcHandle.from_buffer_copy(handle), _LAZY_PEER_ACCESS)
    return address.value


def close_ipc_handle(address: int) -> None:
    _call_driver("cuIpcCloseMemHandle", address)


def view_device_bytes(address: int, size: int) -> Tensor:
    """What lies there, not copied. Nobody keeps it alive."""
    return (
        torch.as_tensor(_CudaArrayView(address, size), device="cuda")
        if size
        else torch.empty(0, dtype=torch.uint8).cuda()
    )


def register_host_memory(address: int, size: int) -> None:
    """The device can read this memory of the host from now on, where the host has it."""
    _call_driver("cuMemHostRegister_v2", address, size, 0)


def stream_wait_value(address: int, word: int) -> None:
    """What comes on the current stream waits until the lower half of a word there is this number or a later one."""
    stream = torch.cuda.current_stream().cuda_stream
    _call_driver("cuStreamWaitValue32_v2", stream, address, word & 0xFFFFFFFF, 0)


class _CudaArrayView:
    def __init__(self, address: int, size: int) -> None:
        described = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}
        self.__cuda_array_interface__ = described


@functools.cache
def supports_ipc() -> bool:
    """Whether memory of the device can be handed to another process here, and a stream waits for a word: tried."""
    try:
        free(allocate(1).base)
        with mmap.mmap(-1, mmap.PAGESIZE) as page:
            address = ctypes.addressof(ctypes.c_char.from_buffer(page))
            register_host_memory(address, mmap.PAGESIZE)
            stream_wait_value(address, 0)
            torch.cuda.synchronize()
            _call_driver("cuMemHostUnregister", address)
    except (DriverError, OSError, RuntimeError):
        return False
    return True
