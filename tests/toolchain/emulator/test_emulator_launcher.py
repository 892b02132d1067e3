"""CUDA C++ on the CPU: results as torch has them, and errors that say what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelwright.core.errors import CandidateError, CompileError, SignatureError, UsageError
from kernelwright.toolchain.emulator import EmulatedKernel, build
from kernelwright.toolchain.emulator.launcher import run_launch

PATH = Path(__file__).with_name("kernels.cu")
SOURCE = PATH.read_text()


def kernel(name: str) -> EmulatedKernel:
    return EmulatedKernel(SOURCE, name, path=str(PATH))


def line_of(comment: str) -> int:
    return next(number for number, line in enumerate(SOURCE.splitlines(), 1) if f"// {comment}" in line)


def nothing(*shape: int) -> torch.Tensor:
    return torch.full(shape, float("nan"))


def up(total: int, part: int) -> int:
    return -(-total // part)


@pytest.mark.parametrize("n", [1, 31, 33, 255, 256, 1000])
def test_vector_add(n):
    a, b, c = torch.randn(n), torch.randn(n), nothing(n)
    kernel("vector_add")(up(n, 256), 256, [a, b, c, n])
    torch.testing.assert_close(c, a + b, rtol=0, atol=0)


@pytest.mark.parametrize("m, n, k", [(64, 64, 64), (1, 1, 1), (33, 70, 19)])
@pytest.mark.parametrize("name", ["sgemm_naive", "sgemm_coalesced", "sgemm_tiled"])
def test_sgemm(name, m, n, k):
    a, b, c = torch.randn(m, k), torch.randn(k, n), nothing(m, n)
    grid = (up(m, 32), up(n, 32)) if name == "sgemm_naive" else (up(n, 32), up(m, 32), 1)
    kernel(name)(grid, (32, 32), [a, b, c, m, n, k])
    torch.testing.assert_close(c, a @ b, rtol=1e-5, atol=1e-4)


def test_sgemm_with_tiles_in_registers():
    a, b, c = torch.randn(64, 32), torch.randn(32, 128), torch.ones(64, 128)
    kernel("sgemm_vectorized<64, 64, 8, 8, 8>")((2, 1), 64, [64, 128, 32, 2.0, a, b, 0.5, c])
    torch.testing.assert_close(c, 2 * (a @ b) + 0.5, rtol=1e-5, atol=1e-4)


def test_float4():
    x, out = torch.randn(4 * 77), nothing(4 * 77)
    kernel("copy_float4")(3, 32, [x, out, 77])
    assert torch.equal(x, out)


@pytest.mark.parametrize("threads", [32, 128, 1024])
def test_reductions_over_warps_blocks_and_the_grid(threads):
    x, out = torch.randint(-9, 9, (1001,)).float(), torch.zeros(1)
    kernel("block_sum")(3, threads, [x, out, x.numel()])
    assert out.item() == x.sum().item()


def test_dynamic_shared_memory():
    x, out = torch.randn(4 * 96), nothing(4 * 96)
    kernel("reverse_dynamic")(4, 96, [x, out], shared_bytes=96 * 4)
    assert torch.equal(out.view(4, 96), x.view(4, 96).flip(1))


@pytest.mark.parametrize("kind", ["conflicting", "padded", "swizzled"])
def test_transposition(kind):
    x, out = torch.randn(64, 64), nothing(64, 64)
    kernel(f"transpose_{kind}")((2, 2), (32, 32), [x, out, 64])
    assert torch.equal(out, x.T)


def test_operations_of_a_warp_and_atomic_operations():
    x = torch.arange(32, dtype=torch.int32) * 3 + 2
    out, cells, real = torch.zeros(11, 32, dtype=torch.int32), torch.zeros(6, dtype=torch.int32), torch.zeros(1)
    cells[1], cells[5] = 1000, -1000
    kernel("lanes")(1, 32, [x, out, cells, real])
    lane = torch.arange(32)
    rows = [
        x[5].expand(32),
        x[torch.where(lane < 3, lane, lane - 3)],
        x[torch.where(lane % 8 == 7, lane, (lane + 1) % 32)],
        x[lane ^ 16],
        torch.full((32,), sum(1 << i for i in range(32) if x[i] & 1)),
        torch.full((32,), 2 * int(77 in x) + 1),
        x[torch.where(lane < 16, lane ^ 1, lane ^ 2)],
        x,
        torch.full((32,), 1) + x.clamp(max=3) + lane.clamp(min=1),
        torch.tensor([one.bit_count() + 32 - one.bit_length() for one in x.tolist()]),
        x[lane ^ 1] * 4 + 1,
    ]
    assert out.tolist() == torch.stack([row.to(torch.int64).to(torch.int32) for row in rows]).tolist()
    assert (cells.tolist(), real.item()) == ([95, 2, 7, 9, 32, 0], 16.0)


@pytest.mark.parametrize("name, dtype", [("plus<3, float>", torch.float32), ("plus<-2, int>", torch.int32)])
def test_instances_of_templates(name, dtype):
    x, out = torch.arange(64, dtype=dtype), torch.empty(64, dtype=dtype)
    kernel(name)(1, 64, [x, out, 5])
    assert torch.equal(out, x + 5 + (3 if dtype.is_floating_point else -2))


def test_what_a_block_never_wrote_it_reads_as_nan():
    out = torch.zeros(64)
    kernel("reads_unwritten")(2, 64, [out])
    assert (out[:32] == 1).all() and out[32:].isnan().all()


def test_a_barrier_that_not_all_threads_reach():
    with pytest.raises(CandidateError, match=r"16 of 64 threads wait .* 48 of 64 threads have exited") as fault:
        kernel("divergent_barrier")(2, 64, [torch.zeros(64)])
    assert fault.value.where == f"{PATH}:{line_of('divergent')}"


def test_a_shuffle_that_waits_for_lanes_at_a_barrier():
    with pytest.raises(CandidateError, match=r"16 of 32 threads wait at a shuffle") as fault:
        kernel("divergent_shuffle")(1, 32, [torch.zeros(64)])
    assert fault.value.where == f"{PATH}:{line_of('half a warp')}"


def test_after_an_error_the_next_launch_is_whole():
    test_a_barrier_that_not_all_threads_reach()
    test_transposition("padded")


def test_switching_through_ucontext(monkeypatch):
    """What every machine but x86-64 does."""
    slow = build.build_runtime(False, ("-DKW_UCONTEXT",))
    monkeypatch.setattr(build, "build_runtime", lambda counted: slow)
    test_reductions_over_warps_blocks_and_the_grid(128)
    test_a_barrier_that_not_all_threads_reach()


@pytest.mark.parametrize(
    "grid, block, arguments, error, message",
    [
        (1, 2048, 4, UsageError, "from 1 to"),
        (1, (64, 32), 4, UsageError, "2048 threads"),
        (0, 32, 4, UsageError, "grid 0"),
        (1, 32, 3, SignatureError, r"takes 4 arguments \(a, b, c, n\), not 3"),
    ],
)
def test_launches_that_no_gpu_takes(grid, block, arguments, error, message):
    given = [torch.zeros(4), torch.zeros(4), torch.zeros(4), 4][:arguments]
    with pytest.raises(error, match=message):
        kernel("vector_add")(grid, block, given)


@pytest.mark.parametrize(
    "index, value, message",
    [
        (0, torch.zeros(4, dtype=torch.float64), "a expects a pointer to float of 4 bytes"),
        (1, 3, "b is a pointer"),
        (3, torch.zeros(1), "n must be a number"),
        (3, 1.5, "n must be int of 4 bytes"),
        (3, 2**40, "n must be int of 4 bytes"),
    ],
)
def test_arguments_that_do_not_fit(index, value, message):
    given = [torch.zeros(4), torch.zeros(4), torch.zeros(4), 4]
    given[index] = value
    with pytest.raises(SignatureError, match=message):
        kernel("vector_add")(1, 32, given)


@pytest.mark.parametrize(
    "source, message, line",
    [
        ('// asm("x")\n\n__device__ void f() { asm volatile("mov.u32 r, 1;"); }\n', "inline PTX", 3),
        ('extern "C" __global__ void k() {}\nvoid f() { k<<<1, 1>>>(); }', "a launch", 2),
        ('#include <cuda_runtime.h>\nextern "C" __global__ void k() {\n  nowhere = 1;\n}\n', "nowhere", 3),
        ('extern "C" __global__ void k() {\n  int i = 1\n  __syncthreads();\n}\n', r"macro __syncthreads", 3),
        ('extern "C" __global__ void k(float* y) {\n  float a = __shfl_sync(1, "a", 0);\n}\n', "cannot convert", 2),
        ('extern "C" __global__ void k() {\n  atomicAdd("x", 2);\n}\n', "mine.cu:2: error: .*4 or 8 bytes", 2),
        ('extern "C" __global__ void k() {}\n__device__ int last = 3\n\n', "mine.cu:2:1: error: expected", 2),
        ('extern "C" __global__ void k() {\n  if (true) {\n}\n', "expected '}'|expected ‘}’", 1),
    ],
)
def test_sources_that_need_a_gpu_or_are_wrong(source, message, line):
    with pytest.raises(CompileError, match=message) as fault:
        EmulatedKernel(source, "k", path="mine.cu")
    assert fault.value.where == f"mine.cu:{line}"


def test_a_kernel_that_is_not_there():
    with pytest.raises(CandidateError, match=r"no kernel sgem in .*: it has vector_add, sgemm_naive"):
        kernel("sgem")


def test_blocks_on_one_thread_or_many_give_the_same():
    x, first, second = torch.randn(4096), nothing(4096), nothing(4096)
    add = kernel("vector_add")
    from kernelwright.toolchain.emulator.arguments import LaunchShape

    for workers, out in ((1, first), (4, second)):
        run_launch(add._library, LaunchShape.from_sizes(64, 64, 0), add.bind([x, x, out, 4096]), workers, str(PATH))
    assert torch.equal(first, x + x) and torch.equal(second, x + x)


def test_what_a_source_includes_is_part_of_it(tmp_path):
    (tmp_path / "deep.cuh").write_text("__device__ float twice(float x) {\n    return 2 * x;\n}\n")
    (tmp_path / "mine.cuh").write_text('#pragma once\n#include "kw/ptx/cp_async.cuh"\n#include "deep.cuh"\n')
    text = """#include "mine.cuh"
