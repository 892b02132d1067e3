"""Each rejection has a candidate that earns it, and honest candidates of every shape are accepted."""

import gc
import textwrap
import weakref

import psutil
import pytest
import torch
from tiers import fast_first, fast_where

import kernelwright as kw
from kernelwright.core.errors import MemoryLimitError, NotFoundError, ProblemError, SetupError, UsageError
from kernelwright.core.verdict import REJECTIONS
from kernelwright.problems import Problem
from kernelwright.sandbox import ForkServer, Limits
from kernelwright.verification.accuracy.distributions import DISTRIBUTIONS
from kernelwright.verification.reference import Reference
from kernelwright.verification.transport.runners import PRELOAD_MODULES

LINEAR = """
import torch
class {name}(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = torch.nn.Linear(size, size)
    def forward(self, x):
        return {expression}
"""
INPUTS = "\ndef get_inputs(): return [torch.randn(48, 64)]\ndef get_init_inputs(): return [64]\n"
SOFTMAX = LINEAR.format(name="Model", expression="torch.softmax(self.linear(x), -1)") + INPUTS
ADD = """
import torch
def f(x, y): return x + y
def get_inputs(): return [torch.randn(300, 7), torch.randn(300, 7)]
"""


@pytest.fixture(scope="module")
def fork_server():
    with ForkServer(PRELOAD_MODULES) as warm:
        yield warm
        left = [grandchild for child in psutil.Process().children() for grandchild in child.children()]
        assert psutil.wait_procs(left, timeout=20)[1] == [], "a process that held a GPU takes a moment to go"


@pytest.fixture
def verdict(tmp_path, fork_server):
    """Writes a problem and a candidate, and verifies."""

    def call(problem, candidate, *, suffix=".py", **options):
        (tmp_path / "f.py").write_text(textwrap.dedent(problem))
        path = tmp_path / f"candidate{suffix}"
        path.write_text("import torch\n" * (suffix == ".py") + textwrap.dedent(candidate))
        options = {"sets": 3, "fork_server": fork_server} | options
        return kw.verify(str(tmp_path / "f.py"), str(path), **options)

    return call


def softmax_by(expression):
    return LINEAR.format(name="ModelNew", expression=expression)


SLEEP = "def f(x, y):\n    import time; time.sleep(100)"
HOG = """
def f(x, y):
    kept = []
    while True: kept.append(torch.ones(4_000_000))
"""
COUNTED = (
    "calls = []\ndef f(x, y):\n    calls.append(1); return x + y + 1e-9 * (len(calls) % 2) * x.abs().amax() * 1000"
)
REJECTED = [
    ("def f(x, y) return x", {}, "compile-error", "SyntaxError"),
    ("def f(x, y): return x + missing", {}, "runtime-error", "NameError: name 'missing' is not defined"),
    ("def f(x, y): raise SystemExit(2)", {}, "runtime-error", "sys.exit(2)"),
    ("def f(x, y): return x @ y", {}, "runtime-error", "RuntimeError"),
    (SLEEP, {"call_timeout_s": 1.0}, "timeout", "1 s"),
    ("import time; time.sleep(100)", {"build_timeout_s": 1.0}, "timeout", "1 s"),
    (HOG, {"memory_bytes": 800_000_000}, "out-of-memory", "the limit is 800 MB"),
    ("def f(x, y): return torch.empty(1 << 50)", {}, "out-of-memory", "allocate"),
    ("import ctypes\ndef f(x, y): ctypes.string_at(0)", {}, "crash", "SIGSEGV"),
    ("import os\ndef f(x, y): os._exit(0)", {}, "crash", "exit status 0"),
    ("def f(x, y): return (x + y)[:-1]", {}, "wrong-shape", "(299, 7) instead of (300, 7)"),
    ("def f(x, y): return (x + y).double()", {}, "wrong-dtype", "float64 instead of torch.float32"),
    ("def f(x, y): return (x + y).to('meta')", {}, "wrong-device", "on meta instead of cpu"),
    ("def f(x, y): return (x + y, x)", {}, "wrong-structure", "(Tensor, Tensor) instead of Tensor"),
    ("def f(x, y): return None", {}, "wrong-structure", "NoneType instead of Tensor"),
    ("class T(torch.Tensor): pass\ndef f(x, y): return (x + y).as_subclass(T)", {}, "wrong-structure", "T instead"),
    ("def f(x): return x", {}, "wrong-parameters", "takes (x)"),
    ("def f(x, y): return (x + y) / 0", {}, "not-finite", "inf"),
    ("def f(x, y): return (x.bfloat16() + y.bfloat16()).float()", {}, "inaccurate", "worst at"),
    ("def f(x, y): return torch.zeros_like(x)", {}, "inaccurate", "worst at"),
    ("def f(x, y): return x.add_(y)", {}, "input-mutated", "input 0[0, 0] was"),
    ("def f(x, y): return (-x - y)._neg_view()", {}, "aliased-output", "only when it is read"),
    ("def f(x, y): r = x + y; y[5, 3] = 4.0; return r", {}, "input-mutated", "input 1[5, 3] was"),
]


