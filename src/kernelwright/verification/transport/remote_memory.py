"""What the judge can reach of a child's memory: the host's by the system, the device's by what both have opened."""

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
    """Of a child that computes on the host."""

    alignment_bytes = 64
    device = "cpu"
    cache_flush_bytes = 0
    """Of what has to be read before a call, so that the last cache holds nothing of it."""

    def __init__(self, child: Child) -> None:
        self.child = child

    def allocate_arena(self, size: int) -> int:
        """Room in the child for its inputs; where it lies there."""
        return self.child.call(ALLOCATE_ARENA_TASK, {"bytes": size})

    def read(self, extent: Extent) -> Tensor:
        """The bytes that lie there now.

        Raises:
            ForgedError: nothing does.
            CrashError: the process is gone.
        """
        if not extent[1]:
            return torch.empty(0, dtype=torch.uint8, device=self.device)
        try:
            return torch.frombuffer(process_memory.read(self.child.pid, *extent), dtype=torch.uint8)
        except (OSError, OverflowError, struct.error) as fault:
            if isinstance(fault, ProcessLookupError):
                raise CrashError("the process was killed while its outputs were read") from fault
            raise TamperingError(f"something is said to lie where no memory is: {fault}") from fault

    def write(self, address: int, data: Tensor) -> None:
        process_memory.write(self.child.pid, address, data.numpy().data)

    def fill_redzones(self, before: Extent, block: Extent, after: Extent) -> None:
        """Writes poison before and after where a block will lie; there too, where the candidate cannot be stopped."""
        for address, size in (before, after):
            self.write(address, _poison_bytes(self.device)[:size])

    def flush_caches(self, size: int) -> None:
        """Reads so much else that a cache of this size holds nothing of a call. One thread does: none spins on."""
        _flush_buffer(size).sum()

    def synchronize(self) -> None:
        """Returns once all that was written is there."""

    def map_segments(self, segments: Sequence[Segment]) -> None:
        """Takes note of memory of the device in which something of the child's lies."""

    def map_reported_segments(self, status: CallStatus, control_block: int) -> None:
        """The same of what a letter tells."""

    def lock_device(self) -> AbstractContextManager[Any]:
        """No other judge of this machine times a call meanwhile, where they would get in each other's way."""
        return contextlib.nullcontext()

    def make_snapshot(self, sizes: list[int], inputs: list[Extent]) -> Snapshot:
        """What will be read of a call's outputs, of these sizes in bytes, the moment it is over."""
        return SampledSnapshot(sizes, inputs)

    def close(self) -> None:
        """When the child is gone."""


class RemoteDeviceMemory(RemoteMemory):
    """Of a child that computes on the device, into memory of ours and its own."""

    alignment_bytes = 512
    device = "cuda"

    def __init__(self, child: Child) -> None:
        super().__init__(child)
        self.cache_flush_bytes = 2 * torch.cuda.get_device_properties().L2_cache_size
        self._mapped: dict[int, tuple[int, int, bytes]] = {}
        """By the base in the child: where it lies here, its size, its handle."""
        self._allocated: list[int] = []

    def allocate_arena(self, size: int) -> int:
        segment = device_memory.allocate(size)
        self._allocated.append(segment.base)
        there = self.child.call(ALLOCATE_ARENA_TASK, {"bytes": segment.size_bytes, "handle": segment.ipc_handle})
        self._mapped[there] = segment.base, segment.size_bytes, segment.ipc_handle
        return there

    def read(self, extent: Extent) -> Tensor:
        here = self._mapped_address(extent)
        return super().read(extent) if here is None else device_memory.view_device_bytes(here, extent[1]).clone()

    def write(self, address: int, data: Tensor) -> None:
        here = self._mapped_address((address, len(data)))
        if here is None:
            super().write(address, data.cpu())
        else:
            device_memory.view_device_bytes(here, len(data)).copy_(data)

    def fill_redzones(self, before: Extent, block: Extent, after: Extent) -> None:
        whole = before[0], before[1] + block[1] + after[1]
        here = self._mapped_address(whole)
        assert here is not None
        device_memory.view_device_bytes(here, whole[1]).fill_(POISON_BYTE)

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
                here = device_memory.open_ipc_handle(handle)
            except (DriverError, ValueError) as fault:
                raise TamperingError(f"memory of the device that cannot be opened: {fault}") from fault
            if known and known[0] not in self._allocated:
                device_memory.close_ipc_handle(known[0])
            self._mapped[base] = here, sum(device_memory.address_range(here)) - here, handle

    def map_reported_segments(self, status: CallStatus, control_block: int) -> None:
        if status.num_segments:
            told = process_memory.read(
                self.child.pid, control_block + SEGMENTS_OFFSET, status.num_segments * SEGMENT_STRUCT.size
            )
            self.map_segments(parse_segments(told))

    @contextlib.contextmanager
    def lock_device(self) -> Iterator[None]:
        import fcntl

        with Path(tempfile.gettempdir(), f"kernelwright-{os.getuid()}-{_device_uuid()}.lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield

    def make_snapshot(self, sizes: list[int], inputs: list[Extent]) -> Snapshot:
        return FullSnapshot(sizes, self.read)

    def close(self) -> None:
        with contextlib.suppress(DriverError):
            for here, _, _ in self._mapped.values():
                if here not in self._allocated:
                    device_memory.close_ipc_handle(here)
            for base in self._allocated:
                device_memory.free(base)
        self._mapped, self._allocated = {}, []

    def _mapped_address(self, extent: Extent) -> int | None:
        """Where it lies here, if it is memory of the device."""
        address, size = extent
        for base, (here, whole, _) in self._mapped.items():
            if base <= address and address + size <= base + whole:
                return here + address - base
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
