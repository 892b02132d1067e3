"""The verifier's access to a child's memory: host memory through the operating system, device memory through IPC."""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from kernelwright.core.errors import CrashError, TamperingError
from kernelwright.sandbox import Child, process_memory
from kernelwright.verification.attacks.redzone import POISON_BYTE, REDZONE_BYTES
from kernelwright.verification.transport import device_memory
from kernelwright.verification.transport.control_block import (
    SEGMENT_STRUCT,
    SEGMENTS_OFFSET,
    CallStatus,
    Extent,
    parse_segments,
)
from kernelwright.verification.transport.device_memory import DriverError, Segment
from kernelwright.verification.transport.snapshot import FullSnapshot, SampledSnapshot, Snapshot

ALLOCATE_ARENA_TASK = "kernelwright.verification.worker.tasks:allocate_arena"


class RemoteMemory:
    """Memory of a child that computes on the host."""

    alignment_bytes = 64
    device = "cpu"
    cache_flush_bytes = 0
    """Bytes to read before a call so that the last-level cache is flushed."""

    def __init__(self, child: Child) -> None:
        self.child = child

    def allocate_arena(self, size: int) -> int:
        """Allocate memory in the child for its inputs; its address in the child."""
        return self.child.call(ALLOCATE_ARENA_TASK, {"bytes": size})

    def read(self, extent: Extent) -> Tensor:
        """The bytes at an extent.

        Raises:
            TamperingError: the memory is not mapped.
            CrashError: the process has exited.
        """
        if not extent[1]:
            return torch.empty(0, dtype=torch.uint8, device=self.device)
        try:
            return torch.frombuffer(process_memory.read(self.child.pid, *extent), dtype=torch.uint8)
        except (OSError, OverflowError, struct.error) as error:
            if isinstance(error, ProcessLookupError):
                raise CrashError("the process was killed while its outputs were read") from error
            raise TamperingError(f"reported address is not mapped: {error}") from error

    def write(self, address: int, data: Tensor) -> None:
        process_memory.write(self.child.pid, address, data.numpy().data)

    def fill_redzones(self, before: Extent, block: Extent, after: Extent) -> None:
        """Poison the redzones before and after a block; on a device also the block itself, because the candidate
        cannot be stopped there."""
        for address, size in (before, after):
            self.write(address, _poison_bytes(self.device)[:size])

    def flush_caches(self, size: int) -> None:
        """Flush a cache of this size by reading other memory, on one thread, so that no thread keeps spinning."""
        _flush_buffer(size).sum()

    def synchronize(self) -> None:
        """Wait until all writes have arrived."""

    def map_segments(self, segments: Sequence[Segment]) -> None:
        """Map device allocations of the child."""

    def map_reported_segments(self, status: CallStatus, control_block: int) -> None:
        """Map the segments in a status."""

    def lock_device(self) -> AbstractContextManager[Any]:
        """Exclusive lock against other verifiers on this machine, where calls would disturb each other."""
        return contextlib.nullcontext()

    def make_snapshot(self, sizes: list[int], inputs: list[Extent]) -> Snapshot:
        """The snapshot to be taken of outputs of these sizes in bytes."""
        return SampledSnapshot(sizes, inputs)

    def close(self) -> None:
        """Release everything; called after the child has exited."""


class RemoteDeviceMemory(RemoteMemory):
    """Memory of a child that computes on the device."""

    alignment_bytes = 512
    device = "cuda"

    def __init__(self, child: Child) -> None:
        super().__init__(child)
        self.cache_flush_bytes = 2 * torch.cuda.get_device_properties().L2_cache_size
        self._mapped: dict[int, tuple[int, int, bytes]] = {}
        """By base address in the child: address in this process, size, IPC handle."""
        self._allocated: list[int] = []

    def allocate_arena(self, size: int) -> int:
        segment = device_memory.allocate(size)
        self._allocated.append(segment.base)
        child_address = self.child.call(
            ALLOCATE_ARENA_TASK, {"bytes": segment.size_bytes, "handle": segment.ipc_handle}
        )
        self._mapped[child_address] = segment.base, segment.size_bytes, segment.ipc_handle
        return child_address

    def read(self, extent: Extent) -> Tensor:
        address = self._mapped_address(extent)
        return super().read(extent) if address is None else device_memory.view_device_bytes(address, extent[1]).clone()

    def write(self, address: int, data: Tensor) -> None:
        local_address = self._mapped_address((address, len(data)))
        if local_address is None:
            super().write(address, data.cpu())
        else:
            device_memory.view_device_bytes(local_address, len(data)).copy_(data)

    def fill_redzones(self, before: Extent, block: Extent, after: Extent) -> None:
        whole = before[0], before[1] + block[1] + after[1]
        address = self._mapped_address(whole)
        assert address is not None
        device_memory.view_device_bytes(address, whole[1]).fill_(POISON_BYTE)

    def flush_caches(self, size: int) -> None:
        if size:
            device_memory.reset_persisting_l2()
            memory, result = _device_flush_buffer(size)
            torch.sum(memory, dim=0, out=result)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def map_segments(self, segments: Sequence[Segment]) -> None:
        for base, _, handle in segments:
            known = self._mapped.get(base)
            if known and known[2] == handle:
                continue
            try:
                address = device_memory.open_ipc_handle(handle)
            except (DriverError, ValueError) as error:
                raise TamperingError(f"reported device memory cannot be opened: {error}") from error
            if known and known[0] not in self._allocated:
                device_memory.close_ipc_handle(known[0])
            self._mapped[base] = address, sum(device_memory.address_range(address)) - address, handle

    def map_reported_segments(self, status: CallStatus, control_block: int) -> None:
        if status.num_segments:
            data = process_memory.read(
                self.child.pid, control_block + SEGMENTS_OFFSET, status.num_segments * SEGMENT_STRUCT.size
            )
            self.map_segments(parse_segments(data))

    @contextlib.contextmanager
    def lock_device(self) -> Iterator[None]:
        import fcntl

        with Path(tempfile.gettempdir(), f"kernelwright-{os.getuid()}-{_device_uuid()}.lock").open("w") as lock_file:
            fcntl.flock(lock_file, fcntl.LOCK_EX)
            yield

    def make_snapshot(self, sizes: list[int], inputs: list[Extent]) -> Snapshot:
        return FullSnapshot(sizes, self.read)

    def close(self) -> None:
        with contextlib.suppress(DriverError):
            for address, _, _ in self._mapped.values():
                if address not in self._allocated:
                    device_memory.close_ipc_handle(address)
            for base in self._allocated:
                device_memory.free(base)
        self._mapped, self._allocated = {}, []

    def _mapped_address(self, extent: Extent) -> int | None:
        """The address in this process, or None where the extent is not in mapped device memory."""
        address, size = extent
        for base, (local_base, size_bytes, _) in self._mapped.items():
            if base <= address and address + size <= base + size_bytes:
                return local_base + address - base
        return None


@functools.cache
def _poison_bytes(device: str) -> Tensor:
    return torch.full((2 * REDZONE_BYTES,), POISON_BYTE, dtype=torch.uint8, device=device)


@functools.cache
def _flush_buffer(size: int) -> numpy.ndarray:
    return numpy.ones(size // 8, dtype=numpy.int64)


@functools.cache
def _device_flush_buffer(size: int) -> tuple[Tensor, Tensor]:
    return torch.ones(size // 4, dtype=torch.float32, device="cuda"), torch.empty((), device="cuda")


def _device_uuid() -> str:
    """The same in every process that uses this device."""
    return str(torch.cuda.get_device_properties().uuid)