@pytest.mark.parametrize(("candidate", "options", "code", "words"), fast_where(range(0, len(REJECTED), 2), REJECTED))
def test_rejected_with_its_reason(verdict, candidate, options, code, words):
    seen = verdict(ADD, candidate, **options)
    assert not seen.accepted
    assert seen.reason is not None
    assert (seen.reason.code, words in seen.reason.detail) == (code, True), seen.reason


def test_compile_error_and_crash_of_a_cpp_candidate(verdict):
    header = "// kw: entry f\n// kw: out o: float32[300, 7]\n// kw: args x, y, o\n"
    body = 'extern "C" void f(const float* x, const float* y, float* o) {{ {} }}\n'
    assert verdict(ADD, header + body.format("nonsense;"), suffix=".cpp").reason.code == "compile-error"
    crashed = verdict(ADD, header + body.format("*(volatile int*)0 = 1;"), suffix=".cpp")
    assert (crashed.reason.code, "SIGSEGV" in crashed.reason.detail) == ("crash", True)
    right = header + body.format("for (int i = 0; i < 2100; ++i) o[i] = x[i] + y[i];")
    assert verdict(ADD, right, suffix=".cpp").accepted


OUTSIDE = """
// kw: entry f
// kw: dims x: float32[N]
// kw: out first: like x
// kw: out second: float32[N]
// kw: args x, first, second, N
#include <cstdint>
extern "C" void f(float* x, float* first, float* second, int64_t N) {
    for (int64_t i = 0; i < N; ++i) { first[i] = 2 * x[i]; second[i] = 3 * x[i]; }
    %s
}
"""


@pytest.mark.parametrize(
    ("write", "code", "detail"),
    [
        ("", None, ""),
        ("second[N] = 0;", "runtime-error", "wrote outside output 1"),
        ("first[-1] = 0;", "runtime-error", "wrote outside output 0"),
        ("for (int64_t i = 0; i < 512; ++i) first[N + i] = i;", "runtime-error", "wrote outside output 0"),
        ("x[N] = 1;", "input-mutated", "input 0: memory between or around its elements was written"),
        ("first[3] = x[N];", "not-finite", "got nan"),
    ],
)
def test_a_cpp_candidate_stays_within_its_buffers(verdict, write, code, detail):
    problem = "import torch\ndef f(x): return 2 * x, 3 * x\ndef get_inputs(): return [torch.randn(1000)]\n"
    seen = verdict(problem, OUTSIDE % write, suffix=".cpp")
    assert seen.accepted == (code is None), seen.reason
    assert seen.accepted or (seen.reason.code, detail in seen.reason.detail) == (code, True), seen.reason


def test_a_sandbox_that_does_not_start_rejects_nobody(verdict):
    with pytest.raises(SetupError, match="did not start"):
        verdict(ADD, "def f(x, y): return x + y", fork_server=ForkServer(("no_such_module",)))


def test_few_sets_hold_the_one_that_a_one_pass_variance_does_not_survive(verdict):
    problem = "import torch\ndef f(x): return x.var(-1)\ndef get_inputs(): return [torch.randn(64, 512)]\n"
    one_pass = "def f(x): return ((x * x).mean(-1) - x.mean(-1) ** 2) * 512 / 511"
    assert "offset" in verdict(problem, one_pass, sets=3).reason.detail
    assert verdict(problem, "def f(x): return (x - x.mean(-1, keepdim=True)).square().sum(-1) / 511", sets=3).accepted


@pytest.mark.slow
def test_nobody_need_overflow_with_the_reference(verdict):
    problem = """
    import torch
    def f(x):
        e = torch.exp(x)
        return e / e.sum(-1, keepdim=True)
    def get_inputs(): return [torch.randn(64, 128)]
    """
    assert verdict(problem, "def f(x): return torch.softmax(x, -1)", sets=None).accepted
    assert verdict(problem, "def f(x): return x.exp() / x.exp().sum(-1, True)", sets=None).accepted


