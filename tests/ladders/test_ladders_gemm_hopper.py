"""The rungs with wgmma and TMA: their machine code here; their results and NVIDIA's sanitizer on a GPU."""

import functools
import os
import re
import shutil
import subprocess
import sys

import pytest
import torch

from kernelwright.core.errors import ProblemError
from kernelwright.ladders import find_rung, needs_tma, read_rungs, task_path
from kernelwright.problems import load_candidate, load_problem
from kernelwright.problems.cuda import convert_scalar
from kernelwright.problems.header import parse_header
from kernelwright.problems.importing import import_file
from kernelwright.problems.plan import InvocationPlanner
from kernelwright.problems.prototype import find_prototype

LADDER = "gemm_hopper"
RUNGS = read_rungs(LADDER)
NAMES = [one.name for one in RUNGS]
TILES = {
    "wgmma_tma": ("64x64x16",),
    "larger_tile": ("64x128x16",),
    "warp_specialised": ("64x128x16",),
    "ping_pong": ("64x128x16",),
    "single_blocks": ("64x128x16",),
    "tile_choice": ("64x128x16", "64x192x16"),
}
"""wgmma shapes; all other rungs have 64x256x16."""
MULTICAST = ("multicast", "tma_store", "grouped", "hilbert", "ping_pong")
MACHINE_SMS = 132


def task():
    return import_file(task_path(LADDER), ProblemError)


@functools.cache
def machine_code(name):
    from kernelwright.toolchain.cuda import compile_cubin
    from kernelwright.toolchain.sass import read_cubin

    path = find_rung(LADDER, name).path
    cubin = compile_cubin(path.read_text(), include_dirs=[path.parent], name=str(path))
    return read_cubin(cubin.code), cubin.warnings


def opcodes(name):
    return [line.opcode for kernel in machine_code(name)[0] for line in kernel.instructions]


@pytest.fixture
def compiled():
    pytest.importorskip("cuda.core", reason="CUDA C++ needs the extra cuda")


@pytest.mark.parametrize("name", NAMES)
def test_a_rung_neither_spills_nor_serialises_its_products(compiled, name):
    kernels, warnings = machine_code(name)
    assert warnings == ""
    for kernel in kernels:
        assert kernel.spills.instructions == kernel.stack_bytes == 0
        assert not any(line.opcode.startswith(("LDL", "STL")) for line in kernel.instructions)


@pytest.mark.parametrize("name", NAMES)
def test_a_rung_has_the_instructions_of_its_idea(compiled, name):
    number, found = find_rung(LADDER, name).number, opcodes(name)
    shapes = {match[1] for one in found if (match := re.match(r"HGMMA\.(\w+)\.F32\.BF16", one))}
    assert shapes == set(TILES.get(name, ("64x256x16",)))
    assert "UTMALDG.2D" in found
    assert ("UTMALDG.2D.MULTICAST" in found) == (name in MULTICAST)
    assert any(one.startswith("USETMAXREG") for one in found) == (number >= 3)
    stores_through_tma = number >= find_rung(LADDER, "tma_store").number
    assert any(one.startswith("STSM.16.M88.4") for one in found) == stores_through_tma
    assert ("UTMASTG.2D" in found) == stores_through_tma
    assert any(one.startswith("STG") for one in found) == (not stores_through_tma)


@pytest.mark.parametrize("name", NAMES)
def test_a_rung_is_right_in_the_emulator(name):
    problem = load_problem(str(task_path(LADDER)))
    program = load_candidate(str(find_rung(LADDER, name).path), problem, "cpu").program
    for m, n, k in ((300, 264, 1032), (70, 520, 200)):
        a, b = (torch.randn(rows, k).bfloat16() for rows in (m, n))
        torch.testing.assert_close(program(a, b).double(), a.double() @ b.double().T, rtol=2**-7, atol=1e-3 * k**0.5)


def test_only_this_ladder_needs_tma():
    assert needs_tma(LADDER)
    assert not needs_tma("gemm_fp32")


@pytest.mark.parametrize(
    ("size", "kernel", "grid"),
    [
        ((1024, 1024, 1024), "gemm_small_tiles", 128),
        ((2048, 2048, 2048), "gemm_tiles", MACHINE_SMS),
        ((8192, 8192, 8192), "gemm_wide_tiles", MACHINE_SMS),
        ((100, 136, 8), "gemm_small_tiles", 4),
        ((0, 64, 64), None, 0),
    ],
)
def test_the_last_rung_launches_one_kernel_for_a_size(size, kernel, grid):
    path = find_rung(LADDER, "tile_choice").path
    source = path.read_text()
    header = parse_header(source, str(path))
    prototypes = [find_prototype(source, launch.entry) for launch in header.launches]
    planner = InvocationPlanner(header, prototypes, convert_scalar, {"sms": MACHINE_SMS})
    m, n, k = size
    a, b = (torch.empty(rows, k, dtype=torch.bfloat16, device="meta") for rows in (m, n))
    launches = {launch.entry: launch.sizes["grid"][0] for launch in planner.plan({"a": a, "b": b}).launches}
    assert {name: count for name, count in launches.items() if count} == ({kernel: grid} if kernel else {})


def test_shapes_are_aligned_and_cover_edges():
    shapes = task().SHAPES
    assert len(shapes) >= 40
    assert all(n % 8 == k % 8 == 0 for _, n, k in shapes)
    assert {0, 1} <= {m for m, _, _ in shapes}
    assert {0, 8} <= {k for _, _, k in shapes}
    assert any(m % 64 and n % 64 and k % 64 for m, n, k in shapes)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_a_rung_is_right_on_every_shape(name):
    from kernelwright.benchmark.ladder import run_ladder

    (rung,) = run_ladder(LADDER, rung_names=[name], sizes=[(1024, 1024, 1024)]).rungs
    assert rung.accepted, rung.reason


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_a_rung_repeats_its_result_bit_for_bit(name):
    program = load_candidate(str(find_rung(LADDER, name).path), load_problem(str(task_path(LADDER))), "cuda").program
    a, b = (one.cuda() for one in task().inputs((3000, 5000, 776)))
    first = program(a, b)
    torch.testing.assert_close(first, torch.mm(a, b.T), rtol=2e-2, atol=0.25)
    for _ in range(20):
        assert torch.equal(program(a, b), first)


@pytest.mark.gpu
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_every_rung_is_clean_under_the_sanitizer(tool):
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if sanitizer is None:
        pytest.skip("no compute-sanitizer")
    command = [sanitizer, "--tool", tool, "--report-api-errors", "no", sys.executable, __file__]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "launched" in done.stdout
    assert "ERROR SUMMARY: 0 errors" in done.stdout or "0 hazards displayed (0 errors, 0 warnings)" in done.stdout


def _launch_every_rung():
    problem = load_problem(str(task_path(LADDER)))
    programs = [load_candidate(str(one.path), problem, "cuda").program for one in RUNGS]
    for size in ((130, 136, 200), (300, 264, 0), (600, 520, 72)):
        given = [one.cuda() for one in task().inputs(size)]
        for program in programs:
            program(*given)
    torch.cuda.synchronize()
    print("launched", len(programs))


if __name__ == "__main__":
    _launch_every_rung()