#include "mine.cuh"
extern "C" __global__ void k(const float* x, float* out) {
    __shared__ float held[32];
    kw::cp_async_ca_4(&held[threadIdx.x], x + threadIdx.x, threadIdx.x % 2);
    kw::cp_async_commit_group();
    kw::cp_async_wait_group<0>();
    __syncthreads();
    out[threadIdx.x] = twice(held[threadIdx.x]);
}
"""
    path, out = str(tmp_path / "mine.cu"), torch.zeros(32)
    EmulatedKernel(text, "k", path=path)(1, 32, [torch.arange(32.0), out])
    assert out.tolist() == [2.0 * i * (i % 2) for i in range(32)]
    with pytest.raises(CompileError) as fault:
        EmulatedKernel(text.replace("twice(", "thrice("), "k", path=path)
    assert fault.value.where == f"{path}:9"
    (tmp_path / "deep.cuh").write_text('\nfloat f() { asm("mov"); }\n')
    with pytest.raises(CompileError, match="inline PTX") as fault:
        EmulatedKernel(text, "k", path=path)
    assert fault.value.where == f"{tmp_path / 'deep.cuh'}:2"


def test_assertions_and_traps_are_there_and_do_nothing_where_all_is_well():
    text = """extern "C" __global__ void k(float* out, int n) {
      assert(n == 32);
      if (n != 32) __trap();
      out[threadIdx.x] = n;
    }"""
    out = torch.zeros(32)
    EmulatedKernel(text, "k", path="mine.cu")(1, 32, [out, 32])
    assert (out == 32).all()


def test_a_trap_ends_the_process_and_names_its_line():
    text = 'extern "C" __global__ void k(float* out) {\n  if (threadIdx.x == 5) __trap();\n}'
    call = f"EmulatedKernel({text!r}, 'k', path='mine.cu')(1, 32, [torch.zeros(32)])"
    code = f"import torch\nfrom kernelwright.toolchain.emulator import EmulatedKernel\n{call}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "mine.cu:2: __trap()" in done.stderr
