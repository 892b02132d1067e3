"""`kw sass`: the machine code of a kernel."""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.commands.result import CommandResult
from kernelwright.core.machine_code import CodeDifference, MachineCode


def sass(
    target: str, *, arch: str = "sm_90a", signature: str = "", defines: Mapping[str, str] | None = None
) -> CommandResult[MachineCode]:
    """One kernel's machine code; see `kernelwright.commands.machine_code.disassemble` for arguments and errors."""
    from kernelwright.commands.machine_code import disassemble

    return CommandResult(disassemble(target, arch=arch, signature=signature, defines=defines or {}))


def sass_diff(
    before: str, after: str, *, arch: str = "sm_90a", signature: str = "", defines: Mapping[str, str] | None = None
) -> CommandResult[CodeDifference]:
    """How the machine code of two targets differs; arguments and errors as for `sass`."""
    from kernelwright.commands.machine_code import compare_machine_code

    return CommandResult(compare_machine_code(before, after, arch=arch, signature=signature, defines=defines or {}))
