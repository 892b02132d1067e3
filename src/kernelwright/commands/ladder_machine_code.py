"""The machine code of each rung of a ladder, and how it differs from the rung before."""

from __future__ import annotations

import msgspec

from kernelwright.commands.machine_code import LADDER_PREFIX, disassemble_largest
from kernelwright.core.errors import CompileError, SetupError
from kernelwright.core.ladder import LadderRun, RungOutcome
from kernelwright.core.machine_code import MachineCode
from kernelwright.ladders import ladder_device
from kernelwright.toolchain.sass import diff_machine_code


def add_machine_code(found: LadderRun) -> LadderRun:
    """The run with the machine code of its rungs, compiled here; unchanged if it cannot be compiled."""
    if ladder_device(found.ladder) != "cuda":
        return found
    try:
        codes = [disassemble_largest(f"{LADDER_PREFIX}{found.ladder}:{rung.number}") for rung in found.rungs]
    except (CompileError, SetupError):
        return found
    before = [None, *codes]
    rungs = tuple(_add_rung_code(*each) for each in zip(found.rungs, before, codes, strict=False))
    return msgspec.structs.replace(found, rungs=rungs)


def _add_rung_code(rung: RungOutcome, before: MachineCode | None, code: MachineCode) -> RungOutcome:
    hot = tuple(loop for loop in code.loops if loop.is_hot)
    short = msgspec.structs.replace(code, instructions=() if hot else code.instructions, loops=hot)
    changes = diff_machine_code(before, code).changes if before else ()
    return msgspec.structs.replace(rung, machine_code=short, code_changes=changes)
