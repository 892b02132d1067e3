"""What is computed of one byte alone can be computed for all 256 of them, and looked up."""

from __future__ import annotations

import re

from kernelwright.compiler.regions.region import Load, Region, Step
from kernelwright.compiler.triton.op_templates import EXPENSIVE_OPS, TRITON_TYPES
from kernelwright.compiler.triton.source_lines import Definition

BYTE_DTYPES = ("uint8", "int8")
_TABLE_SUFFIX = "_of_bytes"


def find_table_values(region: Region) -> dict[str, Load]:
    """The values that a table pays for, each with the byte that decides it: what many instructions make of it, where
    the last of them is done with nothing else than that byte."""
    behind, many = _source_bytes(region), set()
    read = {store.value for store in region.stores}
    for step in region.steps:
        byte = behind.get(step.value)
        read |= {value for value in step.values if behind.get(value) is not byte}
        if isinstance(step, Step) and (step.op in EXPENSIVE_OPS or many & set(step.values)):
            many.add(step.value)
    return {value: byte for value, byte in behind.items() if byte and value in read & many}


def _source_bytes(region: Region) -> dict[str, Load | None]:
    """For each value that takes nothing but one byte and constants, that byte; none for constants."""
    found: dict[str, Load | None] = {load.value: load for load in region.loads if load.dtype in BYTE_DTYPES}
    for step in region.steps:
        if not isinstance(step, Step) or step.op == "index" or not found.keys() >= set(step.values):
            continue
        bytes_ = {byte.value: byte for value in step.values if (byte := found[value])}
        if len(bytes_) < 2:
            found[step.value] = next(iter(bytes_.values()), None)
    return found


def lookup_expr(value: str, byte: Load) -> str:
    """The table's element for each byte of a line."""
    return f"tl.gather({value}{_TABLE_SUFFIX}, {byte.value}.to(tl.int32) & 255, 0)"


def emit_table(byte: Load, lines: list[tuple[str, str]]) -> list[Definition]:
    """The lines that compute something of a byte, by the name that each gives, as lines for all bytes."""
    names = "|".join([byte.value, *(name for name, _ in lines)])
    every = [(byte.value, f"{byte.value} = tl.arange(0, 256).to({TRITON_TYPES[byte.dtype]})"), *lines]
    return [
        (f"{name}{_TABLE_SUFFIX}", re.sub(rf"(?<!\.)\b({names})\b", rf"\1{_TABLE_SUFFIX}", line))
        for name, line in every
    ]
