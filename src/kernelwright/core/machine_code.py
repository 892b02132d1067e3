"""Records of `kw sass`: a kernel's machine code, its occupancy and its loops."""

from __future__ import annotations

from typing import Literal

import msgspec

from kernelwright.core.record import Record

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
"""Groups of instructions, the most important first. "special" is the unit for exponentials and reciprocals; "other"
holds moves, constants, predicates and votes; "local memory" serves spills and indexed arrays."""


class Instruction(Record, frozen=True, kw_only=True):
    """One instruction. `description` is empty if its effect is not known for certain."""

    address: int
    """Bytes from the start of the kernel."""
    opcode: str
    """With modifiers: LDG.E.128."""
    operands: str = ""
    predicate: str = ""
    """Such as @!P0; empty if unconditional."""
    group: InstructionGroup = "other"
    description: str = ""
    file: str = ""
    line: int | None = None
    """Source line, if the code was built with line information."""
    is_spill: bool = False
    """A register spill to local memory, or its reload."""


class Loop(Record, frozen=True, kw_only=True):
    """A natural loop. Depth 1 is outermost; `instructions` is empty except for the hot loop."""

    first_address: int
    last_address: int
    """Addresses of its first and last instruction; instructions outside the loop may be in between."""
    depth: int
    num_instructions: int
    instruction_mix: dict[str, int]
    is_hot: bool = False
    instructions: tuple[Instruction, ...] = ()


class Occupancy(Record, frozen=True, kw_only=True):
    """Occupancy of a multiprocessor.

    If the block size is unknown, `blocks_per_sm` is None, `limiter` is empty, and `warps_per_sm` and `fraction` are
    the maximum that the registers allow. Dynamic shared memory counts only if it was specified.
    """

    blocks_per_sm: int | None
    warps_per_sm: int
    fraction: float
    limiter: Limiter = ""
    threads_per_block: int | None = None
    """As specified, or as the kernel requires."""
    dynamic_shared_bytes: int = 0


class Spills(Record, frozen=True, kw_only=True):
    """Bytes that each thread spills, summed over instructions as `ptxas -v` counts them.

    An instruction in a loop counts once. `is_exact` is false if an old compiler left no record, so that the count was
    inferred from the instructions.
    """

    stored_bytes: int = 0
    loaded_bytes: int = 0
    instructions: int = 0
    is_exact: bool = True


class MachineCode(Record, frozen=True, kw_only=True):
    """The machine code of one kernel.

    `shared_bytes` is static, without the 1024 bytes per block that the driver reserves. `access_widths` counts loads
    and stores by bytes per thread: {"global load": {16: 4}}. `tensor_instructions` counts tensor instructions by
    full name. `stack_bytes` includes spills and local arrays.
    """

    kernel: str
    arch: str
    registers: int
    shared_bytes: int
    spills: Spills
    stack_bytes: int
    occupancy: Occupancy | None
    """None for an architecture without known limits."""
    instruction_mix: dict[str, int]
    access_widths: dict[str, dict[int, int]]
    tensor_instructions: dict[str, int] = msgspec.field(default_factory=dict)
    loops: tuple[Loop, ...] = ()
    summary: str
    num_instructions: int
    """Reachable instructions, without the slow paths of divisions, which normal numbers never take."""
    instructions: tuple[Instruction, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def hot_loop(self) -> Loop | None:
        """The loop that most likely takes the most time."""
        return next((loop for loop in self.loops if loop.is_hot), None)


class CodeChange(Record, frozen=True, kw_only=True):
    """A metric in which two kernels differ. `is_better` is None if neither value is better."""

    metric: str
    before: str
    after: str
    is_better: bool | None = None


class CodeDifference(Record, frozen=True, kw_only=True):
    """Two kernels and the metrics in which they differ."""

    before: MachineCode
    after: MachineCode
    changes: tuple[CodeChange, ...]
