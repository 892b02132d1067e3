"""A cubin as records: every kernel of it disassembled, measured and read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernelwright.core.errors import NotFoundError, UsageError
from kernelwright.core.machine_code import Instruction, Loop, MachineCode, Occupancy
from kernelwright.toolchain.sass.disassembly import Line, disassemble
from kernelwright.toolchain.sass.elf import Cubin, Function
from kernelwright.toolchain.sass.groups import group_of, mix_of, tensor_of, widths_of
from kernelwright.toolchain.sass.loops import Flow, Found, flow
from kernelwright.toolchain.sass.occupancy import LIMITS, occupancy
from kernelwright.toolchain.sass.reading import reading
from kernelwright.toolchain.sass.resources import Resources, resources, spill_addresses, spills
from kernelwright.toolchain.sass.words import words_of


def read_file(
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
    cubin = Cubin(content)
    there = cubin.kernels()
    chosen = [function for function in there if kernel is None or _is_called(function.name, kernel)]
    if not there:
        raise UsageError("this cubin holds no kernel", next="build it with a __global__ function")
    if not chosen:
        names = ", ".join(function.name for function in there[:8])
        raise NotFoundError(f"no kernel {kernel!r} in this cubin; there are {names}", next=f"take {there[0].name}")
    code = disassemble(content)
    return tuple(_kernel(cubin, function, code, threads, dynamic_shared_bytes) for function in chosen)


def _is_called(symbol: str, name: str) -> bool:
    """C++ writes the length of a name before it and its parameters behind."""
    return symbol == name or symbol.startswith(f"_Z{len(name)}{name}")


def _kernel(
    cubin: Cubin, kernel: Function, code: dict[str, list[Line]], threads: int | None, dynamic_shared_bytes: int
) -> MachineCode:
    lines = code.get(kernel.name, [])
    taken = resources(cubin, kernel)
    called = [other for other in cubin.functions if other.section == kernel.section and not is_slow_path(other.name)]
    moves = flow(lines, [other.start for other in called])
    spilling, certain = spill_addresses(cubin, kernel, moves.lines)
    lost, room = spills(moves.lines, spilling, certain), _occupancy(cubin, taken, threads, dynamic_shared_bytes)
    return MachineCode(
        kernel=kernel.name,
        arch=cubin.arch,
        registers=taken.registers,
        shared_bytes=taken.shared_bytes,
        spills=lost,
        stack_bytes=taken.stack_bytes,
        occupancy=room,
        mix=mix_of(moves.lines),
        widths=widths_of(moves.lines),
        tensor=tensor_of(moves.lines),
        loops=tuple(_loop(loop, loop is moves.hot, spilling) for loop in moves.loops),
        reading=reading(
            moves.hot.lines if moves.hot else moves.lines,
            loop=moves.hot is not None,
            compute=cubin.compute,
            spills=lost,
            spilling=spilling,
            stack_bytes=taken.stack_bytes,
            occupancy=room,
        ),
        count=len(moves.lines),
        instructions=_instructions(moves.lines, spilling),
        notes=_notes(cubin, taken, moves, threads, dynamic_shared_bytes),
    )


def _occupancy(cubin: Cubin, taken: Resources, threads: int | None, dynamic: int) -> Occupancy | None:
    if cubin.compute not in LIMITS:
        return None
    return occupancy(cubin.compute, taken.registers, taken.shared_bytes, threads or taken.threads, dynamic)


def _loop(loop: Found, hot: bool, spilling: frozenset[int]) -> Loop:
    return Loop(
        first=loop.lines[0].address,
        last=loop.lines[-1].address,
        depth=loop.depth,
        count=len(loop.lines),
        mix=mix_of(loop.lines),
        hot=hot,
        instructions=_instructions(loop.lines, spilling) if hot else (),
    )


def _instructions(lines: Sequence[Line], spilling: frozenset[int]) -> tuple[Instruction, ...]:
    return tuple(
        Instruction(
            address=line.address,
            opcode=line.opcode,
            operands=line.operands,
            predicate=line.predicate,
            group=group_of(line),
            words=words_of(line, line.address in spilling),
            file=line.file,
            line=line.line,
            spill=line.address in spilling,
        )
        for line in lines
    )


def _notes(cubin: Cubin, taken: Resources, moves: Flow, threads: int | None, dynamic: int) -> tuple[str, ...]:
    found = []
    if not dynamic and not taken.shared_bytes and any(_touches_shared(line) for line in moves.lines):
        found.append("its shared memory is given at the launch; occupancy is without it, since nobody said how much")
    if threads is None and taken.threads and not taken.exact:
        found.append(f"occupancy is that of the largest block that the kernel allows, {taken.threads} threads")
    if cubin.compute not in LIMITS:
        found.append(f"the limits of {cubin.arch} are not known here, so neither is the occupancy")
    called = {line.operands for line in moves.lines if line.name == "CALL" and not line.operands.startswith("0x")}
    if slow := {name for name in called if is_slow_path(name)}:
        found.append(
            f"slow paths ({len(slow)}) of divisions and the like are left out; ordinary numbers never take them"
        )
    if called - slow:
        found.append("it calls functions that were not inlined; their loops stand here without those around the call")
    if any(line.name in ("BRX", "BRXU", "JMX", "JMXU") for line in moves.lines):
        found.append("it jumps to computed addresses: a loop that goes through one is not seen")
    return tuple(found)


def is_slow_path(name: str) -> bool:
    """A function of the compiler's own that takes over where a division or a root meets odd numbers."""
    return name.startswith("$__internal_") and name.endswith("slowpath")


def _touches_shared(line: Line) -> bool:
    return not line.never and line.name in ("LDS", "STS", "LDSM", "STSM", "LDGSTS", "ATOMS", "UTMALDG", "UBLKCP")