@pytest.mark.slow
def test_an_epsilon_that_goes_with_the_dtype_is_needed(verdict):
    problem = LINEAR.format(name="Model", expression="torch.nn.functional.rms_norm(self.linear(x), (64,))") + INPUTS
    without = "self.linear(x) * self.linear(x).square().mean(-1, keepdim=True).rsqrt()"
    problem = problem.replace("size, size)", "size, size, bias=False)")
    honest = "self.linear(x) * (self.linear(x).square().mean(-1, keepdim=True) + 2**-23).rsqrt()"
    for expression, accepted in ((without, False), (honest, True)):
        seen = verdict(problem, softmax_by(expression).replace("size, size)", "size, size, bias=False)"), sets=6)
        assert seen.accepted == accepted, seen.reason


def test_nondeterministic_is_rejected_only_on_demand(verdict):
    note = "not deterministic: two calls with equal inputs returned different bits"
    loose = verdict(ADD, COUNTED, tolerance=(1e-3, 1e-3))
    assert loose.accepted
    assert note in loose.notes
    strict = verdict(ADD + "DETERMINISTIC = True\n", COUNTED, tolerance=(1e-3, 1e-3))
    assert strict.reason.code == "nondeterministic"


def test_exact_is_to_the_last_bit(verdict):
    seen = verdict(ADD, "def f(x, y): return y + x", tolerance=(0.0, 0.0))
    assert seen.accepted
    assert "bitwise equal to the reference" in str(seen)
    off = verdict(ADD, "def f(x, y): return (x + y) * (1 + 2**-23)", tolerance=(0.0, 0.0))
    assert (off.reason.code, "where the tolerance is zero" in off.reason.detail) == ("inaccurate", True)


def test_what_only_the_second_call_gets_wrong_is_rejected(verdict):
    seen = verdict(ADD, "calls = []\ndef f(x, y):\n    calls.append(1); return x + y + (len(calls) == 2)")
    assert (seen.reason.code, seen.reason.detail[:16]) == ("inaccurate", "in a second call")


MANY_SHAPES = """
import torch
def f(x): return x.softmax(-1)
def get_inputs(): return [torch.randn(40, 96)]
def get_held_out_inputs(): return [[torch.randn(7, 13)], [torch.randn(1, 5000)], [torch.randn(3, 2, 64)]]
"""
FOR_96 = "def f(x):\n    if x.shape != (40, 96): {}\n    return x.softmax(-1)"


@pytest.mark.parametrize(
    ("elsewhere", "code"),
    fast_where(
        (0,),
        [
            ("return x", "inaccurate"),
            ("raise ValueError('only 40 x 96')", "runtime-error"),
            ("return torch.empty(40, 96)", "wrong-shape"),
        ],
    ),
)
def test_who_is_right_for_the_given_shape_alone_is_rejected_where_the_problem_declares_others(verdict, elsewhere, code):
    seen = verdict(MANY_SHAPES, FOR_96.format(elsewhere))
    assert (seen.reason.code, "for inputs of (7, 13), which the problem declares" in seen.reason.detail) == (code, True)


def test_who_is_right_for_every_declared_shape_is_accepted(verdict):
    seen = verdict(MANY_SHAPES, "def f(x): return torch.softmax(x.clone(), -1)")
    assert (seen.accepted, seen.input_sets, seen.held_out_sets) == (True, 3, 3), seen.reason
    assert "3 held-out shapes" in " ".join(str(seen).split())
    live = kw.verify(Problem.from_callable(torch.relu, torch.randn(9)), torch.relu, sets=1)
    assert (live.accepted, live.held_out_sets) == (True, 0)


def test_declared_shapes_may_give_another_structure(verdict):
    problem = """
    import torch
    def f(x): return list(x.split(64))
    def get_inputs(): return [torch.randn(128, 4)]
    def get_held_out_inputs(): return [[torch.randn(300, 4)], [torch.randn(5, 4)]]
    """
    assert verdict(problem, "def f(x): return [one.clone() for one in torch.split(x, 64)]").accepted
    seen = verdict(problem, "def f(x): return [x[:64].clone(), x[64:128].clone()]")
    assert (seen.reason.code, "(300, 4)" in seen.reason.detail) == ("wrong-structure", True)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("[[torch.randn(3, 4), 1]]", "are not the arguments"),
        ("[{'x': torch.randn(3, 4)}]", "are not the arguments"),
    ],
)
def test_declared_shapes_that_are_none_are_the_problems_fault(verdict, declared, words):
    problem = MANY_SHAPES.partition("def get_held_out")[0] + f"def get_held_out_inputs(): return {declared}"
    with pytest.raises(ProblemError, match=words):
        verdict(problem, "def f(x): return x.softmax(-1)")


