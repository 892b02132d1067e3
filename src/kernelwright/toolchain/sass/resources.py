"""Resource usage of a kernel as recorded in the cubin: registers, shared memory, stack and spills."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.core.machine_code import Spills
from kernelwright.toolchain.sass.disassembly import SassInstruction
from kernelwright.toolchain.sass.elf import CubinFile, Function
from kernelwright.toolchain.sass.registers import access_bytes

RESERVED_BYTES = 1024
"""Shared memory that the driver reserves per block; from compute capability 9.0 on the cubin counts it as static."""
_RECORDS_SPILLS = 128
"""First toolkit (12.8) that records which instructions spill."""
_REGISTERS, _STACK, _FRAME, _MAX_THREADS, _REQUIRED_THREADS, _ANNOTATIONS = 0x2F, 0x12, 0x11, 0x05, 0x10, 0x55
_SPILL = 1
_FIXED = re.compile(r"\[R1(?:\+(-?0x[0-9a-f]+))?\]")


@dataclass(frozen=True)
class Resources:
    """Resource usage of a kernel: registers per thread, static shared memory per block, stack bytes per thread."""

    registers: int
    shared_bytes: int
    stack_bytes: int
    threads: int | None
    """Threads per block: required (.reqntid, as Triton sets it) or the maximum (__launch_bounds__); None if neither."""
    threads_required: bool
    """Whether `threads` is required rather than a maximum."""


def read_resources(cubin: CubinFile, kernel: Function) -> Resources:
    """Read the resource usage of a kernel; without reserved shared memory, with the stack of called functions."""
    attributes = dict(cubin.attributes(f".nv.info.{kernel.name}"))
    required, maximum = attributes.get(_REQUIRED_THREADS), attributes.get(_MAX_THREADS)
    threads = struct.unpack("<3I", required or maximum or b"")[:3] if required or maximum else None
    return Resources(
        registers=_by_symbol(cubin, _REGISTERS, kernel) or 0,
        shared_bytes=_static_shared_bytes(cubin, kernel),
        stack_bytes=_by_symbol(cubin, _STACK, kernel) or _by_symbol(cubin, _FRAME, kernel) or 0,
        threads=threads[0] * threads[1] * threads[2] if threads else None,
        threads_required=required is not None,
    )


def find_spills(cubin: CubinFile, kernel: Function, lines: Sequence[SassInstruction]) -> tuple[frozenset[int], bool]:
    """Find the addresses of spill instructions.

    Returns:
        The addresses, and whether they are exact: from the compiler's record rather than guessed from stack accesses.
    """
    for number, content in cubin.attributes(f".nv.info.{kernel.name}"):
        if number == _ANNOTATIONS and len(content) % 8 == 0:
            pairs = struct.iter_unpack("<II", content)
            return frozenset(address for kind, address in pairs if kind == _SPILL), True
    local = [line for line in lines if line.base_opcode in ("LDL", "STL")]
    if cubin.abi >= 8 or cubin.version >= _RECORDS_SPILLS or not local:
        return frozenset(), True
    return _likely_spills(local), False


def sum_spills(lines: Sequence[SassInstruction], addresses: frozenset[int], is_exact: bool) -> Spills:
    """Sum the bytes that the instructions at these addresses spill and reload."""
    spills = [line for line in lines if line.address in addresses]
    return Spills(
        stored_bytes=sum(access_bytes(line) for line in spills if line.base_opcode == "STL"),
        loaded_bytes=sum(access_bytes(line) for line in spills if line.base_opcode == "LDL"),
        instructions=len(spills),
        is_exact=is_exact,
    )


def _likely_spills(local: Sequence[SassInstruction]) -> frozenset[int]:
    """Accesses at fixed stack offsets. An indexed array is stored at fixed offsets but loaded at computed ones: if the
    kernel has computed accesses, only offsets that are both stored and loaded count."""
    fixed = {line.address: _stack_bytes_touched(line) for line in local if _stack_bytes_touched(line)}
    if len(fixed) == len(local):
        return frozenset(fixed)
    stored = set().union(*(fixed.get(line.address, ()) for line in local if line.base_opcode == "STL"))
    loaded = set().union(*(fixed.get(line.address, ()) for line in local if line.base_opcode == "LDL"))
    return frozenset(address for address, touched in fixed.items() if stored & loaded & set(touched))


def _stack_bytes_touched(line: SassInstruction) -> range:
    """Stack bytes that an instruction accesses, if its address is the stack pointer plus a constant."""
    for part in line.operand_list:
        if match := _FIXED.fullmatch(part.strip()):
            start = int(match[1] or "0", 16)
            return range(start, start + access_bytes(line))
    return range(0)


def _by_symbol(cubin: CubinFile, attribute: int, kernel: Function) -> int | None:
    for number, content in cubin.attributes(".nv.info"):
        if number == attribute and len(content) == 8:
            symbol, value = struct.unpack("<II", content)
            if symbol == kernel.symbol_index:
                return value
    return None


def _static_shared_bytes(cubin: CubinFile, kernel: Function) -> int:
    section = cubin.section(f".nv.shared.{kernel.name}")
    size = section.size if section else 0
    return size - RESERVED_BYTES if cubin.compute >= 90 and size >= RESERVED_BYTES else size
