"""What a person reads of a kernel's machine code in a terminal, at every width, with and without Unicode."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from kernelwright.core.machine_code import Instruction, Loop, MachineCode, Occupancy, Spills
from kernelwright.report.terminal import sass
from kernelwright.report.terminal.console import TerminalWriter
from kernelwright.toolchain.sass import diff_machine_code

replace = msgspec.structs.replace


def row(at: int, opcode: str, operands: str, group, words: str, **more) -> Instruction:
    return Instruction(address=16 * at, opcode=opcode, operands=operands, group=group, description=words, **more)


LOAD = row(0, "LDG.E.128", "R12,desc[UR6][R4.64]", "global load", "one 16-byte load, four floats")
FMAS = [row(1 + i, "FFMA", f"R{i},R2,R3,R{i}", "float math", "one FP32 multiply-add") for i in range(8)]
BACK = row(9, "BRA", "0x0", "branch", "back to 0x0", predicate="@!P0")
END = row(10, "EXIT", "", "branch", "the thread ends")
BODY = (LOAD, *FMAS, BACK)
HOT = Loop(
    first_address=0,
    last_address=144,
    depth=1,
    num_instructions=10,
    instruction_mix={"float math": 8, "global load": 1, "branch": 1},
    is_hot=True,
    instructions=BODY,
)
SMALL = MachineCode(
    kernel="saxpy",
    arch="sm_90a",
    registers=40,
    shared_bytes=8192,
    spills=Spills(),
    stack_bytes=0,
    occupancy=Occupancy(blocks_per_sm=6, warps_per_sm=48, fraction=0.75, limiter="registers", threads_per_block=256),
    instruction_mix={"float math": 8, "branch": 2, "global load": 1},
    access_widths={"global load": {16: 1}},
    loops=(HOT,),
    summary="The one global load is 16 bytes wide. No spills.",
    num_instructions=11,
    instructions=(*BODY, END),
)
SPILL = row(5, "STL", "[R1+0x8],R7", "local memory", "spills a register", is_spill=True)
SPILLING = replace(
    SMALL,
    kernel="crowded",
    spills=Spills(stored_bytes=2912, loaded_bytes=2672, instructions=1),
    stack_bytes=896,
    instruction_mix=SMALL.instruction_mix | {"local memory": 1},
    loops=(replace(HOT, num_instructions=11, instructions=(LOAD, SPILL, *FMAS, BACK)),),
    notes=("occupancy is that of the largest block that the kernel allows, 256 threads",),
)
LONG = replace(
    SMALL,
    kernel="a_kernel_with_a_name_" + "x" * 200,
    loops=(replace(HOT, num_instructions=200, instructions=BODY * 20),),
    tensor_instructions={"HGMMA.64x128x16.F32.BF16": 8},
    instruction_mix=SMALL.instruction_mix | {"tensor": 8},
)
BARE = replace(SMALL, kernel="flat", loops=(), occupancy=None)
UNKNOWN = replace(SMALL, occupancy=Occupancy(blocks_per_sm=None, warps_per_sm=48, fraction=0.75))
LINES = replace(
    SMALL,
    loops=(replace(HOT, instructions=tuple(replace(one, file="a/b.cu", line=3 + (one is BACK)) for one in BODY)),),
)
EVERY = {"small": SMALL, "spilling": SPILLING, "long": LONG, "bare": BARE, "unknown": UNKNOWN, "lines": LINES}


def printed(found: MachineCode, width: int = 100, encoding: str = "utf-8") -> str:
    return on_paper(lambda paper: sass.write(found, paper), width, encoding)


def on_paper(write, width: int = 100, encoding: str = "utf-8") -> str:
    sink = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    write(TerminalWriter.from_console(Console(file=sink, width=width, color_system=None, force_terminal=False)))
    sink.seek(0)
    return sink.read()


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("width", [80, 100, 160, 400])
def test_no_line_is_wider_than_the_terminal(name, width):
    assert max(map(len, printed(EVERY[name], width).splitlines())) <= min(width, 160)


@pytest.mark.parametrize("name", EVERY)
def test_a_terminal_without_unicode_gets_ascii(name):
    assert printed(EVERY[name], 80, "ascii").isascii()


def test_a_name_cannot_drive_the_terminal():
    hostile = replace(SMALL, kernel="\x1b[31mred\r\n", summary="\x07bell", notes=("\x1b]0;title\x07",))
    assert not any(c in printed(hostile) for c in "\x1b\r\x07")


def test_what_it_takes_stands_on_one_line():
    line = printed(SMALL, 120).splitlines()[1]
    assert line == "  registers 40   shared 8 KiB   no spills   occupancy 75 % (registers: 6 blocks of 256 threads)"


def test_spills_and_stack_are_said_and_the_spilling_line_shown():
    shown = printed(SPILLING, 120)
    assert "spills 2,912 B stored, 2,672 B loaded   stack 896 B" in shown
    assert "0x0050  STL" in shown and "spills a register" in shown
    assert "the largest block that the kernel allows" in shown


def test_alike_neighbours_are_one_line():
    shown = printed(SMALL)
    assert "0x0010  8 x FFMA" in shown
    assert shown.count("FFMA") == 1
    assert "@!P0 BRA" in shown and "back to 0x0" in shown


def test_a_long_loop_is_told_by_kinds_with_the_arithmetic_first():
    shown = printed(LONG)
    assert "hot loop  200 instructions" in shown
    assert "160  FFMA" in shown
    assert shown.index("160  FFMA") < shown.index(" 20  LDG.E.128") < shown.index(" 20  BRA")
    assert "8 x HGMMA.64x128x16.F32.BF16" in shown


def test_a_kernel_without_a_loop_is_shown_whole():
    shown = printed(BARE)
    assert "no loop  11 instructions" in shown
    assert "EXIT" in shown
    assert "occupancy" not in shown


def test_an_unknown_block_size_is_said():
    assert "occupancy up to 75 % (block size unknown)" in printed(UNKNOWN)


def test_source_lines_stand_where_they_change():
    assert [line.strip() for line in printed(LINES).splitlines() if ".cu:" in line] == ["a/b.cu:3", "a/b.cu:4"]


def test_only_what_changed_is_in_the_difference():
    shown = on_paper(lambda paper: sass.write_difference(diff_machine_code(SPILLING, SMALL), paper))
    assert "crowded (sm_90a)  ->  saxpy (sm_90a)" in shown
    assert any(line.split() == ["stack", "bytes", "896", "0", "better"] for line in shown.splitlines())
    assert "registers" not in shown
    back = on_paper(lambda paper: sass.write_difference(diff_machine_code(SMALL, SPILLING), paper))
    assert "worse" in back and "better" not in back


def test_no_difference_is_said():
    shown = on_paper(lambda paper: sass.write_difference(diff_machine_code(SMALL, SMALL), paper))
    assert "no differences" in shown
