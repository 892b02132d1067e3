"""Words, widths, and what a person reads of a kernel."""

from importlib.util import module_from_spec, spec_from_file_location

import pytest

from kernelwright.toolchain.cuda import compile_cubin
from kernelwright.toolchain.sass import diff_machine_code, find_tool, read_cubin
from kernelwright.toolchain.sass.descriptions import describe_instruction
from kernelwright.toolchain.sass.disassembly import SassInstruction
from kernelwright.toolchain.sass.opcode_classes import classify, count_access_widths
from kernelwright.toolchain.sass.registers import registers_read, registers_written
from kernelwright.toolchain.sass.summary import bank_conflicts, loads_in_flight

WORDS = [
    ("LDG.E.128", "R12,desc[UR6][R4.64]", "one 16-byte load, four floats"),
    ("LDG.E.128.CONSTANT", "R12,desc[UR6][R4.64]", "one 16-byte load, four floats, read-only"),
    ("LDG.E.U16", "R2,desc[UR12][R2.64]", "one 2-byte load"),
    ("STG.E.64", "desc[UR6][R2.64],R12", "one 8-byte store, two floats"),
    ("LDS.128", "R4,[R2]", "16 bytes from shared memory, four floats"),
    ("STS", "[R9],R0", "4 bytes to shared memory, one float"),
    (
        "LDGSTS.E.BYPASS.128",
        "[R18],desc[UR6][R12.64]",
        "asynchronous copy of 16 bytes from global to shared memory, bypassing L1",
    ),
    ("LDSM.16.M88.4", "R8,[R19+UR4]", "four 8x8 matrices of 16 bits from shared memory"),
    ("LDSM.16.MT88.2", "R14,[R0]", "two 8x8 matrices of 16 bits from shared memory, transposed"),
    ("STSM.16.M88.4", "[R2],R4", "four 8x8 matrices of 16 bits to shared memory"),
    ("HMMA.16816.F32.BF16", "R4,R8,R14,R4", "tensor cores: 16x8x16 MMA of a warp"),
    ("HMMA.1688.F32.TF32", "R4,R8,R14,R4", "tensor cores: 16x8x8 MMA of a warp"),
    ("IMMA.16832.S8.S8", "R4,R8,R14,R4", "tensor cores: 16x8x32 MMA of a warp"),
    ("DMMA.8x8x4", "R4,R8,R14,R4", "tensor cores: 8x8x4 MMA of a warp"),
    ("DMMA.884", "R4,R8,R14,R4", "tensor cores: 8x8x4 MMA of a warp"),
    ("HGMMA.64x128x16.F32.BF16", "R88,gdesc[UR8],R88", "tensor cores: 64x128x16 MMA of a warp group, asynchronous"),
    ("MUFU.EX2", "R9,R7", "special function unit: 2 to the power of x"),
    ("BAR.SYNC.DEFER_BLOCKING", "0x0", "waits for all threads of the block"),
    ("BAR.SYNC.DEFER_BLOCKING", "0x1,0x40", "waits for the threads of a named barrier"),
    ("SYNCS.PHASECHK.TRANS64.TRYWAIT", "P0,[UR4],R3", "tests whether an mbarrier phase is complete"),
    ("UBLKCP.G.S", "[UR4],[UR6],UR10", "TMA: bulk copy from shared memory"),
    ("HFMA2.MMA", "R5,-RZ,RZ,0,0", "copies a register or a constant, on an idle arithmetic unit"),
    ("HFMA2.BF16_V2", "R5,R4,R3,R2", "two BF16 multiply-adds"),
    ("HADD2.F32", "R0,-RZ,R2.H0_H0", "converts FP16 to FP32"),
    ("LDL.LU", "R0,[R1+0x8]", "reads local memory: an indexed array or a spill"),
    ("XYZZY.NEW", "R0,R1", ""),
]


@pytest.mark.parametrize(("opcode", "operands", "words"), WORDS)
def test_an_instruction_in_words(opcode, operands, words):
    assert describe_instruction(SassInstruction(0, opcode, operands)) == words


def test_what_never_runs_counts_as_nothing():
    padding = SassInstruction(0, "LDS", "RZ,[RZ]", "@!PT")
    assert describe_instruction(padding) == "never executed: padding by the compiler"
    assert classify(padding) == "other"
    assert count_access_widths([padding]) == {}