@pytest.mark.slow
def test_inputs_whose_size_changes_from_call_to_call_stay_in_their_arena(verdict):
    problem = """
    import random, torch
    def f(x): return x + 1
    def get_inputs(): return [torch.randn(random.choice([3, 40_000, 400_000]))]
    """
    seen = verdict(problem, "def f(x): return 1 + x", sets=12)
    assert seen.accepted, seen.reason


def test_every_rejection_has_a_test_here():
    honesty = {
        "late-work",
        "stale-output",
        "false-time",
        "forged-answer",
        "not-own-kernels",
    }  # test_verification_honesty
    elsewhere = {"compile-error", "nondeterministic", "undetermined"} | honesty
    assert {code for _, _, code, _ in REJECTED} | elsewhere == set(REJECTIONS)


@pytest.mark.parametrize("rows", fast_first(1, [300, 40, 1]))
def test_a_tail_that_is_never_written_is_seen(verdict, rows):
    """Also where the right answer is zero, which fresh memory would show by chance."""
    problem = f"""
    import torch
    def f(x): return torch.cat([x, torch.zeros(7, 1000)])
    def get_inputs(): return [torch.randn({rows}, 1000)]
    """
    seen = verdict(problem, "def f(x):\n    o = torch.empty(len(x) + 7, 1000); o[: len(x)] = x; return o")
    assert seen.reason.code == "not-finite"


def test_honest_candidates_with_parameters_are_accepted(verdict):
    seen = verdict(SOFTMAX, softmax_by("(x @ self.linear.weight.T + self.linear.bias).softmax(1)"))
    assert seen.accepted, seen.reason
    assert (seen.input_sets, seen.golden, seen.problem, seen.candidate) == (3, "FP64", "f", "candidate")
    assert "own process" in seen.sandbox
    assert seen.accuracy.error_over_limit <= 1
    assert seen.time_s > 0


@pytest.mark.slow
def test_weights_folded_at_construction_are_seen(verdict):
    folded = (
        softmax_by("torch.softmax(x @ self.cached(), -1)")
        + """
    def cached(self):
        if not hasattr(self, 'kept'): self.kept = self.linear.weight.detach().T.clone()
        return self.kept
"""
    )
    seen = verdict(
        SOFTMAX.replace("size, size)", "size, size, bias=False)"),
        folded.replace("size, size)", "size, size, bias=False)"),
    )
    assert seen.reason.code == "inaccurate"
    assert "the parameters had been changed" in seen.reason.detail


def test_a_changed_parameter_is_input_mutated(verdict):
    seen = verdict(SOFTMAX, softmax_by("torch.softmax(self.linear(x), -1) + 0 * self.linear.bias.data.add_(1)"))
    assert (seen.reason.code, seen.reason.detail) == ("input-mutated", "parameter linear.bias was changed")


DICT = """
import torch
class {name}(torch.nn.Module):
    def forward(self, given):
        {more}
        return torch.tanh(given["x"]) * given["k"]
def get_inputs(): return [{{"x": torch.randn(4, 64), "k": 2.0}}]
"""


@pytest.mark.parametrize(
    "more", ["given['n'] = 1", "given['k'] *= 1.0", "given['x'] = given['x'] + 0", "given.pop('k')"]
)
def test_a_dict_that_is_an_argument_stays_as_it_is(verdict, more):
    problem = DICT.format(name="Model", more="")
    more = more.replace("given.pop('k')", "given = dict(k=given.pop('k'), x=given['x'])")
    assert verdict(problem, DICT.format(name="ModelNew", more=more)).reason.code == "input-mutated"


def test_a_reference_that_changes_a_dict_is_a_problem_error(verdict):
    with pytest.raises(ProblemError, match="adds, removes or replaces a value of an argument"):
        verdict(DICT.format(name="Model", more="given['y'] = given['x'] + 1"), DICT.format(name="ModelNew", more=""))


