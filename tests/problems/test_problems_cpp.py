"""C++ candidates: the header, how a call is made from it, and each thing that can be wrong with it."""

from __future__ import annotations

import copy
import pickle
import textwrap
from pathlib import Path

import pytest
import torch

from kernelwright.core.errors import CandidateError, CompileError, SignatureError
from kernelwright.problems import Problem, load_candidate

INCLUDES = "#include <cstdint>\n"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def load(tmp_path):
    def load(problem: Problem, header: str, body: str, target: str = "kernel.cpp"):
        lines = "".join(f"// kw: {line.strip()}\n" for line in textwrap.dedent(header).strip().splitlines())
        (tmp_path / "kernel.cpp").write_text(f"// What it does.\n{lines}{INCLUDES}{textwrap.dedent(body)}")
        return load_candidate(str(tmp_path / target), problem)

    return load


SUM_ROWS = """
    extern "C" void sum_rows(const float* x, float* out, int64_t M, int64_t N) {
        for (int64_t i = 0; i < M; ++i) {
            out[i] = 0;
            for (int64_t j = 0; j < N; ++j) out[i] += x[i * N + j];
        }
    }
"""
SUM_ROWS_HEADER = """
    entry sum_rows
    dims x: M N
    out out: float32[M]
    args x, out, M, N
"""


def sum_rows(x):
    return x.sum(1)


@pytest.fixture
def rows():
    return Problem.from_callable(sum_rows, torch.arange(6.0).view(2, 3))


def test_dimensions_and_outputs(load, rows):
    program = load(rows, SUM_ROWS_HEADER, SUM_ROWS).program
    assert program(torch.arange(6.0).view(2, 3)).tolist() == [3, 12]
    assert program(torch.ones(5, 4)).tolist() == [4] * 5
    assert program(torch.ones(0, 4)).shape == (0,)


def test_inputs_are_made_contiguous(load, rows):
    x = torch.arange(6.0).view(2, 3)
    assert load(rows, SUM_ROWS_HEADER, SUM_ROWS).program(x.T.contiguous().T).tolist() == [3, 12]
    assert load(rows, SUM_ROWS_HEADER, SUM_ROWS).program(torch.ones(1).expand(2, 3)).tolist() == [3, 3]


def test_strided_inputs_are_passed_as_they_are(load, rows):
    header = """
        entry sum_rows
        dims x: M N
        out out: float32[M]
        strided x
        args x, out, M, N, stride(x, 0), stride(x, 1)
    """
    body = """
        extern "C" void sum_rows(const float* x, float* out, int64_t M, int64_t N, int64_t a, int64_t b) {
            for (int64_t i = 0; i < M; ++i) {
                out[i] = 0;
                for (int64_t j = 0; j < N; ++j) out[i] += x[i * a + j * b];
            }
        }
    """
    x = torch.arange(6.0).view(3, 2)
    assert load(rows, header, body).program(x.T).tolist() == x.T.sum(1).tolist()


def test_scalars_of_every_kind(load):
    def affine(x, n: int, scale: float, negate: bool, *, shift=0.5):
        return x * n * scale * (-1 if negate else 1) + shift

    problem = Problem.from_callable(affine, torch.ones(3), 2, 1.5, True, shift=0.25)
    header = """
        entry affine
        out out: like x
        args x, out, numel(x), n, scale, negate, shift
    """
    body = """
        extern "C" void affine(const float* x, float* out, int64_t N, int64_t n, double scale, int64_t negate,
                               double shift) {
            for (int64_t i = 0; i < N; ++i) out[i] = float(x[i] * n * scale * (negate ? -1 : 1) + shift);
        }
    """
    program = load(problem, header, body).program
    assert program(torch.ones(3), 2, 1.5, True, shift=0.25).tolist() == [-2.75] * 3
    assert program(torch.ones(3), 2, 1.5, False, shift=0.5).tolist() == [3.5] * 3
    assert program(torch.ones(2), 3, 2.0, False, shift=0.5).tolist() == [6.5] * 2


def test_tuples_dicts_integers_and_booleans(load):
    def pick(xs, table):
        return torch.where(table["mask"], xs[0], xs[1])

    tree = ((torch.arange(4), -torch.arange(4)), {"mask": torch.tensor([True, False, True, False])})
    problem = Problem.from_callable(pick, *tree)
    header = """
        entry pick
        dims xs.0: int64[N]; table.mask: bool[N]
        dims xs.1: N
        out out: int64[N]
        args xs.0, xs_1, table.mask, out, N
    """
    body = """
        extern "C" void pick(const int64_t* a, const int64_t* b, const bool* mask, int64_t* out, int64_t N) {
            for (int64_t i = 0; i < N; ++i) out[i] = mask[i] ? a[i] : b[i];
        }
    """
    assert load(problem, header, body).program(*tree).tolist() == [0, -1, 2, -3]


