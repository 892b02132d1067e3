"""Registers that an instruction reads and writes, derived from its text."""

from __future__ import annotations

import re

from kernelwright.toolchain.sass.disassembly import SassInstruction

_REGISTER = re.compile(r"(?<![A-Z])R(\d+)")
_MEMORY_READS = ("LDG", "LDS", "LDL", "LD", "LDSM", "LDC", "ATOMG", "ATOM", "ATOMS")
_MEMORY_WRITES = ("STG", "STS", "STL", "ST", "STSM", "RED", "REDG")
_NO_RESULT = (*_MEMORY_WRITES, "LDGSTS", "BAR", "BRA", "EXIT", "CALL", "RET", "NOP", "DEPBAR", "LDGDEPBAR", "UTMALDG",
              "UTMASTG", "SYNCS", "MEMBAR", "ERRBAR", "CCTL", "WARPSYNC", "BSSY", "BSYNC")  # fmt: skip
_SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_TENSOR_OPCODES = ("HMMA", "IMMA", "DMMA", "QMMA", "OMMA", "BMMA")


def access_bytes(line: SassInstruction) -> int:
    """Bytes that a load or store moves per thread, from its size modifier; 4 without one."""
    if line.base_opcode in ("LDSM", "STSM"):  # .16 is the element size; the last modifier is the number of matrices
        return 4 * next((int(m) for m in reversed(line.modifiers) if m in ("1", "2", "4")), 1)
    return next((_SIZES[m] for m in line.modifiers if m in _SIZES), 4)


def registers_written(line: SassInstruction) -> set[int]:
    """Registers that an instruction writes; several for wide loads and results."""
    if line.is_never_executed or _has_no_result(line) or not line.operand_list:
        return set()
    first = next((part for part in line.operand_list if not _is_predicate(part)), "")
    return _register_range(first, _result_registers(line))


def registers_read(line: SassInstruction) -> set[int]:
    """Registers that an instruction reads, including all registers of wide operands."""
    if line.is_never_executed:
        return set()
    parts = list(line.operand_list)
    if not _has_no_result(line):
        result = next((i for i, part in enumerate(parts) if not _is_predicate(part)), None)
        parts = parts if result is None else parts[:result] + parts[result + 1 :]
    registers: set[int] = set()
    for i, part in enumerate(parts):
        registers |= _register_range(part, _operand_registers(line, part, i))
    return registers


def source_slots(line: SassInstruction) -> list[tuple[int, int, bool]]:
    """Slot, register and `.reuse` flag of each register source, for an instruction with three sources."""
    slots = []
    for slot, part in enumerate(line.operand_list[1:4]):
        if match := _REGISTER.match(part.lstrip("-|~")):
            slots.append((slot, int(match[1]), ".reuse" in part))
    return slots


def _has_no_result(line: SassInstruction) -> bool:
    """Whether it writes memory, a predicate, a uniform register or nothing."""
    return line.base_opcode in _NO_RESULT or "SETP" in line.base_opcode or line.base_opcode in ("FCHK", "PLOP3", "R2UR")


def _result_registers(line: SassInstruction) -> int:
    if line.base_opcode in _MEMORY_READS:
        return max(1, access_bytes(line) // 4)
    if line.base_opcode in _TENSOR_OPCODES:
        return 4
    return 2 if {"WIDE", "64"} & set(line.modifiers) or line.base_opcode in ("CS2R", "DADD", "DMUL", "DFMA") else 1


def _operand_registers(line: SassInstruction, part: str, index: int) -> int:
    if "[" in part:
        return 2 if ".64" in part else 1
    if line.base_opcode in _MEMORY_WRITES:
        return max(1, access_bytes(line) // 4)
    if line.base_opcode in _TENSOR_OPCODES:  # A, B, C
        return (4, 2, 4)[index] if index < 3 else 1
    if line.base_opcode in ("DADD", "DMUL", "DFMA"):
        return 2
    return 1


def _register_range(text: str, count: int) -> set[int]:
    return {int(match) + i for match in _REGISTER.findall(text) for i in range(count)}


def _is_predicate(part: str) -> bool:
    return bool(re.fullmatch(r"!?U?P(\d|T)", part))
