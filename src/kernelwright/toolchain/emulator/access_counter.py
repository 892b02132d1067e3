"""Exact count of a kernel's memory accesses, as written in the source, while it runs on the CPU.

A memory instruction is a point in the source that reads or writes a tensor or shared memory; the lanes of a warp that
execute it together make one request. Nothing is optimised: a value that is read twice in the source counts twice, where
nvcc may keep it in a register. Local variables count as registers. `layouts.access` has the rules of sectors and banks.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.layouts.access import SECTOR_BYTES, WARP_SIZE, WORD_BYTES, count_conflicts
from kernelwright.toolchain.emulator.arguments import Argument, Dim3, LaunchShape, bind
from kernelwright.toolchain.emulator.build import EmulatedLibrary, load_library
from kernelwright.toolchain.emulator.code_map import read_code_map, resolve_lines
from kernelwright.toolchain.emulator.launcher import run_launch
from kernelwright.toolchain.emulator.source import translate_source

SHARED_OPERAND = 0xFFFF
_RUNTIME_LOCK = threading.Lock()
ACCESS_KINDS = {1: "load", 2: "store", 3: "atomic"}


@dataclass(frozen=True)
class MemoryInstruction:
    """One point in the source that accesses memory, with all its requests."""

    line: int
    kind: str
    """`global load`, `global store`, `global atomic`, `shared load`, `shared store` or `shared atomic`."""
    operand: str
    """Name of the parameter that points to the tensor; empty for shared memory."""
    access_bytes: int
    """Per lane."""
    requests: int
    """Warp-wide requests."""
    lanes: int
    """Active lanes, summed over all requests."""
    sectors: int = 0
    """32-byte sectors, summed over all requests; 0 for shared memory."""
    wavefronts: int = 0
    """Shared memory wavefronts, summed over all requests; 0 for global memory."""
    ideal_wavefronts: int = 0
    """Wavefronts without bank conflicts."""

    @property
    def is_shared(self) -> bool:
        return self.kind.startswith("shared")

    @property
    def bytes(self) -> int:
        """Bytes requested by the lanes."""
        return self.lanes * self.access_bytes

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / self.requests

    @property
    def wavefronts_per_request(self) -> float:
        return self.wavefronts / self.requests


@dataclass(frozen=True)
class Counts:
    """Memory accesses and arithmetic of one launch."""

    instructions: tuple[MemoryInstruction, ...]
    """In source order."""
    flops: int
    """Additions, subtractions, multiplications, divisions and square roots; a fused multiply-add counts as two."""

    def select(self, kind: str, operand: str = "", line: int = 0) -> tuple[MemoryInstruction, ...]:
        """Instructions whose kind starts with `kind`, optionally of one operand and of one line."""
        return tuple(
            one
            for one in self.instructions
            if one.kind.startswith(kind) and operand in ("", one.operand) and line in (0, one.line)
        )

    @property
    def global_requests(self) -> int:
        return sum(one.requests for one in self.select("global"))

    @property
    def global_bytes(self) -> int:
        """Bytes of the sectors of all requests: traffic between the SM and the L1 cache, before any cache hit."""
        return sum(one.sectors for one in self.select("global")) * SECTOR_BYTES

    @property
    def shared_bytes(self) -> int:
        return sum(one.bytes for one in self.select("shared"))

    @property
    def wavefronts(self) -> int:
        return sum(one.wavefronts for one in self.instructions)

    @property
    def ideal_wavefronts(self) -> int:
        return sum(one.ideal_wavefronts for one in self.instructions)

    @property
    def flops_per_byte(self) -> float:
        """FLOPs per byte of `global_bytes`."""
        return self.flops / self.global_bytes if self.global_bytes else float("inf")


class _Range(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("begin", "end", "base")]


class _Pattern(ctypes.Structure):
    """`KwPattern` of counting.cpp: the lane addresses of a warp's request, and how many requests had this pattern."""

    code_offset: int
    operand: int
    kind: int
    bytes: int
    mask: int
    offsets: Sequence[int]
    count: int
    _fields_ = [
        ("code_offset", ctypes.c_uint),
        ("operand", ctypes.c_ushort),
        ("kind", ctypes.c_ubyte),
        ("bytes", ctypes.c_ubyte),
        ("mask", ctypes.c_uint),
        ("pad", ctypes.c_uint),
        ("offsets", ctypes.c_uint64 * WARP_SIZE),
        ("count", ctypes.c_uint64),
    ]