def test_a_spill_is_called_one():
    assert describe_instruction(SassInstruction(0, "LDL", "R0,[R1]"), spill=True) == "reloads a spilled register"
    assert describe_instruction(SassInstruction(0, "STL", "[R1],R0"), spill=True) == "spills a register"


@pytest.mark.parametrize(
    ("opcode", "operands", "reads", "writes"),
    [
        ("LDG.E.128", "R12,desc[UR6][R4.64+0x10]", {4, 5}, {12, 13, 14, 15}),
        ("STG.E.64", "desc[UR6][R2.64],R12", {2, 3, 12, 13}, set()),
        ("FFMA", "R0,R1,-R2.reuse,|R3|", {1, 2, 3}, {0}),
        ("ISETP.GE.AND", "P0,PT,R5,0x1,PT", {5}, set()),
        ("IADD3", "R2,P2,R4,0x40,RZ", {4}, {2}),
        ("IMAD.WIDE", "R4,R0,0x10,R8", {0, 8}, {4, 5}),
        ("SHFL.BFLY", "PT,R5,R4,0x10,0x1f", {4}, {5}),
        ("HMMA.16816.F32", "R4,R8,R14,R4", {8, 9, 10, 11, 14, 15, 4, 5, 6, 7}, {4, 5, 6, 7}),
        ("UMOV", "UR4,0x400", set(), set()),
    ],
)
def test_registers_of_an_instruction(opcode, operands, reads, writes):
    line = SassInstruction(0, opcode, operands)
    assert (registers_read(line), registers_written(line)) == (reads, writes)


def test_loads_in_flight_before_the_first_is_needed():
    def load(register):
        return SassInstruction(0, "LDG.E.128", f"R{register},desc[UR6][R2.64]")

    use = SassInstruction(0, "FADD", "R0,R0,R10")
    assert loads_in_flight([load(8), load(12), load(16), use], loop=False) == (3, 48)
    assert loads_in_flight([load(8), use, load(12), use], loop=False) == (1, 16)
    assert loads_in_flight([use, load(8), load(12)], loop=False) == (2, 32)
    assert loads_in_flight([SassInstruction(0, "FADD", "R0,R0,R4"), load(8), use, load(12)], loop=True) == (2, 32)
    assert loads_in_flight([], loop=True) == (0, 0)


def test_three_registers_of_one_bank_conflict_unless_one_is_kept():
    clash = SassInstruction(0, "FFMA", "R0,R2,R4,R6")
    assert bank_conflicts([clash]) == 1
    assert bank_conflicts([SassInstruction(0, "FFMA", "R0,R2,R5,R6")]) == 0
    assert bank_conflicts([SassInstruction(0, "FFMA", "R0,R2,R2,R6")]) == 0
    assert bank_conflicts([SassInstruction(0, "FFMA", "R8,R2.reuse,R5,R7"), clash]) == 0
    assert bank_conflicts([SassInstruction(0, "FFMA", "R8,R5,R2.reuse,R7"), clash]) == 1  # kept, but in another place
    assert bank_conflicts([SassInstruction(0, "FFMA", "R0,R2,c[0x0][0x10],R6")]) == 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_wide_and_scalar_copies(code, arch):
    wide, scalar = code("copy16", arch), code("copy4", arch)
    assert wide.access_widths == {"global load": {16: 1}, "global store": {16: 1}}
    assert scalar.access_widths == {"global load": {4: 1}, "global store": {4: 1}}
    assert "In the hot loop the one global load is 16 bytes wide." in wide.summary
    assert "the one global load is 4 bytes wide; 16-byte accesses would need 4 times fewer" in scalar.summary


def test_the_share_of_multiply_adds_bounds_the_peak(code):
    found = code("sgemm")
    share = 512 / found.hot_loop.num_instructions
    assert 0.8 < share < 1
    assert f"FFMA is {share:.0%}".replace("%", " %") in found.summary
    assert f"at best {share:.0%}".replace("%", " %") in found.summary
    assert "16.0 FFMA per load from shared memory" in found.summary
    assert f"FMA peak. {512 / 32:.1f} FFMA" in found.summary  # no branch but the one back: all of it runs
    # half as many lanes: two issue slots per FFMA
    assert "the issue rate does not limit it" in code("sgemm", "sm_80").summary


