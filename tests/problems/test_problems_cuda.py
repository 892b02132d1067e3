"""Candidates in CUDA C++: what their header says, what passes for a number, and what is wrong with them.

Kernels run here by emulation; on a GPU the same source goes through NVRTC.
"""

from pathlib import Path

import pytest
import torch

from kernelwright.core.errors import SignatureError
from kernelwright.problems import Problem, load_candidate
from kernelwright.problems.cuda import convert_scalar
from kernelwright.problems.prototype import find_prototype

PAGE = Path(__file__).parents[2] / "docs" / "candidates.md"
SCALE = """// kw: entry  doubled
// kw: dims   x: float32[M, N]
// kw: out    out: like x
// kw: temp   part: float32[M, N]
// kw: grid   cdiv(M * N, 64)
// kw: block  64
// kw: args   x, part, M * N
// kw: entry  shifted
// kw: grid   cdiv(N, 32), M
// kw: block  32
// kw: args   part, out, N, by

extern "C" __global__ void doubled(const float* x, float* part, int64_t count) {
    const int64_t at = blockIdx.x * 64 + threadIdx.x;
    if (at < count) part[at] = 2 * x[at];
}

extern "C" __global__ void shifted(const float* part, float* out, int N, float by) {
    const int column = blockIdx.x * 32 + threadIdx.x;
    if (column < N) out[blockIdx.y * N + column] = part[blockIdx.y * N + column] + by;
}
"""


@pytest.fixture
def load(tmp_path):
    def loaded(problem, source):
        path = tmp_path / "kernel.cu"
        path.write_text(source)
        return load_candidate(str(path), problem).program

    return loaded


@pytest.fixture
def problem():
    return Problem.from_callable(lambda x, by: 2 * x + by, torch.randn(5, 70), 0.25)


def test_kernels_run_in_order_and_leave_memory_for_each_other(load, problem):
    program = load(problem, SCALE)
    for shape in ((5, 70), (1, 1), (3, 64), (0, 4)):
        x = torch.randn(shape)
        torch.testing.assert_close(program(x, 1.5), 2 * x + 1.5)


def test_the_example_in_the_documentation_runs(load):
    x = torch.randn(7, 300)
    source = PAGE.read_text().split("```cuda\n")[1].split("```")[0]
    torch.testing.assert_close(load(Problem.from_callable(lambda x: x.amax(1), x), source)(x), x.amax(1))


WRONG = [
    (("entry  doubled", "entry  tripled"), "no extern \"C\" kernel tripled", 1),
    (("// kw: grid   cdiv(N, 32), M\n", ""), "`// kw: grid ...` of shifted needs one to three numbers", 8),
    (("block  64", "block  4, 4, 4, 4"), "`// kw: block ...` of doubled needs one to three numbers", 1),
    (("block  64", "block  K"), "cannot evaluate K: K is not defined", 6),
    (("part, out, N, by", "part, out, by, by"), "is passed as a float, but the parameter is `int N`", 18),
    (("part, out, N, by", "part, out, N"), "has 4 parameters, `kw: args` passes 3", 18),
    (("temp   part: float32[M, N]", "temp   part: float64[M, N]"), "part is a float64 tensor", 13),
    (("part, out, N, by", "part, out, N * 4294967296, by"), "does not fit in `int N`", 11),
]  # fmt: skip


@pytest.mark.parametrize(("change", "says", "line"), WRONG, ids=[says for _, says, _ in WRONG])
def test_what_is_wrong_is_named_with_its_line(load, problem, change, says, line):
    with pytest.raises(SignatureError) as caught:
        load(problem, SCALE.replace(*change))
    assert says in caught.value.message
    assert caught.value.where.endswith(f"kernel.cu:{line}")


def test_a_launch_that_no_gpu_takes_is_named_with_its_line(load, problem):
    program = load(problem, SCALE.replace("block  64", "block  2048"))
    with pytest.raises(SignatureError, match="block") as caught:
        program(torch.randn(3, 64), 1.5)
    assert caught.value.where.endswith("kernel.cu:6")


def test_what_a_kernel_says_of_its_launch_is_no_part_of_its_prototype():
    source = 'extern "C" __global__ void __launch_bounds__(32 * 4)\nf(const float* __restrict__ x, int n) {}'
    prototype = find_prototype(source, "f")
    assert prototype
    assert (prototype.returns, len(prototype.parameters)) == ("void", 2)


@pytest.mark.parametrize(
    ("number", "parameter", "given"),
    [(3, "float by", 3.0), (3, "int n", 3), (2.5, "double by", 2.5), (True, "int n", 1)],
)
def test_a_number_passes_as_what_the_kernel_takes(number, parameter, given):
    prototype = find_prototype(f"void f({parameter}) {{}}", "f")
    assert prototype
    assert convert_scalar(number, prototype.parameters[0]) == given


NAMED = """// kw: entry  fill
// kw: dims   x: float32[M]
// kw: out    out: float32[M]
// kw: let    part = cdiv(M, sms)
// kw: let    half = part // 2
// kw: grid   sms
// kw: block  32
// kw: args   x, out, M, part, half

extern "C" __global__ void fill(const float* x, float* out, int M, int part, int half) {
    for (int at = threadIdx.x; at < part; at += 32)
        if (blockIdx.x * part + at < M) out[blockIdx.x * part + at] = half + 0 * x[0];
}
"""


def test_a_header_names_numbers_and_the_devices_multiprocessors(tmp_path):
    path = tmp_path / "fill.cu"
    path.write_text(NAMED)
    problem = Problem.from_callable(lambda x: x * 0 + 5, torch.randn(30))
    assert load_candidate(str(path), problem, "cpu").program(torch.randn(30)).tolist() == [5.0] * 30


@pytest.mark.parametrize(
    ("line", "says"),
    [("let part", "must be like"), ("let 3 = 4", "must be like"), ("let part = cdiv(Q, 2)", "cannot evaluate")],
)
def test_a_number_that_cannot_be_named_is_said(tmp_path, line, says):
    path = tmp_path / "fill.cu"
    path.write_text(NAMED.replace("let    part = cdiv(M, sms)", line))
    with pytest.raises(SignatureError, match=says) as caught:
        load_candidate(str(path), Problem.from_callable(lambda x: x * 0 + 5, torch.randn(30)), "cpu")
    assert caught.value.where == f"{path}:4"