BATCH_NORM = """
class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = torch.nn.BatchNorm1d(64){mode}
    def forward(self, x):
        {body}
"""
STEPS = "m, v = x.mean(0), x.var(0, unbiased=False); y = (x - m) * (v + 1e-5).rsqrt() * self.bn.weight + self.bn.bias"
UPDATES = """; n = len(x)
        self.bn.running_mean.lerp_(m, 0.1); self.bn.running_var.lerp_(v * n / (n - 1), 0.1)
        self.bn.num_batches_tracked += 1; return y
"""
EVALUATED = "return (x - {mean}) * (self.bn.running_var + 1e-5).rsqrt() * self.bn.weight + self.bn.bias"
CACHE = """
class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(16, 64), persistent={persistent})
    def forward(self, x):
        {body}
"""
WRITES, READS = "self.keys[3:7] = x[:4]; ", "return x @ self.keys[:2].t()"
EMBEDDING = """
class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.e = torch.nn.Embedding(50, 64, max_norm=1.0)
    def forward(self, x): return self.e((x[:, 0] * 5).long().clamp(0, 49))
"""


def normed(body, mode=""):
    return {"body": body, "mode": mode}


@pytest.mark.parametrize(
    ("program", "reference", "candidate", "where"),
    fast_where(
        (0, 1, 6, 7, 10),
        [
            (BATCH_NORM, normed("return self.bn(x)"), normed(STEPS + UPDATES), None),
            (BATCH_NORM, normed("return self.bn(x)"), normed(STEPS + "; return y"), "buffer bn.running_mean"),
            (
                BATCH_NORM,
                normed("return self.bn(x)"),
                normed(STEPS + UPDATES.replace("+= 1", "+= 2")),
                "buffer bn.num_batches_tracked[]: got 2, expected 1",
            ),
            (
                BATCH_NORM,
                normed("return self.bn(x)", "; self.eval()"),
                normed(EVALUATED.format(mean="self.bn.running_mean")),
                None,
            ),
            (
                BATCH_NORM,
                normed("return self.bn(x)", "; self.eval()"),
                normed(EVALUATED.format(mean="0")),
                "the parameters had been changed",
            ),
            (
                BATCH_NORM,
                normed("return self.bn(x)", "; self.eval()"),
                normed("self.bn.running_mean += 1; return self.bn(x)"),
                "worst at",
            ),
            (CACHE, {"body": WRITES + READS}, {"body": "self.keys[3:7].copy_(x[:4]); " + READS}, None),
            (CACHE, {"body": WRITES + READS}, {"body": READS}, "buffer keys"),
            (CACHE, {"body": READS}, {"body": WRITES + READS}, "buffer keys was changed"),
            (CACHE, {"body": WRITES + READS}, {"body": WRITES.replace("x[:4]", "x[4:8]") + READS}, "buffer keys"),
            (EMBEDDING, {}, {}, None),
        ],
    ),
)
def test_what_the_reference_leaves_in_its_state_is_an_output(verdict, program, reference, candidate, where):
    problem = program.format(name="Model", **{"persistent": True} | reference)
    problem = "import torch\n" + problem + "def get_inputs(): return [torch.randn(48, 64)]\n"
    seen = verdict(problem, program.format(name="ModelNew", **{"persistent": True} | candidate))
    assert seen.accepted == (where is None), seen.reason
    assert seen.accepted or where in seen.reason.detail
    assert seen.golden == "FP64"


@pytest.mark.parametrize(("write", "accepted"), fast_first(1, [("keys[3 * 64 + i] = x[i];", True), ("", False)]))
def test_a_cpp_candidate_writes_buffers_in_place(verdict, write, accepted):
    problem = CACHE.format(name="Model", body="self.keys[3:7] = x[:4]; return 2 * x", persistent=True)
    problem = "import torch\n" + problem + "def get_inputs(): return [torch.randn(48, 64)]\n"
    candidate = """
    // kw: entry f
    // kw: out out: like x
    // kw: args x, out, keys
    extern "C" void f(const float* x, float* out, float* keys) {
        for (int i = 0; i < 48 * 64; ++i) out[i] = 2 * x[i];
        for (int i = 0; i < 4 * 64; ++i) { %s }
    }
    """
    seen = verdict(problem, candidate % write, suffix=".cpp")
    assert seen.accepted == accepted, seen.reason
    assert accepted or "buffer keys" in seen.reason.detail


