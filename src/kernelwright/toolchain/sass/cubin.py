"""Kernels of a cubin as `MachineCode` records: disassembly, resource usage, loops and summary."""

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
    """Read the kernels of a cubin file; arguments and errors as for `read_cubin`.

    Raises:
        NotFoundError: no such file.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as fault:
        raise NotFoundError(f"cannot read {path}: {fault.strerror}", next="pass the path of a .cubin") from fault
    return read_cubin(content, kernel, threads=threads, dynamic_shared_bytes=dynamic_shared_bytes)


def read_cubin(
    content: bytes, kernel: str | None = None, *, threads: int | None = None, dynamic_shared_bytes: int = 0
) -> tuple[MachineCode, ...]:
    """Read the kernels of a cubin, in file order.

    Args:
        kernel: only this kernel, by its symbol or, for a C++ function, its name in the source.
        threads: per block; default: the block size that the kernel requires or its launch bound.
        dynamic_shared_bytes: dynamic shared memory per block, for the occupancy.
    Raises:
        UsageError: not a cubin, a damaged one, or one that the installed nvdisasm does not support.
        NotFoundError: no such kernel.
        MissingDependency: nvdisasm not found.
    """
    cubin = CubinFile(content)
    kernels = cubin.kernels()
    selected = [function for function in kernels if kernel is None or _matches_name(function.name, kernel)]
    if not kernels:
        raise UsageError("this cubin contains no kernel", next="build it with a __global__ function")
    if not selected:
        names = ", ".join(function.name for function in kernels[:8])
        raise NotFoundError(f"no kernel {kernel!r} in this cubin; there are {names}", next=f"use {kernels[0].name}")
    code = disassemble(content)
    return tuple(_kernel(cubin, function, code, threads, dynamic_shared_bytes) for function in selected)


def _matches_name(symbol: str, name: str) -> bool:
    """Whether a symbol is `name` or a C++ function of that name (Itanium mangling: _Z, length, name, parameters)."""
    return symbol == name or symbol.startswith(f"_Z{len(name)}{name}")


def _kernel(
    cubin: CubinFile,
    kernel: Function,
    code: dict[str, list[SassInstruction]],
    threads: int | None,
    dynamic_shared_bytes: int,
) -> MachineCode:
    lines = code.get(kernel.name, [])
    resources = read_resources(cubin, kernel)
    callees = [other for other in cubin.functions if other.section == kernel.section and not is_slow_path(other.name)]
    flow = analyze_control_flow(lines, [other.start for other in callees])
    spill_addresses, is_exact = find_spills(cubin, kernel, flow.lines)
    spills = sum_spills(flow.lines, spill_addresses, is_exact)
    occupancy = _occupancy(cubin, resources, threads, dynamic_shared_bytes)
    return MachineCode(
        kernel=kernel.name,
        arch=cubin.arch,
        registers=resources.registers,
        shared_bytes=resources.shared_bytes,
        spills=spills,
        stack_bytes=resources.stack_bytes,
        occupancy=occupancy,
        instruction_mix=count_groups(flow.lines),
        access_widths=count_access_widths(flow.lines),
        tensor_instructions=count_tensor_opcodes(flow.lines),
        loops=tuple(_loop(loop, loop is flow.hot_loop, spill_addresses) for loop in flow.loops),
        summary=summarize_code(
            flow.hot_loop.lines if flow.hot_loop else flow.lines,
            loop=flow.hot_loop is not None,
            compute=cubin.compute,
            spills=spills,
            spilling=spill_addresses,
            stack_bytes=resources.stack_bytes,
            occupancy=occupancy,
        ),
        num_instructions=len(flow.lines),
        instructions=_instructions(flow.lines, spill_addresses),
        notes=_notes(cubin, resources, flow, threads, dynamic_shared_bytes),
    )


def _occupancy(cubin: CubinFile, resources: Resources, threads: int | None, dynamic: int) -> Occupancy | None:
    if cubin.compute not in LIMITS:
        return None
    return compute_occupancy(
        cubin.compute, resources.registers, resources.shared_bytes, threads or resources.threads, dynamic
    )


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
    cubin: CubinFile, resources: Resources, flow: ControlFlow, threads: int | None, dynamic: int
) -> tuple[str, ...]:
    notes = []
    if not dynamic and not resources.shared_bytes and any(_touches_shared(line) for line in flow.lines):
        notes.append("it uses dynamic shared memory of unknown size, which the occupancy does not include")
    if threads is None and resources.threads and not resources.threads_required:
        notes.append(f"occupancy is that of the largest block that the kernel allows, {resources.threads} threads")
    if cubin.compute not in LIMITS:
        notes.append(f"the limits of {cubin.arch} are not in the table, so the occupancy is unknown")
    called = {line.operands for line in flow.lines if line.base_opcode == "CALL" and not line.operands.startswith("0x")}
    if slow := {name for name in called if is_slow_path(name)}:
        notes.append(f"slow paths ({len(slow)}) of divisions and square roots are left out; normal values skip them")
    if called - slow:
        notes.append("it calls functions that were not inlined; the depth of their loops does not count the caller's")
    if any(line.base_opcode in ("BRX", "BRXU", "JMX", "JMXU") for line in flow.lines):
        notes.append("it has indirect branches: loops through them are not detected")
    return tuple(notes)


def is_slow_path(name: str) -> bool:
    """Whether a function is the compiler's slow path of a division or square root (denormals, overflow)."""
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
