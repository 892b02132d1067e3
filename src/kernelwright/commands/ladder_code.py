"""The static evidence of a climb: what each rung is for the machine, and what changed since the one before."""

from __future__ import annotations

import msgspec

from kernelwright.commands.sass import LADDERS, largest_kernel
from kernelwright.core.errors import CompileError, SetupError
from kernelwright.core.ladder import Climb, RungOutcome
from kernelwright.core.machine_code import MachineCode
from kernelwright.ladders import device_of
from kernelwright.toolchain.sass import difference


def with_code(found: Climb) -> Climb:
    """The climb with the machine code of its rungs, compiled here; as it was where that cannot be done."""
    if device_of(found.ladder) != "cuda":
        return found
    try:
        codes = [largest_kernel(f"{LADDERS}{found.ladder}:{rung.number}") for rung in found.rungs]
    except (CompileError, SetupError):
        return found
    before = [None, *codes]
    rungs = tuple(_with_code(*each) for each in zip(found.rungs, before, codes, strict=False))
    return msgspec.structs.replace(found, rungs=rungs)


def _with_code(rung: RungOutcome, before: MachineCode | None, code: MachineCode) -> RungOutcome:
    hot = tuple(loop for loop in code.loops if loop.hot)
    short = msgspec.structs.replace(code, instructions=() if hot else code.instructions, loops=hot)
    changes = difference(before, code).changes if before else ()
    return msgspec.structs.replace(rung, code=short, changes=changes)
