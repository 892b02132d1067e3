"""Disassembly of a cubin into instructions, from the JSON output of nvdisasm."""

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
"""nvdisasm 12.8 omits the comma before shared memory operands: R32[R6], and [UR8][UR12] of a bulk copy."""
INSTRUCTION_BYTES = 16
"""Since Volta."""


@dataclass(frozen=True)
class SassInstruction:
    """An instruction as nvdisasm prints it; `address` is the offset in its section."""

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
        """The parts of the opcode after the base opcode."""
        return tuple(self.opcode.split(".")[1:])

    @property
    def operand_list(self) -> tuple[str, ...]:
        """The operands, split at commas."""
        return tuple(self.operands.split(",")) if self.operands else ()

    @property
    def is_never_executed(self) -> bool:
        """Whether the predicate is constant false (@!PT): padding by the compiler."""
        return self.predicate == "@!PT"


def disassemble(cubin: bytes) -> dict[str, list[SassInstruction]]:
    """Disassemble a cubin.

    Returns:
        The instructions of each code section, by kernel name.
    Raises:
        MissingDependency: nvdisasm not found.
        UsageError: nvdisasm cannot read this cubin.
    """
    tool = find_tool("nvdisasm")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            result = subprocess.run([tool, "-json", "-g", path], capture_output=True, check=False, timeout=_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as fault:
            raise UsageError(f"{tool} failed to run: {fault}", next=_UPGRADE_HINT, where="nvdisasm") from fault
    try:
        if result.returncode:
            raise ValueError(result.returncode)
        return _functions(msgspec.json.decode(result.stdout))
    except (ValueError, KeyError, TypeError, IndexError) as fault:  # msgspec errors are ValueErrors
        raise UsageError(_error_text(tool, path, result.stderr), next=_UPGRADE_HINT, where="nvdisasm") from fault


def _functions(document: list[Any]) -> dict[str, list[SassInstruction]]:
    """Instructions by kernel; the document is a header, the functions, and optionally the source files.

    nvdisasm 12.8 lists the functions that a kernel calls separately, 13 as part of the kernel: one that does not start
    at 0 belongs to the one before.
    """
    files = [row["file"] for row in document[2].get("files", ())] if len(document) > 2 else []
    instructions: dict[str, list[SassInstruction]] = {}
    kernel = ""
    for function in document[1]:
        kernel = kernel if function.get("start", 0) and kernel else function["function-name"]
        instructions.setdefault(kernel, []).extend(_lines(function, files))
    return instructions


_TIMEOUT_S = 120
_UPGRADE_HINT = "pip install -U nvidia-cuda-nvdisasm\na newer nvdisasm reads newer code; set NVDISASM to its path"


def _lines(function: dict[str, Any], files: list[str]) -> Iterator[SassInstruction]:
    """nvdisasm prints a source line only where it changes; it applies until the next one."""
    rows = function["sass-instructions"]
    start, step = function.get("start", 0), INSTRUCTION_BYTES
    file, line = "", None
    for i, row in enumerate(rows):
        if "source-line" in row:
            number = row.get("source-file-id", -1)
            file, line = files[number] if 0 <= number < len(files) else "", row["source-line"]
        opcode, operands = row.get("opcode", ""), _NO_COMMA.sub(r"\1,[", row.get("operands", ""))
        yield SassInstruction(start + step * i, opcode, operands, row.get("predicate", ""), file, line)


def _error_text(tool: Path, path: Path, stderr: bytes) -> str:
    lines = [line for line in stderr.decode(errors="replace").splitlines() if "warning" not in line]
    return f"{tool} cannot read this cubin: {'; '.join(lines[:3]) or 'no message'}".replace(str(path), "the cubin")
