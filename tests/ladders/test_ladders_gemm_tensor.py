"""The rungs on tensor cores: emulated results, what they compile to, and NVIDIA's sanitizer on a GPU."""

import os
import re
import shutil
import subprocess
import sys
from functools import cache, partial

import pytest
import torch

from kernelwright.benchmark.ladder import run_ladder
from kernelwright.core.errors import ProblemError
from kernelwright.hwcheck.emulation import InstrumentedKernel
from kernelwright.hwcheck.ladder_counters import emulated_ratios
from kernelwright.ladders import find_rung, read_rungs, task_path
from kernelwright.problems import load_candidate, load_problem
from kernelwright.problems.cuda import build_cuda_program
from kernelwright.problems.importing import import_file
from kernelwright.toolchain.cuda import compile_cubin
from kernelwright.toolchain.sass.disassembly import disassemble

LADDER = "gemm_tensor"
RUNGS = read_rungs(LADDER)
NAMES = [rung.name for rung in RUNGS]
FIRST_WITH_LDMATRIX, FIRST_WITH_CP_ASYNC = 3, 5


def product(name, *inputs, device="cpu"):
    rung = find_rung(LADDER, name)
    return load_candidate(str(rung.path), load_problem(str(task_path(LADDER))), device).program(*inputs)


def inputs(*size):
    torch.manual_seed(0)
    return import_file(task_path(LADDER), ProblemError).inputs(size)


@cache
def opcodes(name):
    """Opcodes of each kernel of a rung."""
    rung = find_rung(LADDER, name)
    code = compile_cubin(rung.path.read_text(), include_dirs=[rung.path.parent], name=str(rung.path)).code
    return {kernel: [line.opcode for line in lines] for kernel, lines in disassemble(code).items()}


def test_at_least_forty_shapes_cover_parts_of_tiles():
    shapes = import_file(task_path(LADDER), ProblemError).SHAPES
    assert len(set(shapes)) == len(shapes) >= 40
    assert all(n % 8 == k % 8 == 0 for _, n, k in shapes)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(17, 72, 200), (130, 264, 8), (1, 8, 72), (5, 16, 0), (0, 8, 16)], ids=str)
def test_emulated_products(name, size):
    a, b = inputs(*size)
    expected = (a.double() @ b.double().T).bfloat16()
    torch.testing.assert_close(product(name, a, b), expected, rtol=0.01, atol=0.01)


def test_a_block_computes_several_tiles():
    """Emulated, three blocks share six tiles of 128 x 256, with two and a half k-tiles each."""
    a, b = inputs(270, 264, 160)
    torch.testing.assert_close(product("persistent", a, b), (a.float() @ b.float().T).bfloat16(), rtol=0.01, atol=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_machine_code(name):
    pytest.importorskip("cuda.core", reason="CUDA C++ needs the extra cuda")
    number = find_rung(LADDER, name).number
    for kernel, found in opcodes(name).items():
        assert any(opcode.startswith("HMMA.16816.F32.BF16") for opcode in found), kernel
        assert any(opcode.startswith("LDSM") for opcode in found) == (number >= FIRST_WITH_LDMATRIX)
        assert any(opcode.startswith("LDGSTS") for opcode in found) == (number >= FIRST_WITH_CP_ASYNC)
        assert not any(re.match(r"LDL|STL", opcode) for opcode in found), f"{kernel} spills"


def test_the_swizzle_removes_every_bank_conflict():
    """Eight wavefronts where one would do for fragments; copies to shared memory have none."""
    name, small = "passes over the ideal", inputs(32, 64, 64)
    assert emulated_ratios(find_rung(LADDER, "ldmatrix"), small)[name] > 4
    assert emulated_ratios(find_rung(LADDER, "swizzle"), small)[name] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "removed"),
    [("ring", "__syncthreads();"), ("wide_stores", ""), ("stage_barriers", "")],
    ids=["missing barrier", "one tile", "several tiles"],
)
def test_emulated_races(name, removed, tmp_path):
    """ThreadSanitizer on the CPU finds a missing barrier, and nothing in the rungs."""
    rung, problem, launches = find_rung(LADDER, name), load_problem(str(task_path(LADDER))), []
    for header in rung.path.parent.glob("*.cuh"):
        shutil.copy(header, tmp_path)
    (tmp_path / "changed.cu").write_text(
        rung.path.read_text().replace(removed, "") if removed else rung.path.read_text()
    )
    instrument = partial(InstrumentedKernel, launches=launches, sanitizers=("address", "thread"))
    build_cuda_program(tmp_path / "changed.cu", "", problem, "cpu", instrument)(*inputs(33, 264, 136))
    assert {fault.kind for launch in launches for fault in launch.faults} == ({"race"} if removed else set())


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_every_shape_on_a_gpu(name):
    (rung,) = run_ladder(LADDER, rung_names=[name], sizes=[(256, 256, 256)]).rungs
    assert rung.accepted, rung.reason


@pytest.mark.gpu
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck"])
def test_every_rung_is_clean_under_the_sanitizer(tool):
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if sanitizer is None:
        pytest.skip("no compute-sanitizer")
    command = [sanitizer, "--tool", tool, "--report-api-errors", "no", sys.executable, __file__]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "ERROR SUMMARY: 0 errors" in done.stdout or "0 hazards displayed (0 errors, 0 warnings)" in done.stdout


def _launch_every_rung():
    for size in ((129, 72, 40), (33, 264, 200)):
        on_gpu = [tensor.cuda() for tensor in inputs(*size)]
        for name in NAMES:
            product(name, *on_gpu, device="cuda")
    torch.cuda.synchronize()


if __name__ == "__main__":
    _launch_every_rung()
