"""The file that `kw optimize` leaves: it stands alone, is right wherever it is used, and is whole or not there."""

import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch
from tiers import fast_first
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parent))
from fake_timings import rounds_of
from first_choice import KernelsFirst, module_of, quick, replace_slow_steps, run, text_of

import kernelwright.compiler.pipeline as program
from kernelwright.compiler import optimization_record, staged_file
from kernelwright.compiler import session as session_module
from kernelwright.compiler.program_variant import COMPILED, EAGER, Variant
from kernelwright.core.errors import KernelwrightError, ProblemError, UsageError
from kernelwright.core.optimization import OWN_KERNELS
from kernelwright.core.verdict import Reason
from kernelwright.machines import machine_from_spec


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with quick():
        yield


MODEL = '''"""A problem's own words."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

FEATURES = 40


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(features), nn.Linear(features, 24))
        self.scale = nn.Parameter(torch.full((24,), 0.5))
        self.register_buffer("shift", torch.ones(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(F.gelu(self.layers(x)) * self.scale + self.shift, -1)


def get_inputs():
    return [torch.randn(9, FEATURES)]


def get_init_inputs():
    return [FEATURES]


if __name__ == "__main__":
    raise SystemExit("a script's last words")
'''
NO_MEAN = MODEL.replace("nn.LayerNorm", "nn.RMSNorm")
FUNCTION = """import torch


def {name}(x, y):
    return torch.softmax(x * y + 1, -1) * 2


def get_inputs():
    return [torch.randn(9, 40), torch.randn(40)]
"""
ALONE = """
import importlib.abc, sys, torch
class Nowhere(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "kernelwright":
            raise ImportError(name)
sys.meta_path.insert(0, Nowhere())
sys.path.insert(0, {folder!r})
torch.set_num_threads(1)
import problem_optimized as made
model = made.ModelNew(40)
model.load_state_dict(torch.load({state!r}))
with torch.no_grad():
    torch.save(model(torch.load({given!r})), {result!r})
assert made.KERNELS and not any(name.startswith("kernelwright") for name in sys.modules)
"""


