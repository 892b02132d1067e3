"""Counts what a kernel asks of memory while it runs on the CPU: an exact answer, as written, with no time in it.

A memory instruction is a place in the source that reads or writes a tensor or shared memory; 32 lanes that execute it
together are one request. Nothing is optimised: a value that is read twice in the source is read twice, where nvcc may
keep it in a register. Local variables are registers. The rules of sectors and banks are those of `layouts.access`.
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
    """One place in the source that reaches memory, with all its requests."""

    line: int
    kind: str
    """`global load`, `global store`, `global atomic`, `shared load`, `shared store` or `shared atomic`."""
    operand: str
    """The parameter whose tensor it is; empty for shared memory."""
    access_bytes: int
    """Of one lane."""
    requests: int
    """Warp-wide."""
    lanes: int
    """Of all requests together."""
    sectors: int = 0
    """Of 32 bytes, all requests together; 0 for shared memory."""
    wavefronts: int = 0
    """Passes over the banks of shared memory, all requests together; 0 for global memory."""
    ideal_wavefronts: int = 0
    """The same with no two words in one bank."""

    @property
    def is_shared(self) -> bool:
        return self.kind.startswith("shared")

    @property
    def bytes(self) -> int:
        """What the lanes asked for."""
        return self.lanes * self.access_bytes

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / self.requests

    @property
    def wavefronts_per_request(self) -> float:
        return self.wavefronts / self.requests


@dataclass(frozen=True)
class Counts:
    """All that one launch asked of memory, and its arithmetic."""

    instructions: tuple[MemoryInstruction, ...]
    """In the order of the source."""
    flops: int
    """Additions, subtractions, multiplications, divisions and square roots; a fused multiply-add is two."""

    def select(self, kind: str, operand: str = "", line: int = 0) -> tuple[MemoryInstruction, ...]:
        """Those whose kind begins with a text, of one operand and in one line where these are given."""
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
        """What the sectors of all requests hold: traffic between the SM and the L1 cache, before any cache helps."""
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
        """FLOPs for each byte of `global_bytes`."""
        return self.flops / self.global_bytes if self.global_bytes else float("inf")


class _Range(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("begin", "end", "base")]


class _Pattern(ctypes.Structure):
    """`KwPattern` of counting.cpp: the addresses of one warp's request, and how many were like it."""

    place: int
    operand: int
    kind: int
    bytes: int
    mask: int
    offsets: Sequence[int]
    count: int
    _fields_ = [
        ("place", ctypes.c_uint),
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
    """Runs a launch once, on one thread and unoptimised, and counts; the tensors hold its results afterwards.

    Args and errors: as for `EmulatedKernel` and its call.
    Raises:
        SetupError: on macOS. MissingDependency: no objdump or addr2line.
    """
    shape, text = LaunchShape.from_sizes(grid, block, shared_bytes), translate_source(source, path)
    library = load_library(text, name, counting=True)
    bound = bind(name, arguments, library.parameters, text.parameters(name))
    code = read_code_map(library.path)
    with _RUNTIME_LOCK:  # the runtime holds one launch's counts
        _set_up(library, bound, code.functions)
        run_launch(library, shape, bound, 1, path)
        visits = library.runtime.kw_count_visits
        visits.restype = ctypes.c_uint64
        flops = sum(visits(place) * each for place, each in code.flops.items())
        return Counts(_instructions(library, bound, path), flops)


def _set_up(library: EmulatedLibrary, bound: Sequence[Argument], functions: Sequence[int]) -> None:
    """Tells the runtime where the tensors lie. A storage begins where a GPU would align it."""
    ranges = (_Range * len(bound))()
    for row, one in zip(ranges, bound, strict=True):
        if one.tensor is not None and one.tensor.numel():
            begin, item = one.tensor.data_ptr(), one.tensor.itemsize
            row.begin, row.end = begin, begin + extent(one.tensor) * item
            row.base = begin - one.tensor.storage_offset() * item
    starts = (ctypes.c_uint * len(functions))(*functions)
    library.runtime.kw_count_setup(ranges, len(ranges), starts, len(starts))


def extent(tensor: Any) -> int:
    """Elements from a tensor's first to its last, whatever its strides."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in sizes) if tensor.numel() else 0


def _patterns(library: EmulatedLibrary) -> Sequence[_Pattern]:
    rows = ctypes.POINTER(_Pattern)()
    number = library.runtime.kw_count_patterns(ctypes.byref(rows))
    return rows[:number] if number else []


def _instructions(library: EmulatedLibrary, bound: Sequence[Argument], path: str) -> tuple[MemoryInstruction, ...]:
    patterns = _patterns(library)
    lines = resolve_lines(library.path, (one.place for one in patterns), path)
    found: dict[tuple[int, int, int, int], list[_Pattern]] = {}
    for one in patterns:
        found.setdefault((lines[one.place], one.place, one.operand, one.kind), []).append(one)
    return tuple(_instruction(key[0], found[key], bound) for key in sorted(found))


def _instruction(line: int, patterns: Sequence[_Pattern], bound: Sequence[Argument]) -> MemoryInstruction:
    first = patterns[0]
    shared = first.operand == SHARED_OPERAND
    sectors = wavefronts = ideal = 0
    for one in patterns:
        if shared:
            passes = count_conflicts([(0, _pad_lanes(one))], one.bytes)
            wavefronts, ideal = wavefronts + passes.wavefronts * one.count, ideal + passes.ideal_wavefronts * one.count
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
    """The lanes that take part, with their addresses."""
    return ((lane, pattern.offsets[lane]) for lane in range(WARP_SIZE) if pattern.mask >> lane & 1)


def _sectors(pattern: _Pattern) -> set[int]:
    ends = ((at, at + pattern.bytes - 1) for _, at in _active(pattern))
    return {sector for low, high in ends for sector in range(low // SECTOR_BYTES, high // SECTOR_BYTES + 1)}


def _pad_lanes(pattern: _Pattern) -> list[int]:
    """The addresses of whole passes over the banks: an idle lane does as another of its pass, an idle pass is none."""
    together = min(WARP_SIZE, WARP_SIZE * WORD_BYTES // pattern.bytes)
    addresses: list[int] = []
    for begin in range(0, WARP_SIZE, together):
        there = {lane: at for lane, at in _active(pattern) if begin <= lane < begin + together}
        addresses += [_nearest_address(there, lane) for lane in range(begin, begin + together)] if there else []
    return addresses


def _nearest_address(there: dict[int, int], lane: int) -> int:
    return there[min(there, key=lambda other: other ^ lane)]
