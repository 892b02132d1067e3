"""A cubin as records: every kernel of it disassembled, measured and read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernelwright.core.errors import NotFoundError, UsageError
from kernelwright.core.machine_code import Instruction, Loop, MachineCode, Occupancy
from kernelwright.toolchain.sass.descriptions import describe_instruction
from kernelwright.toolchain.sass.disassembly import SassInstruction, disassemble
from kernelwright.toolchain.sass.elf import CubinFile, Function
from kernelwright.toolchain.sass.loops import ControlFlow, NaturalLoop, analyze_control_flow
from kernelwright.toolchain.sass.occupancy import LIMITS, compute_occupancy
from kernelwright.toolchain.sass.opcode_classes import classify, count_access_widths, count_groups, count_tensor_opcodes
from kernelwright.toolchain.sass.resources import Resources, find_spills, read_resources, sum_spills
from kernelwright.toolchain.sass.summary import summarize_code


def read_cubin_file(
    path: Path | str, kernel: str | None = None, *, threads: int | None = None, dynamic_shared_bytes: int = 0
) -> tuple[MachineCode, ...]:
    """`read_cubin` of a file.

    Raises:
        NotFoundError: no such file.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as fault:
        raise NotFoundError(f"cannot read {path}: {fault.strerror}", next="name a .cubin") from fault
    return read_cubin(content, kernel, threads=threads, dynamic_shared_bytes=dynamic_shared_bytes)


def read_cubin(
    content: bytes, kernel: str | None = None, *, threads: int | None = None, dynamic_shared_bytes: int = 0
) -> tuple[MachineCode, ...]:
    """The kernels of a cubin, in the order in which they stand there.

    Args:
        kernel: only this one, by its name in the cubin or, of a C++ function, in the source.
        threads: of a block; where left out, what the kernel itself demands.
        dynamic_shared_bytes: of a block, added by the launch; counts in the occupancy.
    Raises:
        UsageError: no cubin, a damaged one, or one that this nvdisasm does not know.
        NotFoundError: no such kernel in it.
        MissingDependency: no nvdisasm here.
    """
    cubin = CubinFile(content)
    there = cubin.kernels()
    chosen = [function for function in there if kernel is None or _matches_name(function.name, kernel)]
    if not there:
        raise UsageError("this cubin holds no kernel", next="build it with a __global__ function")
    if not chosen:
        names = ", ".join(function.name for function in there[:8])
        raise NotFoundError(f"no kernel {kernel!r} in this cubin; there are {names}", next=f"take {there[0].name}")
    code = disassemble(content)
    return tuple(_kernel(cubin, function, code, threads, dynamic_shared_bytes) for function in chosen)


def _matches_name(symbol: str, name: str) -> bool:
    """C++ writes the length of a name before it and its parameters behind."""
    return symbol == name or symbol.startswith(f"_Z{len(name)}{name}")


def _kernel(
    cubin: CubinFile,
    kernel: Function,
    code: dict[str, list[SassInstruction]],
    threads: int | None,
    dynamic_shared_bytes: int,
) -> MachineCode:
    lines = code.get(kernel.name, [])
    taken = read_resources(cubin, kernel)
    called = [other for other in cubin.functions if other.section == kernel.section and not is_slow_path(other.name)]
    moves = analyze_control_flow(lines, [other.start for other in called])
    spilling, certain = find_spills(cubin, kernel, moves.lines)
    lost, room = sum_spills(moves.lines, spilling, certain), _occupancy(cubin, taken, threads, dynamic_shared_bytes)
    return MachineCode(
        kernel=kernel.name,
        arch=cubin.arch,
        registers=taken.registers,
        shared_bytes=taken.shared_bytes,
        spills=lost,
        stack_bytes=taken.stack_bytes,
        occupancy=room,
        instruction_mix=count_groups(moves.lines),
        access_widths=count_access_widths(moves.lines),
        tensor_instructions=count_tensor_opcodes(moves.lines),
        loops=tuple(_loop(loop, loop is moves.hot_loop, spilling) for loop in moves.loops),
        summary=summarize_code(
            moves.hot_loop.lines if moves.hot_loop else moves.lines,
            loop=moves.hot_loop is not None,
            compute=cubin.compute,
            spills=lost,
            spilling=spilling,
            stack_bytes=taken.stack_bytes,
            occupancy=room,
        ),
        num_instructions=len(moves.lines),
        instructions=_instructions(moves.lines, spilling),
        notes=_notes(cubin, taken, moves, threads, dynamic_shared_bytes),
    )


def _occupancy(cubin: CubinFile, taken: Resources, threads: int | None, dynamic: int) -> Occupancy | None:
    if cubin.compute not in LIMITS:
        return None
    return compute_occupancy(cubin.compute, taken.registers, taken.shared_bytes, threads or taken.threads, dynamic)


def _loop(loop: NaturalLoop, hot: bool, spilling: frozenset[int]) -> Loop:
    return Loop(
        first_address=loop.lines[0].address,
        last_address=loop.lines[-1].address,
        depth=loop.depth,
        num_instructions=len(loop.lines),
        instruction_mix=count_groups(loop.lines),
        is_hot=hot,
        instructions=_instructions(loop.lines, spilling) if hot else (),
    )


def _instructions(lines: Sequence[SassInstruction], spilling: frozenset[int]) -> tuple[Instruction, ...]:
    return tuple(
        Instruction(
            address=line.address,
            opcode=line.opcode,
            operands=line.operands,
            predicate=line.predicate,
            group=classify(line),
            description=describe_instruction(line, line.address in spilling),
            file=line.file,
            line=line.line,
            is_spill=line.address in spilling,
        )
        for line in lines
    )


def _notes(
    cubin: CubinFile, taken: Resources, moves: ControlFlow, threads: int | None, dynamic: int
) -> tuple[str, ...]:
    found = []
    if not dynamic and not taken.shared_bytes and any(_touches_shared(line) for line in moves.lines):
        found.append("its shared memory is given at the launch; occupancy is without it, since nobody said how much")
    if threads is None and taken.threads and not taken.threads_required:
        found.append(f"occupancy is that of the largest block that the kernel allows, {taken.threads} threads")
    if cubin.compute not in LIMITS:
        found.append(f"the limits of {cubin.arch} are not known here, so neither is the occupancy")
    called = {
        line.operands for line in moves.lines if line.base_opcode == "CALL" and not line.operands.startswith("0x")
    }
    if slow := {name for name in called if is_slow_path(name)}:
        found.append(
            f"slow paths ({len(slow)}) of divisions and the like are left out; ordinary numbers never take them"
        )
    if called - slow:
        found.append("it calls functions that were not inlined; their loops stand here without those around the call")
    if any(line.base_opcode in ("BRX", "BRXU", "JMX", "JMXU") for line in moves.lines):
        found.append("it jumps to computed addresses: a loop that goes through one is not seen")
    return tuple(found)


def is_slow_path(name: str) -> bool:
    """A function of the compiler's own that takes over where a division or a root meets odd numbers."""
    return name.startswith("$__internal_") and name.endswith("slowpath")


def _touches_shared(line: SassInstruction) -> bool:
    return not line.is_never_executed and line.base_opcode in (
        "LDS",
        "STS",
        "LDSM",
        "STSM",
        "LDGSTS",
        "ATOMS",
        "UTMALDG",
        "UBLKCP",
    )