STATS = """
    extern "C" void stats(const float* x, float* total, float* doubled, int64_t N) {
        *total = 0;
        for (int64_t i = 0; i < N; ++i) *total += x[i], doubled[i] = 2 * x[i];
    }
"""


@pytest.mark.parametrize("container", ["", "tuple", "list", "dict"])
def test_several_outputs(load, container):
    problem = Problem.from_callable(lambda x: (x.sum(), 2 * x), torch.ones(3))
    header = f"""
        entry stats
        dims x: N
        out total: float32[]
        out doubled: float32[N]
        {f"returns {container}" if container else ""}
        args x, total, doubled, N
    """
    header = "\n".join(line for line in header.splitlines() if line.strip())
    result = load(problem, header, STATS).program(torch.ones(3))
    assert type(result) is {"": tuple, "tuple": tuple, "list": list, "dict": dict}[container]
    total, doubled = result.values() if container == "dict" else result
    assert total.shape == ()
    assert total.item() == 3
    assert doubled.tolist() == [2, 2, 2]


ADD_ONE = 'extern "C" void add_one(float* x, int64_t N) { for (int64_t i = 0; i < N; ++i) x[i] += 1; }\n'


@pytest.mark.parametrize("returns", ["", "returns none"])
def test_in_place(load, returns):
    problem = Problem.from_callable(lambda x: x.add_(1), torch.zeros(2, 3))
    lines = ["entry add_one", "out x", "args x, numel(x)", returns]
    program = load(problem, "\n".join(filter(None, lines)), ADD_ONE).program
    x = torch.zeros(2, 3)
    result = program(x)
    assert x.tolist() == [[1] * 3] * 2
    assert result is (None if returns else x)


def test_in_place_on_a_strided_tensor(load):
    problem = Problem.from_callable(lambda x: x.add_(1), torch.zeros(2, 3))
    program = load(problem, "entry add_one\nout x\nargs x, numel(x)", ADD_ONE).program
    base = torch.zeros(4, 3)
    program(base[::2])
    assert base[:, 0].tolist() == [1, 0, 1, 0]