@pytest.mark.slow
def test_state_that_is_not_persistent_is_the_candidates_own(verdict):
    problem = CACHE.format(name="Model", body=WRITES + "return x * 2", persistent=False)
    problem = "import torch\n" + problem + "def get_inputs(): return [torch.randn(48, 64)]\n"
    seen = verdict(problem, "def f(x): return x + x")
    assert seen.accepted, seen.reason
    assert "not compared: the candidate has no such state: keys" in seen.notes


def test_masks_in_buffers_stay_masks(verdict):
    """A candidate that is causal by itself is right, whatever the reference keeps its mask in."""
    program = """
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.ones(48, 48).tril())
        def forward(self, x): return (x[:, :48] * self.mask)
    """
    program = textwrap.dedent(program)
    problem = "import torch\n" + program + "def get_inputs(): return [torch.randn(48, 64)]\n"
    honest = program.replace("Model", "ModelNew").replace("(x[:, :48] * self.mask)", "x[:, :48].tril()")
    assert verdict(problem, honest, sets=6).accepted


@pytest.mark.parametrize(
    ("problem", "right", "wrong", "code"),
    fast_where(
        (0, 1, 4, 7),
        [
            (
                "def f(x): x.mul_(2)",
                "def f(x): x.add_(x.clone())",
                "def f(x): pass",
                "inaccurate",
            ),
            (
                "def f(x): return {'sum': x.sum(1), 'parts': (x > 0, [x.long()])}",
                "def f(x): return {'parts': (x.gt(0), [x.long()]), 'sum': x.sum(1)}",
                "def f(x): return {'sum': x.sum(1), 'parts': [x > 0, [x.long()]]}",
                "wrong-structure",
            ),
            (
                "def f(x): return x.argmax(1), 3, x.shape[0]",
                "def f(x): return x.topk(1).indices[:, 0], 3, 40",
                "def f(x): return x.argmin(1), 3, x.shape[0]",
                "inaccurate",
            ),
            (
                "def f(x): return x.bfloat16() * 2",
                "def f(x): return x.bfloat16() + x.bfloat16()",
                "def f(x): return x.bfloat16() * 2.1",
                "inaccurate",
            ),
            (
                "def f(x): return x.max(1), x.sort(0)",
                "def f(x): return (x.amax(1), x.argmax(1)), (x.sort(0).values, x.argsort(0))",
                "def f(x): return (x.amax(1), x.argmin(1)), tuple(x.sort(0))",
                "inaccurate",
            ),
            (
                "def f(x): return x.to(torch.float8_e4m3fn)",
                "def f(x): return x.clone().to(torch.float8_e4m3fn)",
                "def f(x): return (2 * x).to(torch.float8_e4m3fn)",
                "inaccurate",
            ),
            (
                "def f(x): return x.relu().to_sparse()",
                "def f(x): return x.clamp_min(0).to_sparse()",
                "def f(x): return x.to_sparse()",
                "inaccurate",
            ),
            (
                "def f(x): return x[:0]",
                "def f(x): return x.new_empty(0, 30)",
                "def f(x): return x.new_empty(0, 31)",
                "wrong-shape",
            ),
            (
                "def f(x): x = x.clone().requires_grad_(); return torch.autograd.grad((x ** 2).sum(), x)[0]",
                "def f(x): return 2 * x",
                "def f(x): return x",
                "inaccurate",
            ),
        ],
    ),
    ids=["in place", "nested", "integers", "bfloat16", "pairs", "float8", "sparse", "empty", "gradient"],
)
def test_programs_of_every_shape(verdict, problem, right, wrong, code):
    problem = "import torch\n" + problem + "\ndef get_inputs(): return [torch.randn(40, 30)]\n"
    good = verdict(problem, right)
    assert good.accepted, good.reason
    assert verdict(problem, wrong).reason.code == code


@pytest.mark.slow
def test_keyword_shared_and_strided_inputs_arrive_as_they_are(verdict):
    problem = """
    import torch
    def f(x, *, scale, mask, flags): return x.t() * scale + mask.float() + flags["a"][0]
    def f_inputs():
        base = torch.randn(6, 40)
        return [base[:, ::2].t()], {"scale": base[0, :6].expand(6, 6)[:, :6].t()[0], "mask": torch.ones(6, 20).bool(),
                                    "flags": {"a": [3, None]}}
    """.replace("x.t() * scale", "x.t() * scale[0]")
    candidate = """
    def f(x, *, scale, mask, flags):
        assert x.stride() == (2, 40) and not x.is_contiguous() and flags["a"][1] is None
        return scale[0] * x.t() + mask.float() + flags["a"][0]
    """
    seen = verdict(problem, candidate)
    assert seen.accepted, seen.reason


