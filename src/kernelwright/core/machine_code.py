"""The records of `kw sass`: a kernel's machine code, what it takes of a multiprocessor, and its loops."""

from __future__ import annotations

from typing import Literal

import msgspec

from kernelwright.core.records import Record

Limiter = Literal["registers", "shared memory", "threads", "blocks", ""]
InstructionGroup = Literal[
    "tensor",
    "float math",
    "special",
    "global load",
    "global store",
    "shared load",
    "shared store",
    "local memory",
    "conversion",
    "barrier",
    "integer",
    "branch",
    "other",
]
"""What an instruction is for, what matters most first. "special" is the unit of exponentials and reciprocals; "other"
holds moves, constants, predicates and votes; "local memory" is what spills and indexed arrays go through."""


class Instruction(Record, frozen=True, kw_only=True):
    """One instruction. `description` say what it does; they are empty where that is not known for sure."""

    address: int
    """Bytes from the start of the kernel."""
    opcode: str
    """With its modifiers: LDG.E.128."""
    operands: str = ""
    predicate: str = ""
    """Such as @!P0; empty where it always runs."""
    group: InstructionGroup = "other"
    description: str = ""
    file: str = ""
    line: int | None = None
    """Of the source, where the code was built with line information."""
    is_spill: bool = False
    """It stores a register to local memory for want of registers, or loads it back."""


class Loop(Record, frozen=True, kw_only=True):
    """A natural loop. Depth 1 is outermost; `instructions` holds the text of the hot loop and is empty for others."""

    first_address: int
    last_address: int
    """Addresses of its first and last instruction; code of others may stand between them."""
    depth: int
    num_instructions: int
    instruction_mix: dict[str, int]
    is_hot: bool = False
    instructions: tuple[Instruction, ...] = ()


class Occupancy(Record, frozen=True, kw_only=True):
    """How much of a multiprocessor its blocks can fill.

    Where the block size is not known, `blocks_per_sm` is None, the limiter is empty, and warps and share are the most
    that the registers allow. Dynamic shared memory counts only where it was told.
    """

    blocks_per_sm: int | None
    warps_per_sm: int
    fraction: float
    limiter: Limiter = ""
    threads_per_block: int | None = None
    """Of a block, as given, or as the kernel itself demands."""
    dynamic_shared_bytes: int = 0


class Spills(Record, frozen=True, kw_only=True):
    """Bytes that each thread spills, summed over the instructions that do it, as `ptxas -v` counts them.

    An instruction in a loop counts once. `is_exact` is false where an old compiler left no record and the instructions
    alone had to tell.
    """

    stored_bytes: int = 0
    loaded_bytes: int = 0
    instructions: int = 0
    is_exact: bool = True


class MachineCode(Record, frozen=True, kw_only=True):
    """One kernel as the machine runs it.

    `shared_bytes` is static, without the 1024 bytes that the driver keeps of each block. `access_widths` counts loads
    and stores by what a thread moves: {"global load": {16: 4}}. `tensor_instructions` counts tensor instructions by
    their full name. `stack_bytes` holds spills and local arrays both.
    """

    kernel: str
    arch: str
    registers: int
    shared_bytes: int
    spills: Spills
    stack_bytes: int
    occupancy: Occupancy | None
    """None for an architecture whose limits are not in the table."""
    instruction_mix: dict[str, int]
    access_widths: dict[str, dict[int, int]]
    tensor_instructions: dict[str, int] = msgspec.field(default_factory=dict)
    loops: tuple[Loop, ...] = ()
    summary: str
    num_instructions: int
    """Instructions that can be reached, without the slow paths of divisions, which ordinary numbers never take."""
    instructions: tuple[Instruction, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def hot_loop(self) -> Loop | None:
        """The loop in which the time is most likely spent."""
        return next((loop for loop in self.loops if loop.is_hot), None)


class CodeChange(Record, frozen=True, kw_only=True):
    """One figure of two kernels that is not the same. `is_better` is None where neither is."""

    metric: str
    before: str
    after: str
    is_better: bool | None = None


class CodeDifference(Record, frozen=True, kw_only=True):
    """Two kernels side by side: only what changed."""

    before: MachineCode
    after: MachineCode
    changes: tuple[CodeChange, ...]
