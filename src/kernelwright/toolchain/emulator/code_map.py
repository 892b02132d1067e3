"""Reads a counted library with the tools that come with g++: its functions, its FLOPs, and the lines of its code.

The library was compiled with -fsanitize-coverage=trace-pc, so each basic block begins with a call that is counted; what
stands between two such calls was executed as often as the first of them.
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
    """What a counted library holds, by places: bytes from its begin."""

    functions: tuple[int, ...]
    """Where each function begins, ascending."""
    flops: dict[int, int]
    """FLOPs of one run through the block that begins there; blocks with none are left out."""


def read_code_map(library: Path) -> CodeMap:
    """The functions and the arithmetic of a counted library.

    Raises:
        MissingDependency: no objdump, which comes with the compiler's binutils.
    """
    functions: list[int] = []
    flops: dict[int, int] = {}
    block, begins = 0, False
    for line in _run("objdump", "-d", "--no-show-raw-insn", str(library)).splitlines():
        if match := _SYMBOL.match(line):
            functions.append(int(match[1], 16))
            block, begins = 0, False
        elif match := _INSTRUCTION.match(line):
            if begins:  # the place of a block is where its call returns to
                block, begins = int(match[1], 16), False
            called = _CALLED.search(match[3]) if match[2].startswith(("call", "bl")) else None
            begins = bool(called) and called[1] == _COVERAGE_HOOK
            if block and (count := _flops(match[2], called[1] if called else "")):
                flops[block] = flops.get(block, 0) + count
    return CodeMap(tuple(sorted(functions)), flops)


def _flops(mnemonic: str, called: str) -> int:
    if called:
        return _CALL_FLOPS.get(called, 0)
    return 1 if _ONE_FLOP.match(mnemonic) else 2 if _TWO_FLOPS.match(mnemonic) else 0


def resolve_lines(library: Path, places: Iterable[int], path: str) -> dict[int, int]:
    """The user's line of each place, 0 where it has none; code of the header counts for the line that called it."""
    asked = sorted(set(places))
    if not asked:
        return {}
    out = _run("addr2line", "-a", "-i", "-e", str(library), *(hex(place - 1) for place in asked))
    found: dict[int, int] = {}
    place = 0
    for line in out.splitlines():
        if line.startswith("0x"):
            place = int(line, 16) + 1
            found[place] = 0
        elif not found[place] and (match := re.match(r"(.*):(\d+)", line)) and match[1].endswith(path):
            found[place] = int(match[2])
    return found


def _run(tool: str, *arguments: str) -> str:
    if not shutil.which(tool):
        raise MissingDependency(f"no {tool} on this machine", next="apt-get install binutils")
    return subprocess.run([tool, *arguments], capture_output=True, text=True, check=True).stdout
