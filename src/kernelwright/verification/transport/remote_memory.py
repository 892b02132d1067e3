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

from kernelwright.core.errors import CrashError, ForgedError
from kernelwright.sandbox import Child, process_memory
from kernelwright.verification.attacks.redzone import MARGIN_BYTES, POISON_BYTE
from kernelwright.verification.transport import device_memory
from kernelwright.verification.transport.control_block import SEGMENT, SEGMENTS_AT, Extent, Letter, read_segments
from kernelwright.verification.transport.device_memory import DriverError, Segment
from kernelwright.verification.transport.snapshot import Glance, Pieces, Whole

MAKE_ARENA = "kernelwright.verification.worker.tasks:make_arena"


class Reach:
    """Of a child that computes on the host."""

    aligned_bytes = 64
    device = "cpu"
    cache_bytes = 0
    """Of what has to be read before a call, so that the last cache holds nothing of it."""

    def __init__(self, child: Child) -> None:
        self.child = child

    def make_arena(self, size: int) -> int:
        """Room in the child for its inputs; where it lies there."""
        return self.child.call(MAKE_ARENA, {"bytes": size})

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
            raise ForgedError(f"something is said to lie where no memory is: {fault}") from fault

    def write(self, address: int, data: Tensor) -> None:
        process_memory.write(self.child.pid, address, data.numpy().data)

    def clear(self, before: Extent, block: Extent, after: Extent) -> None:
        """Writes poison before and after where a block will lie; there too, where the candidate cannot be stopped."""
        for address, size in (before, after):
            self.write(address, _poison(self.device)[:size])

    def forget_caches(self, size: int) -> None:
        """Reads so much else that a cache of this size holds nothing of a call. One thread does: none spins on."""
        _other_memory(size).sum()

    def settle(self) -> None:
        """Returns once all that was written is there."""

    def learn(self, segments: Sequence[Segment]) -> None:
        """Takes note of memory of the device in which something of the child's lies."""

    def learn_from(self, letter: Letter, mailbox: int) -> None:
        """The same of what a letter tells."""

    def alone(self) -> AbstractContextManager[Any]:
        """No other judge of this machine times a call meanwhile, where they would get in each other's way."""
        return contextlib.nullcontext()

    def glance(self, sizes: list[int], inputs: list[Extent]) -> Glance:
        """What will be read of a call's outputs, of these sizes in bytes, the moment it is over."""
        return Pieces(sizes, inputs)

    def close(self) -> None:
        """When the child is gone."""


class DeviceReach(Reach):
    """Of a child that computes on the device, into memory of ours and its own."""

    aligned_bytes = 512
    device = "cuda"

    def __init__(self, child: Child) -> None:
        super().__init__(child)
        self.cache_bytes = 2 * torch.cuda.get_device_properties().L2_cache_size
        self._here: dict[int, tuple[int, int, bytes]] = {}
        """By the base in the child: where it lies here, its size, its handle."""
        self._ours: list[int] = []

    def make_arena(self, size: int) -> int:
        segment = device_memory.allocate(size)
        self._ours.append(segment.base)
        there = self.child.call(MAKE_ARENA, {"bytes": segment.size, "handle": segment.handle})
        self._here[there] = segment.base, segment.size, segment.handle
        return there

    def read(self, extent: Extent) -> Tensor:
        here = self._place(extent)
        return super().read(extent) if here is None else device_memory.bytes_at(here, extent[1]).clone()

    def write(self, address: int, data: Tensor) -> None:
        here = self._place((address, len(data)))
        if here is None:
            super().write(address, data.cpu())
        else:
            device_memory.bytes_at(here, len(data)).copy_(data)

    def clear(self, before: Extent, block: Extent, after: Extent) -> None:
        whole = before[0], before[1] + block[1] + after[1]
        here = self._place(whole)
        assert here is not None
        device_memory.bytes_at(here, whole[1]).fill_(POISON_BYTE)

    def forget_caches(self, size: int) -> None:
        if size:
            device_memory.forget_persisting()
            memory, result = _other_device_memory(size)
            torch.sum(memory, dim=0, out=result)

    def settle(self) -> None:
        torch.cuda.synchronize()

    def learn(self, segments: Sequence[Segment]) -> None:
        for base, _, handle in segments:
            known = self._here.get(base)
            if known and known[2] == handle:
                continue
            try:
                here = device_memory.open_handle(handle)
            except (DriverError, ValueError) as fault:
                raise ForgedError(f"memory of the device that cannot be opened: {fault}") from fault
            if known and known[0] not in self._ours:
                device_memory.close(known[0])
            self._here[base] = here, sum(device_memory.range_of(here)) - here, handle

    def learn_from(self, letter: Letter, mailbox: int) -> None:
        if letter.segments:
            told = process_memory.read(self.child.pid, mailbox + SEGMENTS_AT, letter.segments * SEGMENT.size)
            self.learn(read_segments(told))

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        import fcntl

        with Path(tempfile.gettempdir(), f"kernelwright-{os.getuid()}-{_device_name()}.lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield

    def glance(self, sizes: list[int], inputs: list[Extent]) -> Glance:
        return Whole(sizes, self.read)

    def close(self) -> None:
        with contextlib.suppress(DriverError):
            for here, _, _ in self._here.values():
                if here not in self._ours:
                    device_memory.close(here)
            for base in self._ours:
                device_memory.free(base)
        self._here, self._ours = {}, []

    def _place(self, extent: Extent) -> int | None:
        """Where it lies here, if it is memory of the device."""
        address, size = extent
        for base, (here, whole, _) in self._here.items():
            if base <= address and address + size <= base + whole:
                return here + address - base
        return None


@functools.cache
def _poison(device: str) -> Tensor:
    return torch.full((2 * MARGIN_BYTES,), POISON_BYTE, dtype=torch.uint8, device=device)


@functools.cache
def _other_memory(size: int) -> numpy.ndarray:
    return numpy.ones(size // 8, dtype=numpy.int64)


@functools.cache
def _other_device_memory(size: int) -> tuple[Tensor, Tensor]:
    return torch.ones(size // 4, dtype=torch.float32, device="cuda"), torch.empty((), device="cuda")


def _device_name() -> str:
    """The same in every process that uses this device."""
    return str(torch.cuda.get_device_properties().uuid)