def count_accesses(
    source: str,
    name: str,
    grid: Dim3,
    block: Dim3,
    arguments: Sequence[Any],
    shared_bytes: int = 0,
    *,
    path: str = "kernel.cu",
) -> Counts:
    """Run a launch once, unoptimised and on one thread, and count its accesses; the tensors then hold its results.

    Arguments and errors as for `EmulatedKernel` and its call.

    Raises:
        SetupError: on macOS. MissingDependency: no objdump or addr2line.
    """
    shape, text = LaunchShape.from_sizes(grid, block, shared_bytes), translate_source(source, path)
    library = load_library(text, name, counting=True)
    bound = bind(name, arguments, library.parameters, text.parameters(name))
    code = read_code_map(library.path)
    with _RUNTIME_LOCK:  # the runtime holds the counts of one launch at a time
        _set_up(library, bound, code.functions)
        run_launch(library, shape, bound, 1, path)
        visits = library.runtime.kw_count_visits
        visits.restype = ctypes.c_uint64
        flops = sum(visits(offset) * block_flops for offset, block_flops in code.flops.items())
        return Counts(_instructions(library, bound, path), flops)


def _set_up(library: EmulatedLibrary, bound: Sequence[Argument], functions: Sequence[int]) -> None:
    """Pass the address ranges of the tensors to the runtime; the start of a storage counts as aligned, as on a GPU."""
    ranges = (_Range * len(bound))()
    for row, one in zip(ranges, bound, strict=True):
        if one.tensor is not None and one.tensor.numel():
            begin, item = one.tensor.data_ptr(), one.tensor.itemsize
            row.begin, row.end = begin, begin + extent(one.tensor) * item
            row.base = begin - one.tensor.storage_offset() * item
    starts = (ctypes.c_uint * len(functions))(*functions)
    library.runtime.kw_count_setup(ranges, len(ranges), starts, len(starts))


def extent(tensor: Any) -> int:
    """Number of elements that a tensor spans in memory, from its first to its last, with any strides."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in sizes) if tensor.numel() else 0


def _patterns(library: EmulatedLibrary) -> Sequence[_Pattern]:
    rows = ctypes.POINTER(_Pattern)()
    number = library.runtime.kw_count_patterns(ctypes.byref(rows))
    return rows[:number] if number else []


def _instructions(library: EmulatedLibrary, bound: Sequence[Argument], path: str) -> tuple[MemoryInstruction, ...]:
    patterns = _patterns(library)
    lines = resolve_lines(library.path, (one.code_offset for one in patterns), path)
    groups: dict[tuple[int, int, int, int], list[_Pattern]] = {}
    for one in patterns:
        groups.setdefault((lines[one.code_offset], one.code_offset, one.operand, one.kind), []).append(one)
    return tuple(_instruction(key[0], groups[key], bound) for key in sorted(groups))


def _instruction(line: int, patterns: Sequence[_Pattern], bound: Sequence[Argument]) -> MemoryInstruction:
    first = patterns[0]
    shared = first.operand == SHARED_OPERAND
    sectors = wavefronts = ideal = 0
    for one in patterns:
        if shared:
            cost = count_conflicts([(0, _pad_lanes(one))], one.bytes)
            wavefronts, ideal = wavefronts + cost.wavefronts * one.count, ideal + cost.ideal_wavefronts * one.count
        else:
            sectors += len(_sectors(one)) * one.count
    return MemoryInstruction(
        line,
        f"{'shared' if shared else 'global'} {ACCESS_KINDS[first.kind]}",
        "" if shared else bound[first.operand].name,
        max(one.bytes for one in patterns),
        sum(one.count for one in patterns),
        sum(one.mask.bit_count() * one.count for one in patterns),
        sectors,
        wavefronts,
        ideal,
    )


def _active(pattern: _Pattern) -> Iterator[tuple[int, int]]:
    """The active lanes with their addresses."""
    return ((lane, pattern.offsets[lane]) for lane in range(WARP_SIZE) if pattern.mask >> lane & 1)


def _sectors(pattern: _Pattern) -> set[int]:
    ends = ((address, address + pattern.bytes - 1) for _, address in _active(pattern))
    return {sector for low, high in ends for sector in range(low // SECTOR_BYTES, high // SECTOR_BYTES + 1)}


def _pad_lanes(pattern: _Pattern) -> list[int]:
    """Lane addresses of full wavefronts: an idle lane takes the address of an active one, an idle group is dropped."""
    group_lanes = min(WARP_SIZE, WARP_SIZE * WORD_BYTES // pattern.bytes)
    addresses: list[int] = []
    for begin in range(0, WARP_SIZE, group_lanes):
        active = {lane: address for lane, address in _active(pattern) if begin <= lane < begin + group_lanes}
        addresses += [_nearest_address(active, lane) for lane in range(begin, begin + group_lanes)] if active else []
    return addresses


def _nearest_address(addresses: dict[int, int], lane: int) -> int:
    return addresses[min(addresses, key=lambda other: other ^ lane)]