@pytest.mark.slow
def test_sets_are_counted_and_a_seed_repeats_a_run(verdict):
    first, second = (verdict(ADD, "def f(x, y): return (x.half() + y).float()", sets=5, seed=7) for _ in range(2))
    assert first.reason == second.reason
    assert (
        verdict(ADD, "def f(x, y): return y + x", sets=None).input_sets >= len(DISTRIBUTIONS) - 2
    )  # it does not scale with x alone


def test_tolerance_is_the_classic_policy(verdict):
    sloppy = "def f(x, y): return (x + y).half().float()"
    assert verdict(ADD, sloppy).reason.code == "inaccurate"
    loose = verdict(ADD, sloppy, tolerance=(1e-2, 1e-2))
    assert loose.accepted
    assert loose.accuracy.policy == "0.01,0.01"


@pytest.mark.slow
def test_a_print_reaches_nobody(verdict, capfd):
    assert verdict(ADD, "print('at import')\ndef f(x, y): print('in call'); return x + y").accepted
    assert "call" not in capfd.readouterr().out


BAD_PROBLEMS = [
    ("def f(x): raise ValueError('not today')", "the reference raised ValueError: not today"),
    ("def f(x): return (x - x) / (x - x)", "the reference returns NaN for finite inputs: 12 of 12 elements"),
    ("def f(x): return None", "nothing to verify"),
    ("def f(x): return x, x.numpy()", "the reference returns a ndarray, which cannot be compared"),
    ("def f(x): import sys; sys.exit(3)", "the reference raised sys.exit(3)"),
]


def test_a_lazy_module_in_memory_has_to_be_called_first():
    problem = Problem.from_callable(torch.nn.LazyLinear(8), torch.randn(4, 16))
    with pytest.raises(ProblemError, match="weight of the reference has no shape before the first call"):
        kw.verify(problem, torch.nn.Linear(16, 8), device="cpu")


@pytest.mark.parametrize(("problem", "words"), BAD_PROBLEMS)
def test_the_problems_own_fault_is_no_rejection(verdict, problem, words):
    with pytest.raises(ProblemError) as caught:
        verdict("import torch\n" + problem + "\ndef get_inputs(): return [torch.randn(3, 4)]\n", "def f(x): return x")
    assert words in caught.value.message


def test_a_reference_that_runs_out_of_memory_says_so(verdict):
    with pytest.raises(MemoryLimitError, match="the reference ran out of memory"):
        verdict(
            "import torch\ndef f(x): return x.expand(1 << 50, 4).clone()\ndef get_inputs(): return [torch.ones(4)]\n",
            "def f(x): return x",
        )


def test_a_missing_candidate_is_an_error_not_a_rejection(tmp_path, fork_server):
    (tmp_path / "f.py").write_text(ADD)
    with pytest.raises(NotFoundError):
        kw.verify(str(tmp_path / "f.py"), str(tmp_path / "candidat.py"), fork_server=fork_server)


