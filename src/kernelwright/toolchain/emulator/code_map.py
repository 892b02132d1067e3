"""Functions, FLOPs and source lines of an instrumented library, read with objdump and addr2line.

The library was compiled with -fsanitize-coverage=trace-pc, so each basic block begins with a hook call, which the
runtime counts; the instructions up to the next hook call were executed as often.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernelwright.core.errors import MissingDependency

_SYMBOL = re.compile(r"^([0-9a-f]+) <(.*)>:$")
_INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
_COVERAGE_HOOK = "__sanitizer_cov_trace_pc"
_ONE_FLOP = re.compile(r"v?(?:add|sub|mul|div|sqrt)s[sd]$|f(?:add|sub|mul|div|sqrt)$")
_TWO_FLOPS = re.compile(r"vfn?m(?:add|sub)\d*s[sd]$|fn?m(?:add|sub)$")
_CALL_FLOPS = {"fmaf": 2, "fma": 2, "sqrtf": 1, "sqrt": 1}
_CALLED = re.compile(r"<(\w+)(?:@\w+)?>")


@dataclass(frozen=True)
class CodeMap:
    """Functions and FLOPs of an instrumented library by code offset, in bytes from the start of the library."""

    functions: tuple[int, ...]
    """Start of each function, ascending."""
    flops: dict[int, int]
    """FLOPs of one execution of the basic block at this offset; blocks without FLOPs are left out."""


def read_code_map(library: Path) -> CodeMap:
    """Read the functions and the arithmetic of an instrumented library.

    Raises:
        MissingDependency: no objdump (binutils).
    """
    functions: list[int] = []
    flops: dict[int, int] = {}
    block, after_hook = 0, False
    for line in _run("objdump", "-d", "--no-show-raw-insn", str(library)).splitlines():
        if match := _SYMBOL.match(line):
            functions.append(int(match[1], 16))
            block, after_hook = 0, False
        elif match := _INSTRUCTION.match(line):
            if after_hook:  # a block is identified by the return address of its hook call
                block, after_hook = int(match[1], 16), False
            called = _CALLED.search(match[3]) if match[2].startswith(("call", "bl")) else None
            after_hook = bool(called) and called[1] == _COVERAGE_HOOK
            if block and (count := _flops(match[2], called[1] if called else "")):
                flops[block] = flops.get(block, 0) + count
    return CodeMap(tuple(sorted(functions)), flops)


def _flops(mnemonic: str, called: str) -> int:
    if called:
        return _CALL_FLOPS.get(called, 0)
    return 1 if _ONE_FLOP.match(mnemonic) else 2 if _TWO_FLOPS.match(mnemonic) else 0


def resolve_lines(library: Path, code_offsets: Iterable[int], path: str) -> dict[int, int]:
    """Map each code offset (a return address) to the user's line, 0 if unknown; inlined header code to its caller."""
    offsets = sorted(set(code_offsets))
    if not offsets:
        return {}
    out = _run("addr2line", "-a", "-i", "-e", str(library), *(hex(offset - 1) for offset in offsets))
    lines: dict[int, int] = {}
    offset = 0
    for line in out.splitlines():
        if line.startswith("0x"):
            offset = int(line, 16) + 1
            lines[offset] = 0
        elif not lines[offset] and (match := re.match(r"(.*):(\d+)", line)) and match[1].endswith(path):
            lines[offset] = int(match[2])
    return lines


def _run(tool: str, *arguments: str) -> str:
    if not shutil.which(tool):
        raise MissingDependency(f"{tool} not found", next="apt-get install binutils")
    return subprocess.run([tool, *arguments], capture_output=True, text=True, check=True).stdout
