"""Device memory shared by two processes: one allocates it, the other opens it by its IPC handle.

Used in both processes; has no access to the expected values. Source: the CUDA driver API's interprocess
communication.
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
"""The driver allocates in pages of this size. Sizes are rounded up to it, so that no IPC handle exposes other data."""
_LAZY_PEER_ACCESS = 1


class Segment(NamedTuple):
    """An allocation of the driver, at its address in the process that owns it."""

    base: int
    size_bytes: int
    ipc_handle: bytes


class _IpcHandle(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * HANDLE_BYTES),)


class DriverError(Exception):
    """A CUDA driver call failed."""


@functools.cache
def _driver() -> ctypes.CDLL:
    torch.cuda.init()
    torch.cuda.synchronize()  # driver calls need a current context
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
    """Reset persisting L2 lines to normal, so that the next flush evicts them."""
    with contextlib.suppress(DriverError):  # not supported before sm_80
        _call_driver("cuCtxResetPersistingL2Cache")


def allocate(size: int) -> Segment:
    """Allocate at least this many bytes, in pages that contain nothing else."""
    address, size = ctypes.c_uint64(), -(-size // ALLOCATION_GRANULARITY_BYTES) * ALLOCATION_GRANULARITY_BYTES
    _call_driver("cuMemAlloc_v2", ctypes.byref(address), size)
    return Segment(address.value, size, _get_ipc_handle(address.value))


def free(base: int) -> None:
    """Free memory from `allocate`."""
    _call_driver("cuMemFree_v2", base)


def find_segment(address: int) -> Segment | None:
    """The allocation that contains an address; None for memory that cannot be shared, such as an asynchronous pool."""
    try:
        base, size = address_range(address)
        return Segment(base, size, _get_ipc_handle(base))
    except DriverError:
        return None


def address_range(address: int) -> tuple[int, int]:
    """Base and size of the allocation, own or opened, at an address."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    _call_driver("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), address)
    return base.value, size.value


def _get_ipc_handle(base: int) -> bytes:
    handle = _IpcHandle()
    _call_driver("cuIpcGetMemHandle", ctypes.byref(handle), base)
    return ctypes.string_at(ctypes.byref(handle), HANDLE_BYTES)


def open_ipc_handle(handle: bytes) -> int:
    """Open another process's allocation; its address in this process."""
    address = ctypes.c_uint64()
    _call_driver("cuIpcOpenMemHandle_v2", ctypes.byref(address), _IpcHandle.from_buffer_copy(handle), _LAZY_PEER_ACCESS)
    return address.value


def close_ipc_handle(address: int) -> None:
    """Close an allocation opened by `open_ipc_handle`."""
    _call_driver("cuIpcCloseMemHandle", address)


def view_device_bytes(address: int, size: int) -> Tensor:
    """A view of device memory; it does not keep the memory alive."""
    return (
        torch.as_tensor(_CudaArrayView(address, size), device="cuda")
        if size
        else torch.empty(0, dtype=torch.uint8).cuda()
    )


def register_host_memory(address: int, size: int) -> None:
    """Make host memory readable on the device, at the same address."""
    _call_driver("cuMemHostRegister_v2", address, size, 0)


def stream_wait_value(address: int, word: int) -> None:
    """Make the current stream wait until the low 32 bits of the word at this address reach this value."""
    stream = torch.cuda.current_stream().cuda_stream
    _call_driver("cuStreamWaitValue32_v2", stream, address, word & 0xFFFFFFFF, 0)


class _CudaArrayView:
    def __init__(self, address: int, size: int) -> None:
        interface = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}
        self.__cuda_array_interface__ = interface


@functools.cache
def supports_ipc() -> bool:
    """Whether device memory can be shared between processes and a stream can wait for a word, tested on this device."""
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