@pytest.mark.slow
def test_a_relative_target_is_found_from_the_sandbox(tmp_path, fork_server, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.py").write_text(ADD)
    (tmp_path / "g.py").write_text("def f(x, y): return y + x\n")
    assert kw.verify("f.py:f", "g.py:f", sets=1, fork_server=fork_server).accepted


def test_a_live_callable_runs_here():
    problem = Problem.from_callable(torch.add, torch.randn(9, 9), torch.randn(9, 9))
    seen = kw.verify(problem, lambda x, y: y + x, sets=2)
    assert seen.accepted
    assert seen.sandbox == ("none: in-process callable",)
    assert kw.verify(problem, lambda x, y: x.mul_(y), sets=2).reason.code == "inaccurate"
    assert kw.verify(problem, lambda x, y: [][0], sets=2).reason.code == "runtime-error"


def test_a_live_module_keeps_its_state():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert kw.verify(Problem.from_module(model, torch.randn(5, 8)), model, sets=3).accepted
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_live_module_that_raises_keeps_its_state_too():
    class Broken(torch.nn.Linear):
        def forward(self, input):
            self.weight.data.zero_()
            raise ValueError("half way")

    model = Broken(4, 4)
    problem = Problem.from_callable(torch.relu, torch.randn(4, 4))
    assert "half way" in kw.verify(problem, model, sets=1).reason.detail
    assert model.weight.abs().min() > 0


def test_control_c_in_a_live_candidate_is_no_verdict():
    def interrupted(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kw.verify(Problem.from_callable(torch.relu, torch.randn(4)), interrupted, sets=1)


def test_a_live_problem_cannot_go_to_the_sandbox(tmp_path):
    (tmp_path / "g.py").write_text("def f(x): return x\n")
    with pytest.raises(UsageError, match="in-process Python object"):
        kw.verify(Problem.from_callable(torch.relu, torch.randn(3)), str(tmp_path / "g.py"))


def test_the_candidates_process_holds_no_judge(tmp_path, fork_server, monkeypatch):
    (tmp_path / "peek.py").write_text("import sys\ndef modules(payload): return sorted(sys.modules)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = fork_server.run("peek:modules", {}, Limits(20))
    inside = {name for name in modules if name.startswith("kernelwright.verification.")}
    parts = ("tensor_codec", "device_memory", "control_block", "state", "call_chain", "result_containers")
    transport = ("transport", *(f"transport.{part}" for part in parts))
    attacks = ("attacks", "attacks.aliased_output", "attacks.redzone")
    allowed = ("execution", *attacks, "worker", "worker.self_timer", "worker.tasks", *transport)
    assert inside == {f"kernelwright.verification.{name}" for name in allowed}


def test_writing_between_the_elements_of_an_input_is_seen(verdict):
    problem = "import torch\ndef f(x): return x + 1\ndef get_inputs(): return [torch.randn(8, 8)[:, ::2]]\n"
    seen = verdict(problem, "def f(x):\n    r = x + 1; x.as_strided((64,), (1,))[5] = 3.0; return r")
    assert (seen.reason.code, seen.reason.detail) == (
        "input-mutated",
        "input 0: memory between or around its elements was written",
    )


@pytest.mark.gpu
def test_on_a_gpu(verdict):
    assert verdict(SOFTMAX, softmax_by("torch.softmax(self.linear(x), 1)"), device="cuda").accepted
    assert verdict(ADD, "def f(x, y): return (x + y).cpu()", device="cuda").reason.code == "wrong-device"
    tail = "def f(x, y):\n    o = torch.empty_like(x); o[:-1] = (x + y)[:-1]; return o"
    assert verdict(ADD, tail, device="cuda").reason.code == "not-finite"
    outside = "def f(x, y): return x[torch.full((300, 7), 1 << 40, device='cuda')]"
    assert verdict(ADD, outside, device="cuda").reason.code in ("runtime-error", "crash")
    assert verdict(ADD, "def f(x, y): return y + x", device="cuda").accepted


@pytest.mark.parametrize(
    "candidate", fast_where([1], ["def f(x, y): return y + x", lambda x, y: y + x]), ids=["file", "live"]
)
def test_a_set_is_gone_before_the_next_is_drawn(tmp_path, monkeypatch, candidate):
    path = tmp_path / "f.py"
    path.write_text(ADD + "def get_held_out_inputs(): return [[torch.randn(5, 7), torch.randn(5, 7)]]\n")
    if isinstance(candidate, str):
        (tmp_path / "candidate.py").write_text(candidate)
        candidate = str(tmp_path / "candidate.py")
    drawn, alive = [], []

    def watched(draw):
        def drawing(self, *args):
            gc.collect()
            alive.append(sum(one() is not None for one in drawn))
            found = draw(self, *args)
            drawn.append(weakref.ref(found))
            return found

        return drawing

    for name in ("draw_set", "make_set"):
        monkeypatch.setattr(Reference, name, watched(getattr(Reference, name)))
    assert kw.verify(str(path), candidate, sets=4).accepted
    assert len(alive) >= 5 and set(alive) == {0}


@pytest.mark.parametrize(("theirs", "accepted"), fast_first(1, [("sin", True), ("cos", False)]))
def test_a_problem_without_inputs_is_judged_like_any_other(tmp_path, theirs, accepted):
    for name, function in (("f", "sin"), ("g", theirs)):
        text = f"import torch\ndef f(): return torch.arange(50).{function}()\ndef get_inputs(): return []\n"
        (tmp_path / f"{name}.py").write_text(text)
    seen = kw.verify(str(tmp_path / "f.py"), str(tmp_path / "g.py:f"))
    assert (seen.accepted, seen.reason and seen.reason.code) == (accepted, None if accepted else "inaccurate")
