"""Whatever a person names: CUDA C++, a rung, a cubin, a Triton kernel; and what is wrong with what they named."""

import re

import pytest
from tiers import fast_where

from kernelwright.commands.machine_code import compare_machine_code, disassemble, disassemble_largest
from kernelwright.core.errors import CompileError, KernelwrightError, UsageError
from kernelwright.kernels.catalog import KERNELS
from kernelwright.kernels.kernel_spec import CudaSignature
from kernelwright.toolchain.cuda import compile_cubin

pytest.importorskip("cuda.core", reason="CUDA C++ needs the extra cuda")

TWO = """extern "C" __global__ void one(float* x) { x[threadIdx.x] = VALUE; }
extern "C" __global__ void two(float* x) { x[threadIdx.x] += 2; }
"""
TRITON = """import triton
import triton.language as tl

@triton.jit
def scaled(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < count) * 2, mask=at < count)
"""


def test_a_rung_knows_its_block_from_its_header():
    found = disassemble("ladders/gemm_fp32:tile_2d")
    assert found.kernel == "gemm_tile_2d"
    assert (found.occupancy.threads_per_block, found.hot_loop is None) == (256, False)
    assert disassemble("ladders/gemm_fp32:5") == found


def test_two_rungs_side_by_side():
    found = compare_machine_code("ladders/gemm_fp32:5", "ladders/gemm_fp32:6")
    assert "global loads of 16 bytes" in {change.metric for change in found.changes}


def test_one_kernel_of_several_and_defines(tmp_path):
    path = tmp_path / "two.cu"
    path.write_text(TWO)
    assert disassemble(f"{path}:two", defines={"VALUE": "1"}).kernel == "two"
    assert disassemble(f"{path}:one", defines={"VALUE": "3"}, arch="sm_80").arch == "sm_80"
    with pytest.raises(KernelwrightError, match="holds 2 kernels") as caught:
        disassemble(str(path), defines={"VALUE": "1"})
    assert caught.value.next in (f"kw sass {path}:one", f"kw sass {path}:two")
    with pytest.raises(CompileError, match="VALUE"):
        disassemble(str(path))


def test_the_largest_kernel_is_where_the_work_is(tmp_path):
    path = tmp_path / "two.cu"
    path.write_text(TWO.replace("VALUE", "1").replace("+= 2", "= sqrtf(x[threadIdx.x]) + 2"))
    assert disassemble_largest(str(path)).kernel == "two"


def test_sizes_in_the_header_are_worked_out_where_they_hang_on_no_input(tmp_path):
    path = tmp_path / "shared.cu"
    head = "// kw: entry one\n// kw: args out, n\n// kw: out out: float32[n]\n// kw: block 4 * 8, cdiv(5, 2)\n"
    path.write_text(head + "// kw: shared 4 * 32 * 33\n" + TWO.splitlines()[0])
    occupancy = disassemble(str(path), defines={"VALUE": "1"}).occupancy
    assert occupancy.threads_per_block == 96


def test_a_kernel_of_a_rung_may_be_named():
    assert disassemble("ladders/gemm_fp32:5:gemm_tile_2d").kernel == "gemm_tile_2d"
    with pytest.raises(KernelwrightError, match="no_such"):
        disassemble("ladders/gemm_fp32:5:no_such")


def test_a_triton_kernel_compiles_offline(tmp_path):
    pytest.importorskip("triton")
    path = tmp_path / "scaled.py"
    path.write_text(TRITON)
    found = disassemble(str(path), signature="*fp32, *fp32, i32, 1024")
    assert (found.kernel, found.occupancy.threads_per_block) == ("scaled", 128)
    with pytest.raises(KernelwrightError, match="x_ptr, out_ptr, count, BLOCK") as caught:
        disassemble(str(path))
    assert caught.value.next == 'such as --signature "*fp32, *fp32, i32, 1024"'
    for wrong, says in (
        ("*fp32, *fp32, i32", "names 3"),
        ("*fp32, *fp32, float, 1024", "count is 'float'"),
        ("*fp32, *fp32, i32, n", "BLOCK is 'n', and must be a number"),
        ("*fp32, *fp32, *i32, 1024", "Triton does not compile scaled"),
    ):
        with pytest.raises(KernelwrightError, match=re.escape(says)):
            disassemble(str(path), signature=wrong)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.py", "x = 1\n", "holds no Triton kernel"),
        ("a.txt", "", "have machine code"),
        ("a.cubin", "no cubin", "cubin"),
        ("a.cu", "__device__ int x;", "kernel"),
    ],
)
def test_what_has_no_machine_code_is_said(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(KernelwrightError, match=says):
        disassemble(str(tmp_path / name))


def test_machine_code_is_not_compiled_again(tmp_path):
    path = tmp_path / "two.cubin"
    path.write_bytes(compile_cubin(TWO, "sm_80", defines={"VALUE": "1"}).code)
    assert disassemble(f"{path}:one").arch == disassemble(f"{path}:one", arch="sm_80").arch == "sm_80"
    for meant in ({"arch": "sm_100a"}, {"defines": {"VALUE": "2"}}):
        with pytest.raises(UsageError, match="machine code for sm_80 already"):
            disassemble(f"{path}:one", **meant)


def test_a_kernel_of_the_library_takes_neither_macros_nor_types():
    for meant in ({"defines": {"N": "2"}}, {"signature": "*fp32"}):
        with pytest.raises(UsageError, match="compiled as it is launched"):
            disassemble("kernels/softmax", **meant)


@pytest.mark.parametrize("name", fast_where(range(0, 99, 8), KERNELS))
def test_every_kernel_of_the_library_compiles_without_spills_and_loads_wide(name):
    pytest.importorskip("triton")
    for variant in KERNELS[name].variants:
        found = disassemble(f"kernels/{name}:{variant}")
        assert (found.spills.stored_bytes, found.spills.loaded_bytes) == (0, 0), variant
        if isinstance(KERNELS[name].variants[variant], CudaSignature):
            assert found.tensor_instructions, variant  # loads are TMA's
        else:
            assert 16 in found.access_widths["global load"], variant