class Affine(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(1, 3)

    def forward(self, x):
        return x * self.inner.weight[:, 0] + self.inner.bias


AFFINE_HEADER = """
    entry affine
    dims x: N; inner.weight: N 1; inner.bias: float32[N]
    out out: like x
    args x, inner.weight, inner_bias, out, N
"""
AFFINE = """
    extern "C" void affine(const float* x, const float* weight, const float* bias, float* out, int64_t N) {
        for (int64_t i = 0; i < N; ++i) out[i] = x[i] * weight[i] + bias[i];
    }
"""


def test_parameters_by_name_and_alive(load):
    problem = Problem.from_module(Affine(), torch.ones(3))
    program, x = load(problem, AFFINE_HEADER, AFFINE).program, torch.arange(3.0)
    torch.testing.assert_close(program(x), problem.program(x).detach())
    assert list(program.state_dict()) == list(problem.module.state_dict())
    with torch.no_grad():
        program.get_parameter("inner.bias").fill_(7)
        program.get_parameter("inner.weight").zero_()
    assert program(x).tolist() == [7, 7, 7]


def test_copies_and_pickles(load):
    problem = Problem.from_module(Affine(), torch.ones(3))
    program = load(problem, AFFINE_HEADER, AFFINE).program
    twin = copy.deepcopy(program)
    with torch.no_grad():
        program.get_parameter("inner.bias").fill_(7)
    assert not torch.equal(twin(torch.ones(3)), program(torch.ones(3)))
    entry = pickle.loads(pickle.dumps(program._entry))
    assert entry.name == "affine"


def test_entry_can_be_named_in_the_target(load, rows):
    other = SUM_ROWS.replace("sum_rows", "other")
    assert load(rows, SUM_ROWS_HEADER, SUM_ROWS + other, "kernel.cpp:other").program(torch.ones(1, 2)).tolist() == [2]


# ---- what goes wrong: (what to change in the header, what to change in the source, what it says, on which line)

WRONG = [
    (("entry sum_rows", ""), None, "no `// kw: entry", 1),
    (("entry sum_rows", "entry 3 rows"), None, "not a function name", 2),
    (("entry sum_rows", "entry sum_columns"), None, "exports sum_rows", 2),
    (("entry sum_rows", "enter sum_rows"), None, "not one of entry, dims", 2),
    (("args x, out, M, N", ""), None, "no `// kw: args", 2),
    (("out out: float32[M]", ""), None, "no `// kw: out", 2),
    (("out out: float32[M]", "out out: real[M]"), None, "not a dtype", 4),
    (("out out: float32[M]", "out out float32"), None, "must be like", 4),
    (("out out: float32[M]", "out result: float32[M]"), None, "nothing would write it", 4),
    (("out out: float32[M]", "out out: float32[K]"), None, "cannot evaluate K", 4),
    (("out out: float32[M]", "out out: float32[M / 0]"), None, "M / 0 has no value", 4),
    (("out out: float32[M]", "out out: float32[M / 4]"), None, "M / 4 is 0.5, not a valid size", 4),
    (("out out: float32[M]", "out out: float32[M - N]"), None, "M - N is -1, not a valid size", 4),
    (("args x, out, M, N", "args x, out, M, 9223372036854775808"), None, "does not fit in int64_t", 5),
    (("out out: float32[M]", "out out: float32[M; exit()]"), None, "not an expression", 4),
    (("out out: float32[M]", "out out: float32[M.real]"), None, "cannot evaluate M_real", 4),
    (("out out: float32[M]", "out out: float32[(lambda: 1)()]"), None, "not Lambda", 4),
    (("out out: float32[M]", "out out: float32[open(M)]"), None, "cannot evaluate open", 4),
    (("dims x: M N", "dims y: M N"), None, "not a tensor of the program; its tensors are x", 3),
    (("dims x: M N", "dims x: N"), None, "x is float32[2, 3], the source expects [N]", 3),
    (("dims x: M N", "dims x: M M"), None, "with M = 2", 3),
    (("dims x: M N", "dims x: M 4"), None, "the source expects [M, 4]", 3),
    (("dims x: M N", "dims x: float64[M, N]"), None, "the source expects float64", 3),
    (("args x, out, M, N", "args x, out, M"), None, "has 4 parameters, `kw: args` passes 3", 8),
    (("args x, out, M, N", "args x, out, M, 1.5"), None, "is passed as double", 8),
    (("args x, out, M, N", "args x, M, out, N"), None, "parameter is `float* out`", 8),
    (None, ("int64_t N", "int N"), "parameter is `int N`", 8),
    (None, ("const float* x", "const double* x"), "x is a float32 tensor", 8),
    (None, ('extern "C" void', 'extern "C" int'), "must return void", 8),
    (None, ('extern "C" ', ""), "exports nothing", 2),
]  # fmt: skip


@pytest.mark.parametrize(("header", "body", "says", "line"), WRONG, ids=[says for _, _, says, _ in WRONG])
def test_what_is_wrong_is_named_with_its_line(load, rows, header, body, says, line):
    lines = SUM_ROWS_HEADER.replace(*header) if header else SUM_ROWS_HEADER
    source = SUM_ROWS.replace(*body) if body else SUM_ROWS
    with pytest.raises(SignatureError) as caught:
        load(rows, "\n".join(one for one in lines.splitlines() if one.strip()), source)
    assert says in caught.value.message
    assert caught.value.where.endswith(f"kernel.cpp:{line}")
    assert "docs/candidates.md" in caught.value.next


def test_a_parameter_that_is_never_passed(load):
    problem = Problem.from_module(Affine(), torch.ones(3))
    header = AFFINE_HEADER.replace("inner_bias, ", "")
    with pytest.raises(SignatureError, match=r"does not pass inner\.bias float32\[3\]"):
        load(problem, header, AFFINE)


def test_other_inputs_than_the_examples_are_checked_when_called(load, rows):
    program = load(rows, SUM_ROWS_HEADER, SUM_ROWS).program
    with pytest.raises(SignatureError, match="x is a float64 tensor"):
        program(torch.ones(2, 3, dtype=torch.float64))


def test_a_source_that_does_not_compile_names_its_line(load, rows):
    with pytest.raises(CompileError, match="undeclared") as caught:
        load(rows, SUM_ROWS_HEADER, SUM_ROWS + "int x = undeclared;\n")
    assert caught.value.where.endswith("kernel.cpp:14")


def test_cpp_does_not_run_on_a_gpu(tmp_path, rows):
    (tmp_path / "kernel.cpp").write_text("")
    with pytest.raises(CandidateError, match="C\\+\\+ for the CPU"):
        load_candidate(str(tmp_path / "kernel.cpp"), rows, "cuda")


def test_the_example_in_the_documentation_runs(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "candidates.md").read_text()
    (tmp_path / "offset_sums.cpp").write_text(page.split("```cpp\n")[1].split("```")[0])
    x, offset = torch.randn(9, 5), torch.randn(5)
    problem = Problem.from_callable(lambda x, offset: x.cumsum(0) + offset, x, offset)
    got = load_candidate(str(tmp_path / "offset_sums.cpp"), problem).program(x, offset)
    torch.testing.assert_close(got, problem.program(x, offset))
