"""Lookup tables: a value computed from a single byte is computed for all 256 bytes and gathered."""

from __future__ import annotations

import re

from kernelwright.compiler.regions.region import Load, Region, Step
from kernelwright.compiler.triton.op_templates import EXPENSIVE_OPS, TRITON_TYPES
from kernelwright.compiler.triton.source_lines import Definition

BYTE_DTYPES = ("uint8", "int8")
_TABLE_SUFFIX = "_table"


def find_table_values(region: Region) -> dict[str, Load]:
    """The values that are worth a table, each with the byte that it depends on: those that take many instructions and
    are stored or combined with something other than that byte."""
    sources, expensive = _source_bytes(region), set()
    read = {store.value for store in region.stores}
    for step in region.steps:
        byte = sources.get(step.value)
        read |= {value for value in step.values if sources.get(value) is not byte}
        if isinstance(step, Step) and (step.op in EXPENSIVE_OPS or expensive & set(step.values)):
            expensive.add(step.value)
    return {value: byte for value, byte in sources.items() if byte and value in read & expensive}


def _source_bytes(region: Region) -> dict[str, Load | None]:
    """The byte that each value depends on, None for constants; values that depend on anything else are left out."""
    sources: dict[str, Load | None] = {load.value: load for load in region.loads if load.dtype in BYTE_DTYPES}
    for step in region.steps:
        if not isinstance(step, Step) or step.op == "index" or not sources.keys() >= set(step.values):
            continue
        bytes_ = {byte.value: byte for value in step.values if (byte := sources[value])}
        if len(bytes_) < 2:
            sources[step.value] = next(iter(bytes_.values()), None)
    return sources


def lookup_expr(value: str, byte: Load) -> str:
    """The gather of a value from its table for each byte of a one-dimensional tile."""
    return f"tl.gather({value}{_TABLE_SUFFIX}, {byte.value}.to(tl.int32) & 255, 0)"


def emit_table(byte: Load, lines: list[Definition]) -> list[Definition]:
    """Rewrite the definitions of values that depend on a byte so that they compute tables of all 256 bytes."""
    names = "|".join([byte.value, *(name for name, _ in lines)])
    all_lines = [(byte.value, f"{byte.value} = tl.arange(0, 256).to({TRITON_TYPES[byte.dtype]})"), *lines]
    return [
        (f"{name}{_TABLE_SUFFIX}", re.sub(rf"(?<!\.)\b({names})\b", rf"\1{_TABLE_SUFFIX}", line))
        for name, line in all_lines
    ]
