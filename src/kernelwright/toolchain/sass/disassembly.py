"""Machine code as instructions, from the structured output of nvdisasm."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kernelwright.core.errors import UsageError
from kernelwright.toolchain.sass.disassemblers import find_tool

_NO_COMMA = re.compile(r"(?<![\w.])(U?R(?:\d+|Z)|U?P(?:\d|T)|(?:^|(?<=,))\[[^]]*\])\[")
"""nvdisasm 12.8 leaves the comma out before shared memory: R32[R6], and [UR8][UR12] of a bulk copy."""
INSTRUCTION_BYTES = 16
"""Of every architecture since Volta."""


@dataclass(frozen=True)
class SassInstruction:
    """An instruction as nvdisasm gives it; `address` counts from the start of its section."""

    address: int
    opcode: str
    operands: str = ""
    predicate: str = ""
    file: str = ""
    line: int | None = None

    @property
    def base_opcode(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        return tuple(self.opcode.split(".")[1:])

    @property
    def operand_list(self) -> tuple[str, ...]:
        """The operands one by one."""
        return tuple(self.operands.split(",")) if self.operands else ()

    @property
    def is_never_executed(self) -> bool:
        """Its predicate is false for ever: padding between instructions that stand too close."""
        return self.predicate == "@!PT"


def disassemble(cubin: bytes) -> dict[str, list[SassInstruction]]:
    """The instructions of each section of code, by the name that nvdisasm gives it: the kernel's.

    Raises:
        MissingDependency: no nvdisasm here.
        UsageError: it does not understand these bytes.
    """
    tool = find_tool("nvdisasm")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            done = subprocess.run([tool, "-json", "-g", path], capture_output=True, check=False, timeout=_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as fault:
            raise UsageError(f"{tool} does not run here: {fault}", next=_UPGRADE_HINT, where="nvdisasm") from fault
    try:
        if done.returncode:
            raise ValueError(done.returncode)
        return _functions(msgspec.json.decode(done.stdout))
    except (ValueError, KeyError, TypeError, IndexError) as fault:  # msgspec's own errors are ValueErrors
        raise UsageError(_error_text(tool, path, done.stderr), next=_UPGRADE_HINT, where="nvdisasm") from fault


def _functions(whole: list[Any]) -> dict[str, list[SassInstruction]]:
    """The document is a head, the functions, and the names of the sources where these are known.

    nvdisasm 12.8 gives the functions that a kernel calls apart, 13 as part of it: one that does not start at 0 belongs
    to the one before.
    """
    files = [row["file"] for row in whole[2].get("files", ())] if len(whole) > 2 else []
    found: dict[str, list[SassInstruction]] = {}
    kernel = ""
    for function in whole[1]:
        kernel = kernel if function.get("start", 0) and kernel else function["function-name"]
        found.setdefault(kernel, []).extend(_lines(function, files))
    return found


_TIMEOUT_S = 120
_UPGRADE_HINT = "pip install -U nvidia-cuda-nvdisasm\nit reads newer code; name it with NVDISASM"


def _lines(function: dict[str, Any], files: list[str]) -> Iterator[SassInstruction]:
    """A line of the source is told where it changes and holds until the next one."""
    rows = function["sass-instructions"]
    start, step = function.get("start", 0), INSTRUCTION_BYTES
    file, line = "", None
    for i, row in enumerate(rows):
        if "source-line" in row:
            number = row.get("source-file-id", -1)
            file, line = files[number] if 0 <= number < len(files) else "", row["source-line"]
        opcode, operands = row.get("opcode", ""), _NO_COMMA.sub(r"\1,[", row.get("operands", ""))
        yield SassInstruction(start + step * i, opcode, operands, row.get("predicate", ""), file, line)


def _error_text(tool: Path, path: Path, said: bytes) -> str:
    lines = [line for line in said.decode(errors="replace").splitlines() if "warning" not in line]
    return f"{tool} cannot read this: {'; '.join(lines[:3]) or 'it says nothing'}".replace(str(path), "the cubin")
