"""Loops, by hand-made flow and by real kernels."""

import pytest

from kernelwright.toolchain.sass.disassembly import SassInstruction
from kernelwright.toolchain.sass.loops import analyze_control_flow

FFMA, LDG, STG = ("FFMA", "R0,R1,R2,R0"), ("LDG.E", "R1,desc[UR4][R2.64]"), ("STG.E", "desc[UR4][R2.64],R1")


def lines(*rows):
    """(opcode, operands[, predicate]) one after the other, 16 bytes each."""
    return [SassInstruction(16 * i, *row) for i, row in enumerate(rows)]


def test_a_loop_in_a_loop():
    code = lines(("MOV", "R0,RZ"), LDG, FFMA, ("BRA", "0x20", "@P0"), STG, ("BRA", "0x10", "@P1"), ("EXIT", ""))
    found = analyze_control_flow(code)
    assert [(loop.header, loop.depth, len(loop.lines)) for loop in found.loops] == [(16, 1, 5), (32, 2, 2)]
    assert found.hot_loop.header == 16  # it loads what it multiplies


def test_an_inner_loop_is_hot_though_more_stands_around_it():
    code = lines(
        *[FFMA] * 5, LDG, FFMA, ("LDS", "R1,[R2]"), ("BRA", "0x60", "@P0"), ("BRA", "0x0", "@P1"), ("EXIT", "")
    )
    assert analyze_control_flow(code).hot_loop.header == 0x60


def test_the_main_body_of_an_unrolled_loop_is_hot_not_its_rest():
    code = lines(*[LDG, FFMA] * 4, ("BRA", "0x0", "@P0"), LDG, FFMA, ("BRA", "0x90", "@P1"), ("EXIT", ""))
    found = analyze_control_flow(code)
    assert len(found.loops) == 2
    assert found.hot_loop.header == 0


def test_of_two_loops_with_the_same_arithmetic_the_lean_one_is_hot():
    slow = [LDG, *[("LDG.E", "R1,desc[UR4][R2.64]", "@P2")] * 6, FFMA, FFMA, ("BRA", "0x0", "@P0")]
    code = lines(*slow, LDG, FFMA, FFMA, ("BRA", "0xa0", "@P1"), ("EXIT", ""))
    assert analyze_control_flow(code).hot_loop.header == 0xA0


def test_a_loop_that_only_waits_is_never_hot():
    wait = ("SYNCS.PHASECHK.TRANS64.TRYWAIT", "P0,[UR4],R3")
    code = lines(wait, ("BRA", "0x0", "@!P0"), ("HMMA.16816.F32", "R4,R8,R14,R4"), ("BRA", "0x0", "@P1"), ("EXIT", ""))
    assert analyze_control_flow(code).hot_loop.lines[-1].address == 0x30
    assert analyze_control_flow(lines(wait, ("BRA", "0x0", "@!P0"), ("EXIT", ""))).hot_loop is None


def test_padding_behind_the_end_is_no_code_and_no_loop():
    found = analyze_control_flow(lines(FFMA, ("EXIT", ""), ("BRA", "0x20"), ("NOP", ""), ("NOP", "")))
    assert not found.loops
    assert [line.opcode for line in found.lines] == ["FFMA", "EXIT"]


def test_a_jump_with_a_condition_among_its_operands_may_go_on():
    found = analyze_control_flow(lines(FFMA, ("BRA", "!P2,0x0"), ("EXIT", "")))
    assert len(found.loops) == 1
    assert found.lines[-1].opcode == "EXIT"


def test_a_body_that_stands_behind_the_end_of_the_kernel_belongs_to_its_loop():
    code = lines(LDG, ("BRA", "0x40", "@P0"), ("BRA", "0x0", "@P1"), ("EXIT", ""), FFMA, ("BRA", "0x20"))
    (loop,) = analyze_control_flow(code).loops
    assert [line.address for line in loop.lines] == [0x0, 0x10, 0x20, 0x40, 0x50]


def test_two_ways_back_to_one_head_are_one_loop():
    code = lines(LDG, ("BRA", "0x0", "@P0"), FFMA, ("BRA", "0x0", "@P1"), ("EXIT", ""))
    (loop,) = analyze_control_flow(code).loops
    assert len(loop.lines) == 4


def test_a_function_that_is_called_by_name_is_reached_from_its_entry():
    code = lines(("CALL.REL.NOINC", "$f"), ("EXIT", ""), FFMA, ("BRA", "0x20", "@P0"), ("RET.REL.NODEC", "R4,f"))
    assert not analyze_control_flow(code).loops
    assert len(analyze_control_flow(code, [0x20]).loops) == 1


def test_a_call_to_an_address_leaves_a_loop():
    code = lines(LDG, FFMA, ("CALL.REL.NOINC", "0x40", "@P0"), ("BRA", "0x0"), STG, ("EXIT", ""))
    (loop,) = analyze_control_flow(code).loops
    assert len(loop.lines) == 4
    assert len(analyze_control_flow(code).lines) == 6


def test_no_code_is_no_flow():
    assert analyze_control_flow([]).hot_loop is None


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_hot_loop_of_a_product_holds_all_its_multiply_adds(code, arch):
    hot = code("sgemm", arch).hot_loop
    assert hot.instruction_mix["float math"] == 512
    assert hot.instruction_mix["barrier"] == 2
    assert hot.depth == 1
    assert len(hot.instructions) == hot.num_instructions


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_inner_of_two_loops_is_hot(code, arch):
    found = code("several", arch, kernel="nested")
    assert found.hot_loop.depth == 2
    assert found.hot_loop.instruction_mix["float math"] == found.hot_loop.instruction_mix["global load"] == 1


def test_a_loop_with_predicated_work_is_found_with_its_rest(code):
    found = code("several", kernel="predicated")
    assert sum(loop.is_hot for loop in found.loops) == 1
    assert found.hot_loop.num_instructions == max(loop.num_instructions for loop in found.loops)


def test_a_pipelined_product_is_hot_not_its_wait(code):
    found = code("wgmma")
    assert found.hot_loop.instruction_mix["tensor"] >= 1
    assert any(set(loop.instruction_mix) <= {"barrier", "branch"} for loop in found.loops)