def problem_in(folder, text, name="problem.py"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The file of MODEL as a module."""
    return module_of(text_of(problem_in(tmp_path_factory.mktemp("made"), MODEL)))


@pytest.fixture
def pair(made):
    """A model and its new one with the same parameters, which are not the ones that kernels were made with."""
    old, new = made.Model(40), made.ModelNew(40)
    with torch.no_grad():
        for tensor in (*old.parameters(), *old.buffers()):
            tensor.copy_(torch.randn_like(tensor))
    assert not new.load_state_dict(old.state_dict()).missing_keys
    return old, new


def test_a_file_stands_alone(tmp_path):
    path = problem_in(tmp_path, MODEL)
    source = text_of(path)
    assert "kernelwright" not in "".join(line for line in source.splitlines() if "import" in line)
    (tmp_path / "alone").mkdir()
    out = tmp_path / "alone" / "problem_optimized.py"
    out.write_text(source)
    torch.manual_seed(3)
    old, x = module_of(source).Model(40), torch.randn(9, 40)
    places = {name: str(tmp_path / name) for name in ("state", "given", "result")}
    torch.save(old.state_dict(), places["state"])
    torch.save(x, places["given"])
    code = ALONE.format(folder=str(out.parent), **places)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=out.parent, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(torch.load(places["result"]), old(x).detach())


def test_parameters_are_loaded_by_name_in_both_directions(made, pair):
    old, new = pair
    assert list(new.state_dict()) == list(old.state_dict())
    back = made.Model(40)
    back.load_state_dict(new.state_dict())
    x = torch.randn(9, 40)
    with torch.no_grad():
        got, used = run(new, x)
        assert used
        torch.testing.assert_close(got, old(x))
        torch.testing.assert_close(got, back(x))


def test_what_was_not_proved_runs_as_it_was(pair):
    old, new = pair
    x = torch.randn(9, 40)
    others = {
        "fewer rows": x[:4],
        "no rows": x[:0],
        "more dimensions": x[None],
        "other strides": torch.randn(40, 9).t(),
    }
    with torch.no_grad():
        for name, other in others.items():
            got, used = run(new, other)
            assert not used, name
            torch.testing.assert_close(got, old(other))
        with torch.autocast("cpu", torch.bfloat16):
            got, used = run(new, x)
            assert not used
            torch.testing.assert_close(got, old(x))
    with pytest.raises(RuntimeError):
        new(torch.randn(9, 41))


def test_a_file_without_gradients_gives_eager_ones(pair):
    old, new = pair
    x = torch.randn(9, 40)
    got, used = run(new, x)
    assert not used
    got.sum().backward()
    old(x).sum().backward()
    torch.testing.assert_close(new.scale.grad, old.scale.grad)
    new.requires_grad_(False)
    assert run(new, x)[1], "nobody asks for gradients"
    leaf = x.clone().requires_grad_()
    got, used = run(new, leaf)
    assert not used
    assert got.requires_grad


def test_another_precision_runs_as_it_was(pair):
    old, new = (model.double() for model in pair)
    x = torch.randn(9, 40).double()
    with torch.no_grad():
        got, used = run(new, x)
        assert not used
        torch.testing.assert_close(got, old(x))


def test_torch_compile_of_a_file_sees_the_program_as_it_was(pair):
    old, new = pair
    x = torch.randn(9, 40)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(new, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), old(x))


@pytest.fixture(scope="module")
def of_function(tmp_path_factory):
    path = problem_in(tmp_path_factory.mktemp("function"), FUNCTION.format(name="work"))
    return module_of(text_of(f"{path}:work"))


def dual(f, x, y):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(f(forward_ad.make_dual(x, torch.ones_like(x)), y)).tangent


WITHOUT_TENSORS = """
import torch


def made(n):
    x = torch.arange(1 << 15, dtype=torch.float32).reshape(2048, 16) * 1e-6
    x = (x * n + 1) * x + 0.3
    return (x.sigmoid() + 0.5).to(torch.bfloat16).prod(-1)


def get_inputs():
    return [2.5]
"""
FOLLOWED = {
    "jvp": lambda f, x, y: torch.func.jvp(lambda x: f(x, y), (x,), (torch.ones_like(x),)),
    "vmap": lambda f, x, y: torch.func.vmap(f, in_dims=(0, None))(torch.stack([x, x + 1]), y),
    "grad": lambda f, x, y: torch.func.grad(lambda x: (f(x, y) ** 2).sum())(x),
    "functionalize": lambda f, x, y: torch.func.functionalize(f)(x, y),
    "a dual tensor": dual,
    "a tangent of nothing": lambda f, x, y: torch.autograd.functional.jvp(lambda x: f(x, y), x, torch.ones_like(x)),
    "jit.trace": lambda f, x, y: torch.jit.trace(lambda x, y: f(x, y) + 0, (x, y), check_trace=False)(x + 1, y),
    "make_fx before dispatch": lambda f, x, y: make_fx(lambda x, y: f(x, y) + 0, pre_dispatch=True)(x, y)(x + 1, y),
    "make_fx": lambda f, x, y: make_fx(lambda x, y: f(x, y) + 0)(x, y)(x + 1, y),
    "export": lambda f, x, y: torch.export.export(AsModule(f), (x, y)).module()(x, y),
    "torch.compile": lambda f, x, y: torch.compile(f, backend="eager", fullgraph=True)(x, y),
    "checkpoint": lambda f, x, y: checkpoint(f, x, y, use_reentrant=False),
    "a negative view": lambda f, x, y: f(torch._neg_view(x), y),
    "zeros without memory": lambda f, x, y: f(torch._efficientzerotensor((9, 40)), y),
    "a functional tensor": lambda f, x, y: torch._from_functional_tensor(f(*map(torch._to_functional_tensor, (x, y)))),
}


class AsModule(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = lambda x, y: function(x, y)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", FOLLOWED)
def test_whoever_follows_every_operator_sees_the_program_as_it_was(of_function, how, monkeypatch):
    x, y, made = torch.randn(9, 40), torch.randn(40), of_function.ModelNew()
    for recording in (True, False):  # from here on the file asks first whether tensors are like these
        with torch.set_grad_enabled(recording):
            made(x, y)
    assert set(of_function.FAST_CHECKS) == {True, False}
    used, region = [], of_function.region_0
    monkeypatch.setattr(of_function, "region_0", lambda *given: used.append(given) or region(*given))
    torch.testing.assert_close(FOLLOWED[how](made, x, y), FOLLOWED[how](of_function.work, x, y))
    assert bool(used) == (how == "checkpoint")


def test_a_program_without_tensors_asks_what_torch_does(tmp_path):
    """There is no tensor whose check would see it."""
    path = tmp_path / "made.py"
    path.write_text(WITHOUT_TENSORS)
    made = module_of(text_of(f"{path}:made"))
    new = made.ModelNew()
    with torch.no_grad():
        for _ in range(2):
            assert new(2.5).dtype == made.made(2.5).dtype == torch.bfloat16
        with torch.autocast("cpu"):
            assert new(2.5).dtype == made.made(2.5).dtype == torch.float32
        traced = torch.jit.trace(lambda y: y + new(2.5), (torch.zeros(2048),), check_trace=False)
    assert "sigmoid" in str(traced.inlined_graph)


def test_a_function_is_called_as_one(of_function, monkeypatch):
    made, x, y = of_function.ModelNew(), torch.randn(9, 40), torch.randn(40)
    monkeypatch.setattr(torch.nn.Module, "_call_impl", None)  # an nn.Module's own call costs more than a small kernel
    got, used = run(made, x, y)
    assert used
    torch.testing.assert_close(got, of_function.work(x, y))


def negative(x):
    """A view that stands for -x: its memory holds x."""
    return torch.complex(torch.zeros_like(x), x).conj().imag


@pytest.mark.parametrize("of", [negative, lambda x: x.to_sparse(), lambda x: x.to_mkldnn()], ids=["neg", "coo", "mkl"])
def test_memory_that_is_not_what_it_says_is_left_to_torch(of_function, of):
    x, y = torch.randn(9, 40), torch.randn(40)
    assert not of_function.inputs_match(of(x), y)


class Marked(torch.Tensor):
    pass


UNLIKE = {
    "shape": lambda x: x[:4],
    "strides": lambda x: x.t().contiguous().t(),
    "dtype": torch.Tensor.double,
    "sign": negative,
    "layout": torch.Tensor.to_sparse,
    "gradient": lambda x: x.clone().requires_grad_(),
    "class": lambda x: x.as_subclass(Marked),
    "device": lambda x: x.to("meta"),
    "no tensor": torch.Tensor.tolist,
}


@pytest.mark.parametrize("how", UNLIKE)
def test_tensors_that_were_as_proved_say_nothing_of_others(of_function, how):
    x, y = torch.randn(9, 40), torch.randn(40)
    assert of_function.inputs_match(x, y)
    assert of_function.FAST_CHECKS[True](x, y)
    assert not of_function.inputs_match(UNLIKE[how](x), y)
    assert of_function.inputs_match(x, y)


def test_without_the_quick_check_of_torchs_compiler_tensors_are_looked_at(of_function, monkeypatch):
    x, y = torch.randn(9, 40), torch.randn(40)
    monkeypatch.setitem(sys.modules, "torch._C._dynamo.guards", None)
    monkeypatch.setattr(of_function, "FAST_CHECKS", {})
    assert of_function.inputs_match(x, y)
    assert not of_function.FAST_CHECKS[True](x, y)
    assert of_function.inputs_match(x, y)
    assert not of_function.inputs_match(x[:4], y)


@pytest.mark.parametrize("defaults", ["float64", "meta"])
def test_torchs_defaults_are_not_what_the_results_are(of_function, defaults):
    x, y = torch.randn(9, 40), torch.randn(40)
    wanted = of_function.work(x, y)
    with torch.device("meta") if defaults == "meta" else nullcontext():
        torch.set_default_dtype(torch.float64 if defaults == "float64" else torch.float32)
        try:
            got, used = run(of_function.ModelNew(), x, y)
        finally:
            torch.set_default_dtype(torch.float32)
    assert used
    torch.testing.assert_close(got, wanted)


def test_without_a_compiler_the_program_runs_as_it_was(tmp_path, monkeypatch):
    text = text_of(f"{problem_in(tmp_path, FUNCTION.format(name='work'))}:work")
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(RuntimeWarning, match="no-such-compiler"):
        module_of(text)
    names = {"__name__": "owned"}
    with pytest.warns(RuntimeWarning, match="running the original program.*no-such-compiler"):
        exec(compile(text, "owned.py", "exec"), names)
    x, y = torch.randn(9, 40), torch.randn(40)
    torch.testing.assert_close(names["ModelNew"]()(x, y), names["work"](x, y))


def test_a_trained_file_gives_the_same_gradients(tmp_path):
    made = module_of(text_of(problem_in(tmp_path, MODEL), train=True))
    old, new, x = made.Model(40), made.ModelNew(40), torch.randn(9, 40)
    new.load_state_dict(old.state_dict())
    gradient = torch.randn(9, 24)
    got, used = run(new, x)
    assert used
    got.backward(gradient)
    old(x).backward(gradient)
    for (name, one), other in zip(new.named_parameters(), old.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, msg=lambda text, name=name: f"{name}: {text}")


def test_a_program_without_a_faster_kernel_says_so(tmp_path):
    source = text_of(problem_in(tmp_path, MODEL), keep=False)
    made = module_of(source)
    assert "nothing was faster" in made.ModelNew.__doc__
    assert "KERNELS" not in source
    old, new = made.Model(40), made.ModelNew(40)
    new.load_state_dict(old.state_dict())
    x = torch.randn(9, 40)
    torch.testing.assert_close(new(x), old(x))


def test_a_function_without_a_faster_kernel_is_the_function(tmp_path):
    path = problem_in(tmp_path, FUNCTION.format(name="work"))
    made = module_of(text_of(f"{path}:work", keep=False))
    x, y = torch.randn(9, 40), torch.randn(40)
    assert torch.equal(made.ModelNew()(x, y), made.work(x, y))


# ---- names in a problem


TAKEN_NAMES = [
    "region_0",
    "inputs_match",
    "compile_library",
    "KERNELS",
    "SOURCE",
    "is_intercepted",
    "make_fast_check",
    "is_transformed",
    "is_unmaterialized",
]


@pytest.mark.parametrize("name", fast_first(6, ["softmax", "torch_", "mul_1", *TAKEN_NAMES]))
def test_a_problem_may_have_any_name(tmp_path, name):
    made = module_of(text_of(f"{problem_in(tmp_path, FUNCTION.format(name=name))}:{name}"))
    new, x, y = made.ModelNew(), torch.randn(9, 40), torch.randn(40)
    for rows in (x, x[:4]):
        torch.testing.assert_close(new(rows, y), torch.softmax(rows * y + 1, -1) * 2)


@pytest.mark.parametrize("helper", fast_first(4, ["add", *TAKEN_NAMES]))
def test_a_problem_may_have_helpers_of_any_name(tmp_path, helper):
    text = FUNCTION.format(name="work").replace("x * y + 1", f"{helper}(x * y)")
    text = text.replace("def work", f"def {helper}(x):\n    return x + 1\n\n\ndef work")
    made = module_of(text_of(f"{problem_in(tmp_path, text)}:work"))
    new, x, y = made.ModelNew(), torch.randn(9, 40), torch.randn(40)
    for rows in (x, x[:4]):
        torch.testing.assert_close(new(rows, y), torch.softmax(rows * y + 1, -1) * 2)


def test_a_trained_problem_may_have_a_helper_that_is_called_run(tmp_path):
    text = MODEL.replace("F.gelu(self", "run(self").replace(
        "class Model", "def run(x):\n    return x + 1\n\n\nclass Model"
    )
    made = module_of(text_of(problem_in(tmp_path, text), train=True))
    old, new, x = made.Model(40), made.ModelNew(40), torch.randn(4, 40)
    new.load_state_dict(old.state_dict())
    torch.testing.assert_close(new(x), old(x))


def test_a_program_without_anything_to_train_may_be_trained(tmp_path):
    made = module_of(text_of(f"{problem_in(tmp_path, FUNCTION.format(name='work'))}:work", train=True))
    x, y = torch.randn(9, 40), torch.randn(40)
    torch.testing.assert_close(made.ModelNew()(x, y), made.work(x, y))


def test_annotations_that_only_a_type_checker_knows_do_no_harm(tmp_path):
    head = "from __future__ import annotations\n\nfrom typing import TYPE_CHECKING\n\nimport torch\n\n"
    head += "if TYPE_CHECKING:\n    from nowhere import Later\n"
    text = head + FUNCTION.format(name="work").removeprefix("import torch").replace("(x, y)", "(x: Later, y: Later)")
    made = module_of(text_of(f"{problem_in(tmp_path, text)}:work"))
    x, y = torch.randn(9, 40), torch.randn(40)
    torch.testing.assert_close(made.ModelNew()(x, y), torch.softmax(x * y + 1, -1) * 2)


def test_what_a_script_does_at_its_end_is_left_out(tmp_path):
    source = text_of(problem_in(tmp_path, MODEL))
    assert "last words" not in source
    compile(source, "problem_optimized.py", "exec")


# ---- constants

CONSTANT = """import torch

TABLE = torch.linspace(0, 1, {size})


def work(x):
    return torch.relu(x * TABLE + 1)


def get_inputs():
    return [torch.randn(9, {size})]
"""


def test_a_small_tensor_from_outside_is_written_out(tmp_path):
    made = module_of(text_of(f"{problem_in(tmp_path, CONSTANT.format(size=40))}:work"))
    x = torch.randn(9, 40)
    torch.testing.assert_close(made.ModelNew()(x), made.work(x))


@pytest.mark.parametrize("train", [False, True])
def test_a_large_tensor_from_outside_is_not_written_out(tmp_path, train):
    path = problem_in(tmp_path, CONSTANT.format(size=400))
    with pytest.raises(AssertionError, match="captures a constant tensor of 400 elements") as caught:
        text_of(f"{path}:work", train=train)
    assert ("as 1 graph of torch.compile" in str(caught.value)) is not train


# ---- the whole way, with its slow steps replaced


@pytest.fixture
def swift(monkeypatch, fork_server):
    replace_slow_steps(monkeypatch, program, fork_server)
    return monkeypatch


@dataclass(frozen=True)
class Wrong:
    """The layer of a program that is off by a tenth."""

    class_name: str = "Wrong"
    imports: str = ""

    def sections(self, problem):
        return ()

    def body(self, below):
        parameters, arguments = below.signature()
        return f"def forward({parameters}):\n    return {below.call(arguments)} * 1.1"


WRONG = Variant("wrong", Wrong())


def choose(swift, *variants, times_us=None):
    """Makes `optimize_file` see these variants, best first, with these timings; None stands for the kernels."""

    class Chosen(KernelsFirst):
        def select(self):
            layer = self.session.kernel_layer() if None in variants else None
            found = [variant or Variant(OWN_KERNELS, layer) for variant in variants]
            return found, rounds_of(times_us) if times_us else None

    swift.setattr(program, "ProgramSelector", lambda session, **_: Chosen(session))


def function_in(folder):
    return f"{problem_in(folder, FUNCTION.format(name='work'))}:work"


def test_the_file_lands_beside_the_problem_and_is_accepted(tmp_path, swift):
    path = problem_in(tmp_path, MODEL)
    found = program.optimize_file(str(path))
    assert found.verdict
    assert found.verdict.accepted, found.verdict.reason
    assert found.output_file == found.verdict.candidate == str(tmp_path / "problem_optimized.py")
    assert (tmp_path / "problem_optimized.py").read_text() == found.source
    assert [file.name for file in sorted(tmp_path.iterdir()) if file.is_file()] == [path.name, "problem_optimized.py"]
    assert "problem with kernels generated by Kernelwright, for" in found.source
    assert (found.whole_program_winner, found.notes, found.bench) == ("", (), None)
    assert (found.engine, found.options) == (OWN_KERNELS, ())
    assert sum(module.num_regions for module in found.modules) == 2
    assert found.budget.spent_s > 0
    assert [region.winner for region in found.regions] == ["first"] * 2


# Without a mean: torch.compile leaves something of one that is subtracted from rows of equal numbers.
@pytest.mark.parametrize("text", fast_first(1, [NO_MEAN, FUNCTION.format(name="work")]), ids=["module", "function"])
@pytest.mark.parametrize("variant", fast_first(1, [EAGER, COMPILED]), ids=lambda variant: variant.name)
def test_torch_runs_the_whole_program_where_that_is_faster(tmp_path, swift, text, variant):
    times_us = {OWN_KERNELS: 13.0, "torch": 20.0, "torch.compile": 20.0} | {variant.name: 10.0}
    choose(swift, variant, None, times_us=times_us)
    path = problem_in(tmp_path, text)
    target = str(path) if text == NO_MEAN else f"{path}:work"
    found = program.optimize_file(target)
    assert found.verdict.accepted, found.verdict.reason
    assert (found.whole_program_winner, found.source) == (variant.name, Path(found.output_file).read_text())
    assert found.is_unchanged is (variant is EAGER)
    assert (found.engine, found.num_kernels) == (variant.engine, 0)
    reason = "1.30x faster than the next, kernels"
    assert found.notes == (f"the file runs the whole program with {variant.name}: {reason}",)
    assert "KERNELS" not in found.source
    assert ("torch.compile(" in found.source) is (variant is COMPILED)


def session_of(*, left_out=(), faults=()):
    return SimpleNamespace(budget=SimpleNamespace(left_out=left_out), faults=faults)


@pytest.mark.parametrize(
    ("left_out", "faults", "reason"),
    [
        ((), (), "the whole program is faster with torch.compile"),
        (("kernels of 1 of 2 regions",), (), "the whole program is faster with torch.compile"),
        (("kernels, in a CUDA graph",), (), "the whole program is faster with torch.compile"),
        (("kernels, channels-last",), (), "there was no time to try the whole program with them"),
        ((), ("kernels is not used: inaccurate, far off",), "the whole program failed with them, see the notes"),
        ((), ("the kernels are not used: out of device memory",), "the whole program failed with them, see the notes"),
        ((), ("torch is not used: inaccurate",), "the whole program is faster with torch.compile"),
    ],
)
def test_a_kernel_that_is_not_used_has_a_reason(left_out, faults, reason):
    assert optimization_record._why_unused(session_of(left_out=left_out, faults=faults), COMPILED) == reason


def test_the_rounds_of_the_choice_are_the_benchmark(tmp_path, swift):
    choose(swift, None, EAGER, times_us={OWN_KERNELS: 10.0, "torch": 15.0, "torch.compile": 12.0, "other": 11.0})
    found = program.optimize_file(function_in(tmp_path))
    assert found.verdict.accepted, found.verdict.reason
    times_us = {timed.name: timed.time_us for timed in found.bench.variants}
    assert times_us == {"candidate": 10.0, "eager": 15.0, "torch.compile": 12.0}
    speedups = {one.baseline: (one.variant, round(one.speedup, 3)) for one in found.bench.comparisons}
    assert speedups == {"eager": ("candidate", 1.5), "torch.compile": ("candidate", 1.2)}
    assert found.bench.verdicts[0].candidate == found.output_file
    assert found.bench.machine == machine_from_spec("h200")


def test_the_program_as_it_was_is_a_candidate_too(tmp_path, swift):
    choose(swift, EAGER, times_us={"torch": 15.0})
    found = program.optimize_file(function_in(tmp_path))
    assert found.verdict.accepted, found.verdict.reason
    assert "work, unchanged: nothing was faster on" in found.source
    assert {timed.name: timed.time_us for timed in found.bench.variants} == {"candidate": 15.0, "eager": 15.0}
    assert [one.verdict for one in found.bench.comparisons] == ["SAME"]


def test_kernels_that_are_right_take_the_place_of_what_is_faster_and_wrong(tmp_path, swift):
    choose(swift, WRONG, None, EAGER)
    found = program.optimize_file(function_in(tmp_path))
    assert found.verdict.accepted, found.verdict.reason
    assert found.whole_program_winner == ""
    assert "KERNELS" in found.source == Path(found.output_file).read_text()
    (note,) = found.notes
    assert note.startswith("wrong is not used: inaccurate, ")


def test_after_a_rejection_nothing_slower_than_the_program_as_it_was_is_taken(tmp_path, swift):
    choose(swift, WRONG, EAGER, COMPILED)
    found = program.optimize_file(function_in(tmp_path))
    assert found.verdict.accepted, found.verdict.reason
    assert found.whole_program_winner == "torch"
    assert "torch.compile" not in found.source


def test_the_program_as_it_was_takes_the_place_of_what_is_wrong(tmp_path, swift):
    choose(swift, WRONG)
    found = program.optimize_file(function_in(tmp_path))
    assert found.verdict.accepted, found.verdict.reason
    assert found.whole_program_winner == "torch"
    assert found.is_unchanged
    assert Path(found.output_file).read_text() == found.source
    assert [note.partition(":")[0] for note in found.notes] == ["wrong is not used"]


def test_kernels_that_do_not_compile_are_not_used(tmp_path, swift):
    swift.setenv("CXX", "no-such-compiler")
    swift.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    found = program.optimize_file(function_in(tmp_path))
    assert found.verdict.accepted, found.verdict.reason
    assert found.whole_program_winner == "torch"
    (note,) = found.notes
    assert note.startswith("kernels is not used: ")
    assert "kernels do not compile here" in note


def test_a_choice_is_not_called_faster_than_what_was_rejected(tmp_path, swift):
    choose(swift, WRONG, EAGER, times_us={"wrong": 5.0, "torch": 10.0})
    found = program.optimize_file(function_in(tmp_path))
    assert found.whole_program_winner == "torch"
    assert not any("0.50x faster" in note for note in found.notes)


def test_a_program_that_was_not_timed_has_no_benchmark(tmp_path, swift):
    choose(swift, WRONG, times_us={"wrong": 5.0})
    found = program.optimize_file(function_in(tmp_path))
    assert found.whole_program_winner == "torch"
    assert found.bench is None


def rejecting(verify):
    reason = Reason(code="inaccurate", detail="far off")
    return lambda *args, **kwargs: msgspec.structs.replace(verify(*args, **kwargs), accepted=False, reason=reason)


def test_a_file_that_is_not_right_takes_nobodys_place(tmp_path, swift):
    target = function_in(tmp_path)
    out = problem_in(tmp_path, "before = True\n", "out.py")
    swift.setattr(staged_file, "verify", rejecting(staged_file.verify))
    choose(swift, None, EAGER, times_us={OWN_KERNELS: 10.0, "torch": 15.0})
    found = program.optimize_file(target, str(out))
    assert (found.verdict.accepted, found.verdict.reason.code, found.bench) == (False, "inaccurate", None)
    assert found.output_file == found.verdict.candidate == str(tmp_path / "out_rejected.py")
    assert Path(found.output_file).read_text() == found.source
    assert out.read_text() == "before = True\n"


def test_a_fault_of_the_judge_itself_is_said(tmp_path, swift):
    def broken(*_, **__):
        raise ProblemError("the reference cannot be compared")

    swift.setattr(staged_file, "verify", broken)
    try:
        program.optimize_file(function_in(tmp_path))
    except KernelwrightError as error:
        assert "the reference cannot be compared" in error.message


STEPS = ["make_plan", "write_atomic", "verify", "optimize_session", "load", "plan_program"]
OWNERS = {
    "make_plan": session_module.OptimizationSession, "plan_program": session_module, "verify": staged_file,
    "load": staged_file,
}  # fmt: skip


@pytest.mark.parametrize("step", fast_first(3, STEPS))
def test_an_interrupted_run_leaves_no_file(tmp_path, swift, step):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    target = function_in(tmp_path)
    swift.setattr(OWNERS.get(step, program), step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        program.optimize_file(target)
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["problem.py"]


@pytest.mark.parametrize("step", ["optimize_session", "verify"])
def test_the_file_before_survives_an_interruption(tmp_path, swift, step):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    target = function_in(tmp_path)
    out = problem_in(tmp_path, "before = True\n", "out.py")
    swift.setattr(OWNERS.get(step, program), step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        program.optimize_file(target, str(out))
    assert out.read_text() == "before = True\n"


@pytest.mark.slow
def test_a_program_may_warn_of_what_it_likes(tmp_path, swift):
    text = FUNCTION.format(name="work") + '\nimport warnings\nwarnings.warn("of old age", RuntimeWarning)\n'
    with pytest.warns(RuntimeWarning, match="of old age"):
        found = program.optimize_file(f"{problem_in(tmp_path, text)}:work")
    assert found.verdict.accepted
    assert "KERNELS" in found.source


@pytest.mark.parametrize("out", [".", "missing/out.py"])
def test_a_place_where_no_file_can_be_is_known_at_once(tmp_path, monkeypatch, out):
    path = problem_in(tmp_path, FUNCTION.format(name="work"))
    monkeypatch.setattr(program, "why_with_work", None)
    with pytest.raises(UsageError, match="folder"):
        program.optimize_file(f"{path}:work", str(tmp_path / out))


@pytest.mark.parametrize("out", ["problem.py", "./problem.py", "link.py"])
def test_the_problem_is_never_overwritten(tmp_path, monkeypatch, out):
    path = problem_in(tmp_path, FUNCTION.format(name="work"))
    (tmp_path / "link.py").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="problem itself"):
        program.optimize_file("problem.py:work", out)
    assert "def work" in path.read_text()


def test_a_plan_generates_nothing(tmp_path, swift):
    for step in ("Tuner", "verify", "why_with_work", "write_atomic", "optimize_session"):
        swift.setattr(OWNERS.get(step, program), step, lambda *_, **__: pytest.fail("a plan is only a plan"))
    found = program.optimize_file(str(problem_in(tmp_path, MODEL)), plan_only=True)
    assert found.verdict is None
    assert [(region.winner, region.summary, region.num_occurrences) for region in found.regions] == [("", "", 1)] * 2
    assert "aten.linear.default" in {left.operator for left in found.fallbacks}


def test_a_plan_lists_repeated_regions_once(tmp_path, swift):
    loop = "    for _ in range(3):\n        x = (x * y).sort()[0]\n    return torch"
    text = FUNCTION.format(name="work").replace("    return torch", loop, 1)
    found = program.optimize_file(f"{problem_in(tmp_path, text)}:work", plan_only=True)
    counts = [region.num_occurrences for region in found.regions]
    assert sum(counts) == 4
    assert max(counts) > 1


BY_VALUE = FUNCTION.format(name="work").replace(
    "    return torch.", "    if x.sum() > 1e9:\n        x = -x\n    return torch.", 1
)


def test_what_cannot_be_captured_as_a_whole_has_kernels_between_its_breaks(tmp_path, swift):
    found = program.optimize_file(f"{problem_in(tmp_path, BY_VALUE)}:work")
    assert found.verdict.accepted, found.verdict.reason
    assert found.engine == OWN_KERNELS
    (note,) = found.notes
    assert note.startswith("the program is captured as 2 graphs of torch.compile, not as a whole: ")
    assert note.endswith("data-dependent control flow (problem.py:5)")
    made, x, y = module_of(found.source), torch.randn(9, 40), torch.randn(40)
    for given in (x, x.abs() * 1e9):
        torch.testing.assert_close(made.ModelNew()(given, y), made.work(given, y))


@pytest.mark.slow
def test_what_cannot_be_captured_is_compiled_where_that_is_faster(tmp_path, swift):
    choose(swift, COMPILED, EAGER, times_us={"torch.compile": 10.0, "torch": 13.0})
    found = program.optimize_file(f"{problem_in(tmp_path, BY_VALUE)}:work")
    assert found.verdict.accepted, found.verdict.reason
    assert found.whole_program_winner == "torch.compile"
    assert found.notes[0] == "the file runs the whole program with torch.compile: 1.30x faster than the next, torch"
    assert found.notes[1].startswith("the program is captured as 2 graphs of torch.compile")
    assert len(found.regions) == 2


def test_a_plan_of_graphs_shows_their_regions_and_what_breaks_them(tmp_path, swift):
    path = problem_in(tmp_path, BY_VALUE)
    found = program.optimize_file(f"{path}:work", plan_only=True)
    assert [region.name for region in found.regions] == ["graph_1_region_0", "graph_2_region_0"]
    assert "data-dependent control flow (problem.py:5)" in found.notes[0]
    assert [file for file in tmp_path.iterdir() if file.is_file()] == [path]


def test_a_plan_of_what_cannot_be_captured_is_one_clear_error(tmp_path, swift):
    text = BY_VALUE.replace(
        "    if x.sum", "    if torch.compiler.is_dynamo_compiling():\n        raise ValueError\n    if x.sum"
    )
    path = problem_in(tmp_path, text)
    with pytest.raises(ProblemError, match="data-dependent control flow"):
        program.optimize_file(f"{path}:work", plan_only=True)
    assert [file for file in tmp_path.iterdir() if file.is_file()] == [path]


def test_a_trained_file_is_accepted_and_untimed(tmp_path, swift):
    swift.setattr(KernelsFirst, "select", lambda self: pytest.fail("trained programs are not timed"))
    found = program.optimize_file(str(problem_in(tmp_path, MODEL)), train=True)
    assert found.verdict.accepted, found.verdict.reason
    assert "torch.autograd.Function" in found.source
    assert found.bench is None
    assert any("backward" in region.name for region in found.regions)


def test_a_trained_program_that_cannot_be_captured_is_left_to_torch(tmp_path, swift):
    found = program.optimize_file(f"{problem_in(tmp_path, BY_VALUE)}:work", train=True)
    assert found.verdict.accepted, found.verdict.reason
    assert found.whole_program_winner == "torch"
    assert found.notes[0].startswith("the program is not captured")


def test_what_was_left_out_for_want_of_time_is_said(tmp_path, swift):
    make_plan = session_module.OptimizationSession.make_plan

    def with_the_last_of_the_time(self, **given):
        make_plan(self, **given)
        self.budget.reserved_s = self.budget.total_s

    swift.setattr(session_module.OptimizationSession, "make_plan", with_the_last_of_the_time)
    found = program.optimize_file(str(problem_in(tmp_path, MODEL)), budget_s=77.0)
    assert found.verdict.accepted, found.verdict.reason
    assert found.notes == ("not tried within the budget of 77 s: kernels of 2 of 2 regions",)
    assert {region.winner_reason for region in found.regions} == {"not tuned"}


def test_the_mode_of_the_modules_is_said_where_kernels_depend_on_it(tmp_path, swift):
    text = MODEL.replace("nn.LayerNorm", "nn.BatchNorm1d")
    found = program.optimize_file(str(problem_in(tmp_path, text)))
    assert found.verdict.accepted, found.verdict.reason
    (note,) = found.notes
    assert "mode, as at capture" in note


# ---- rewrites that are rejected, and steps that take too long

REWRITTEN = FUNCTION.format(name="work").replace(
    "    return torch.softmax(x * y + 1, -1) * 2", "    return torch.relu((x * y).sum(-1, keepdim=True) / 40 + x)"
)


def test_rewrites_are_marked_where_the_file_does_not_contain_them(tmp_path, swift):
    choose(swift, EAGER, None, times_us={"torch": 10.0, OWN_KERNELS: 13.0})
    found = program.optimize_file(f"{problem_in(tmp_path, REWRITTEN)}:work")
    assert [one.not_used for one in found.rewrites] == ["the whole program is faster with torch"]


def test_kernels_without_rewrites_follow_rejected_ones_with_them(tmp_path, swift):
    verify, disabled = staged_file.verify, []
    make_plan = session_module.OptimizationSession.make_plan

    def rejecting_rewrites(problem, path, **given):
        return (rejecting(verify) if len(disabled) == 1 else verify)(problem, path, **given)

    def watched(self, **given):
        disabled.append(given["disabled"])
        make_plan(self, **given)

    swift.setattr(staged_file, "verify", rejecting_rewrites)
    swift.setattr(session_module.OptimizationSession, "make_plan", watched)
    found = program.optimize_file(f"{problem_in(tmp_path, REWRITTEN)}:work")
    assert found.verdict.accepted, found.verdict.reason
    assert (found.engine, found.rewrites) == (OWN_KERNELS, ())
    assert len(disabled) == 2
    assert disabled[1] > disabled[0]
    assert found.notes == ("kernels is not used: inaccurate, far off",)


def wait_forever(*_, **__):
    while True:
        pass


def test_the_bandwidth_of_the_memory_is_measured_in_its_share_of_the_time(tmp_path, swift):
    swift.setattr(program, "refresh_memory", wait_forever)
    found = program.optimize_file(function_in(tmp_path), budget_s=10.0)
    assert found.verdict.accepted, found.verdict.reason
    assert found.machine == machine_from_spec("h200")


def test_a_diagnosis_that_takes_too_long_is_left_out(tmp_path, swift):
    swift.setattr(program, "why_with_work", wait_forever)
    found = program.optimize_file(function_in(tmp_path), budget_s=5.0)
    assert found.verdict.accepted, found.verdict.reason
    assert found.notes[0] == "there is no diagnosis: there was not enough time"


def test_a_program_that_does_not_end_is_one_clear_error(tmp_path, swift):
    text = FUNCTION.format(name="work").replace(
        "    return torch", "    while True:\n        x = x + 1\n    return torch", 1
    )
    with pytest.raises(ProblemError, match="one call of the program takes longer than the budget of 2 s"):
        program.optimize_file(f"{problem_in(tmp_path, text)}:work", budget_s=2.0)
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["problem.py"]