def test_a_loop_with_branches_inside_promises_less(cubin, code):
    code("copy4")
    (found,) = read_cubin(compile_cubin(SOURCE_WITH_A_BRANCH).code)
    assert found.hot_loop.instruction_mix["branch"] > 1
    assert "of the FMA peak if all of them execute" in found.summary


SOURCE_WITH_A_BRANCH = """
extern "C" __global__ void f(float* x, int n, float y) {
  float s = x[threadIdx.x];
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    if (x[i] > y) {
#pragma unroll
      for (int j = 0; j < 32; j++) s = fmaf(s, s, y);
      __syncthreads();
      x[i + threadIdx.x * n] = s;
    }
  }
  x[threadIdx.x] = s;
}
"""


def test_a_kernel_that_spills_is_told_so(code):
    assert "It spills 2,912 bytes and reloads 2,672 per thread" in code("spilling").summary


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_tensor_instructions_and_their_shape(code, arch):
    found = code("mma", arch)
    assert found.tensor_instructions == {"HMMA.16816.F32.BF16": 1}
    assert found.hot_loop.instruction_mix["tensor"] == 1
    assert found.access_widths["shared load"] == {8: 1, 16: 1}
    assert "In the hot loop one asynchronous copy of 16 bytes per thread" in found.summary


def test_a_warp_groups_product_and_the_copy_engine(code):
    found = code("wgmma")
    assert list(found.tensor_instructions) == ["HGMMA.64x8x16.F32.BF16"]
    assert "In the hot loop the TMA fills shared memory." in found.summary
    assert found.access_widths == {"global store": {4: 4}}


@pytest.mark.parametrize("name", ["copy16", "sgemm", "spilling", "indexed", "several", "mma", "wgmma"])
def test_most_instructions_have_words_and_the_mix_is_whole(code, name):
    found = code(name)
    assert sum(found.instruction_mix.values()) == found.num_instructions == len(found.instructions)
    assert sum(bool(one.description) for one in found.instructions) >= 0.95 * found.num_instructions
    for loop in found.loops:
        assert sum(loop.instruction_mix.values()) == loop.num_instructions <= found.num_instructions


def test_two_kernels_side_by_side(code):
    found = diff_machine_code(code("spilling"), code("sgemm"))
    rows = {change.metric: change for change in found.changes}
    assert (rows["registers"].before, rows["registers"].is_better) == ("32", None)
    assert (rows["spill stores, bytes"].before, rows["spill stores, bytes"].after) == ("2,912", "0")
    assert rows["spill stores, bytes"].is_better
    assert not diff_machine_code(code("sgemm"), code("spilling")).changes[0].is_better
    assert "shared bytes" not in rows
    assert diff_machine_code(code("sgemm"), code("sgemm")).changes == ()


@pytest.mark.parametrize("arch", [80, 90])
def test_what_triton_compiles(arch, code, tmp_path):
    pytest.importorskip("triton", reason="needs the extra cuda")
    code("copy4")
    source = tmp_path / "triton_softmax.py"
    source.write_text(TRITON)
    spec = spec_from_file_location("triton_softmax", source)
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    compiled = module.build(arch)
    (found,) = read_cubin(compiled.asm["cubin"], dynamic_shared_bytes=compiled.metadata.shared)
    assert found.kernel == "softmax"
    assert found.occupancy.threads_per_block == 32 * compiled.metadata.num_warps
    assert found.access_widths["global load"] == {16: 2}
    assert found.instruction_mix["special"] >= 8
    if "triton" not in find_tool("nvdisasm").parts:  # that of 12.8 says no lines in JSON
        assert found.instructions[0].file == "triton_softmax.py"
        assert found.instructions[0].line
    assert "Both global loads are 16 bytes wide." in found.summary


TRITON = """
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def softmax(x, y, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
    values = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * n + at, values / tl.sum(values, 0), mask=at < n)


def build(arch):
    types = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(3)}
    return triton.compile(ASTSource(softmax, types, {(3,): 1024}, aligned), target=GPUTarget("cuda", arch, 32))
"""
