"""The file that `kw optimize` leaves: it stands alone, is right wherever it is used, and is whole or not there."""

import os
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from tiers import fast_first
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import FirstChoice, module_of, quick, run, text_of

import kernelwright.compiler.pipeline as program
from kernelwright.compiler import tuning
from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.kernel_source import RegionKernel
from kernelwright.compiler.reference import build_reference
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.trial_store import TrialStore
from kernelwright.compiler.tuning import Tuner
from kernelwright.core.bench import Bench
from kernelwright.core.diagnosis import Floor
from kernelwright.core.errors import KernelwrightError, ProblemError, UsageError
from kernelwright.core.optimization import TORCH, TORCH_COMPILE, Attempt
from kernelwright.core.timing import Conditions, Timing
from kernelwright.core.verdict import Reason, Verdict
from kernelwright.machines import machine_from_spec
from kernelwright.measure.paired import InterleavedTimings
from kernelwright.problems import Problem


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
    assert "no kernel was faster" in made.ModelNew.__doc__
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


def test_a_large_tensor_from_outside_is_refused(tmp_path):
    path = problem_in(tmp_path, CONSTANT.format(size=400))
    with pytest.raises(KernelwrightError, match="400 elements"):
        text_of(f"{path}:work")


# ---- the whole way, with its slow steps replaced


@pytest.fixture
def swift(monkeypatch):
    """`optimize_file` without diagnosis, tuning, judge and stopwatch."""
    diagnosis = SimpleNamespace(machine=machine_from_spec("h200"))
    monkeypatch.setattr(program, "why", lambda *_, **__: diagnosis)
    monkeypatch.setattr(program, "machine_here", lambda device: machine_from_spec("h200"))
    monkeypatch.setattr(program, "Tuner", lambda *_: FirstChoice())
    return monkeypatch


def untimed(target: str, *_: str, verdicts: tuple[Verdict, ...] = (), **known: Any) -> Bench:
    return Bench(problem=target, machine=known["machine"], variants=(), comparisons=(), verdicts=verdicts)


def test_what_is_caught_while_it_is_timed_is_rejected(tmp_path, swift):
    reason = Reason(code="inaccurate", detail="in a timed call: far off")
    caught = Verdict(accepted=False, reason=reason, problem="p", candidate="c", device="cpu", input_sets=0, golden="")
    swift.setattr(program, "bench", partial(untimed, verdicts=(caught,)))
    path = problem_in(tmp_path, FUNCTION.format(name="work"))
    found = program.optimize_file(f"{path}:work")
    assert (found.verdict.accepted, found.verdict.reason, found.bench) == (False, reason, None)
    assert found.output_file == found.verdict.candidate == str(tmp_path / "work_optimized_rejected.py")
    assert Path(found.output_file).read_text() == found.source
    assert not (tmp_path / "work_optimized.py").exists()


def test_the_file_lands_beside_the_problem_and_is_accepted(tmp_path, swift):
    swift.setattr(program, "bench", untimed)
    path = problem_in(tmp_path, MODEL)
    found = program.optimize_file(str(path))
    assert found.verdict
    assert found.verdict.accepted, found.verdict.reason
    assert found.output_file == str(tmp_path / "problem_optimized.py")
    assert (tmp_path / "problem_optimized.py").read_text() == found.source
    assert [file.name for file in sorted(tmp_path.iterdir()) if file.is_file()] == [path.name, "problem_optimized.py"]


# Without a mean: torch.compile leaves something of one that is subtracted from rows of equal numbers.
@pytest.mark.parametrize("text", fast_first(1, [NO_MEAN, FUNCTION.format(name="work")]), ids=["module", "function"])
@pytest.mark.parametrize("way", fast_first(1, ["torch", "torch.compile"]))
def test_torch_runs_the_whole_program_where_that_is_faster(tmp_path, swift, text, way):
    swift.setattr(program, "bench", untimed)
    swift.setattr(program, "Tuner", lambda *_: FirstChoice(better=(way, "1.30x faster than the next, kernels")))
    path = problem_in(tmp_path, text)
    target = str(path) if text == NO_MEAN else f"{path}:work"
    found = program.optimize_file(target)
    assert found.verdict.accepted, found.verdict.reason
    assert (found.whole_program_winner, found.source) == (way, Path(found.output_file).read_text())
    assert found.notes == (f"the file runs the whole program with {way}: 1.30x faster than the next, kernels",)
    assert "KERNELS" not in found.source
    assert ("torch.compile(" in found.source) is (way == "torch.compile")


@pytest.mark.slow
def test_kernels_that_are_right_stay_where_the_faster_whole_is_not(tmp_path, swift):
    wrong = (
        "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, *args):\n        return args[0] * 0\n"
    )
    swift.setattr(program, "bench", untimed)
    swift.setattr(program, "Tuner", lambda *_: FirstChoice(better=("torch.compile", "1.30x faster")))
    swift.setattr(program, "emit_torch_file", lambda *_: wrong)
    path = problem_in(tmp_path, FUNCTION.format(name="work"))
    found = program.optimize_file(f"{path}:work")
    assert found.verdict.accepted, found.verdict.reason
    assert (found.whole_program_winner, found.notes) == ("", ())
    assert "KERNELS" in found.source == Path(found.output_file).read_text()


@pytest.mark.parametrize(
    ("compiled_us", "eager_us", "best"),
    [(97.0, 99.0, None), (95.0, 99.0, "torch.compile"), (97.0, 97.0, "torch"), (50.0, 49.0, "torch")],
)
def test_torchs_own_ways_have_to_be_faster_than_kernels_to_take_their_place(monkeypatch, compiled_us, eager_us, best):
    assert best_whole(monkeypatch, [RegionKernel(None, "ours")], compiled_us, eager_us) == best


@pytest.mark.parametrize(
    ("compiled_us", "eager_us", "best"),
    [(97.0, 99.0, "torch.compile"), (101.0, 103.0, None), (101.0, 98.0, "torch"), (97.0, 96.0, "torch")],
)
def test_where_torch_compile_made_the_kernels_the_fastest_way_is_taken(monkeypatch, compiled_us, eager_us, best):
    made_by_compile = RegionKernel(None, None, "def region_0_plain(): ...")
    assert best_whole(monkeypatch, [made_by_compile], compiled_us, eager_us) == best


@pytest.mark.parametrize(
    ("clock", "call_us", "best"),
    [("graph", 40.0, None), ("graph", 10.0, "torch.compile"), ("events", 40.0, "torch.compile")],
)
def test_torch_compile_is_not_taken_for_what_only_a_graph_makes_of_it(monkeypatch, clock, call_us, best):
    calls_us = iter([12.0, 22.0, call_us])
    monkeypatch.setattr(Tuner, "_quick_time_us", lambda *_: next(calls_us))
    assert best_whole(monkeypatch, [RegionKernel(None, "ours")], 2.0, 4.0, kernels_us=3.0, clock=clock) == best


def best_whole(monkeypatch, kernels, compiled_us, eager_us, kernels_us=100.0, clock="events"):
    times = {"kernels": kernels_us, "torch.compile": compiled_us, "torch": eager_us}
    rounds = InterleavedTimings({name: timing(time, clock) for name, time in times.items()}, ())
    monkeypatch.setattr(tuning, "time_variants", lambda variants, *_, **__: rounds)
    problem = Problem.from_callable(torch.relu, torch.ones(3))
    found = Tuner(FirstChoice.backend, "cpu", machine_from_spec("h200")).choose_whole_program(
        problem, torch.relu, kernels
    )
    return found[0] if found else None


def timing(time_us, clock="events", samples_us=()):
    return Timing(
        name="a variant",
        time_us=time_us,
        low_us=time_us,
        high_us=time_us,
        samples_us=samples_us,
        repetitions=1,
        conditions=Conditions(device="cuda", clock=clock, cache="cold", allocation="", threads=1),
    )


def test_without_kernels_only_torch_compile_can_take_the_place_of_the_program_as_it_was(monkeypatch):
    timed = []

    def fake_time_variants(variants, *_, **__):
        timed.append(set(variants))
        return InterleavedTimings({name: timing(len(name)) for name in variants}, ())

    monkeypatch.setattr(tuning, "time_variants", fake_time_variants)
    problem = Problem.from_callable(torch.relu, torch.ones(3))
    for compiles in (True, False):
        tuner = Tuner(FirstChoice.backend, "cpu", machine_from_spec("h200"), use_torch_compile=compiles)
        assert tuner.choose_whole_program(problem, torch.relu, []) is None
    assert timed == [{"torch", "torch.compile"}]


@pytest.mark.parametrize(
    "step",
    fast_first(3, ["capture_with_training_mode", "write_atomic", "verify", "tune_regions", "assemble", "plan_regions"]),
)
@pytest.mark.parametrize("fault", fast_first(1, [KeyboardInterrupt, MemoryError]), ids=lambda fault: fault.__name__)
def test_an_interrupted_run_leaves_no_file(tmp_path, swift, step, fault):
    def interrupted(*_, **__):
        raise fault

    path = problem_in(tmp_path, FUNCTION.format(name="work"))
    swift.setattr(program, step, interrupted)
    with pytest.raises(fault):
        program.optimize_file(f"{path}:work")
    assert [file for file in tmp_path.iterdir() if file.is_file()] == [path]


@pytest.mark.parametrize("step", ["assemble", "verify"])
def test_the_file_before_survives_an_interruption(tmp_path, swift, step):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    path = problem_in(tmp_path, FUNCTION.format(name="work"))
    out = problem_in(tmp_path, "before = True\n", "out.py")
    swift.setattr(program, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        program.optimize_file(f"{path}:work", str(out))
    assert out.read_text() == "before = True\n"


def test_a_file_that_is_not_right_takes_nobodys_place(tmp_path, swift):
    path = problem_in(tmp_path, FUNCTION.format(name="work"))
    out = problem_in(tmp_path, "before = True\n", "out.py")
    assemble = program.assemble
    swift.setattr(program, "assemble", lambda *given: assemble(*given).replace(" = region_0(", " = -region_0("))
    found = program.optimize_file(f"{path}:work", str(out))
    assert not found.verdict.accepted
    assert found.output_file == found.verdict.candidate == str(tmp_path / "out_rejected.py")
    assert Path(found.output_file).read_text() == found.source
    assert out.read_text() == "before = True\n"


@pytest.mark.slow
def test_a_program_may_warn_of_what_it_likes(tmp_path, swift):
    swift.setattr(program, "bench", untimed)
    text = FUNCTION.format(name="work") + '\nimport warnings\nwarnings.warn("of old age", RuntimeWarning)\n'
    with pytest.warns(RuntimeWarning, match="of old age"):
        found = program.optimize_file(f"{problem_in(tmp_path, text)}:work")
    assert found.verdict.accepted


@pytest.mark.parametrize("out", [".", "missing/out.py"])
def test_a_place_where_no_file_can_be_is_known_at_once(tmp_path, monkeypatch, out):
    path = problem_in(tmp_path, FUNCTION.format(name="work"))
    monkeypatch.setattr(program, "why", None)
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
    for step in ("Tuner", "verify", "bench", "why", "write_atomic"):
        swift.setattr(program, step, lambda *_, **__: pytest.fail("a plan is only a plan"))
    found = program.optimize_file(str(problem_in(tmp_path, MODEL)), plan_only=True)
    assert found.verdict is None
    assert len(found.regions) == 2
    assert "aten.linear.default" in {left.operator for left in found.fallbacks}


def test_what_cannot_be_captured_leaves_no_file(tmp_path, swift):
    text = FUNCTION.format(name="work").replace(
        "    return torch", "    if x.sum() > 0:\n        x = -x\n    return torch"
    )
    path = problem_in(tmp_path, text)
    with pytest.raises(ProblemError, match="data-dependent control flow"):
        program.optimize_file(f"{path}:work")
    assert [file for file in tmp_path.iterdir() if file.is_file()] == [path]


# ---- what was tried is kept


class Counted:
    """A generator that counts what it loads."""

    def __init__(self, generator):
        self.generator, self.loaded = generator, 0

    def __getattr__(self, name):
        return getattr(self.generator, name)

    def load(self, text):
        self.loaded += 1
        return self.generator.load(text)


@pytest.fixture
def region(tmp_path, monkeypatch):
    """With a cache of its own: the run's is shared by all workers, and another's trial would be found in it."""
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    x = torch.randn(64, 40)
    with torch.no_grad():
        captured = capture(lambda x: torch.softmax(x * 2, -1), (x,), {})
    ((found, nodes),), _ = plan_regions(captured.graph)
    return found, build_reference(captured, program.PlannedRegion(found, tuple(nodes))), [x]


def tuned(region, monkeypatch):
    glances = []
    tuner = Tuner(FirstChoice.backend, "cpu", machine_from_spec("h200"), use_torch_compile=False, budget_s=0.05)
    monkeypatch.setattr(Tuner, "_quick_time_us", lambda self, call, given: glances.append(call) or 10.0 + len(glances))
    with torch.no_grad():
        return tuner.tune(*region), len(glances)


def test_a_second_run_times_no_choice_again(region, monkeypatch):
    first, glances = tuned(region, monkeypatch)
    choices = len(FirstChoice.backend.generate_configs(region[0]))
    assert glances == choices + 1, "every choice, and torch's own"
    second, glances = tuned(region, monkeypatch)
    assert glances == 1, "torch's own"
    assert [one.name for one in first.outcome.attempts] == [one.name for one in second.outcome.attempts]


def test_a_corrupted_trial_is_made_again(region, monkeypatch):
    tuned(region, monkeypatch)
    folder = TrialStore(region[0], machine_from_spec("h200"))._path("").parent
    for file, text in zip(sorted(folder.iterdir()), ["", "{", '{"name": 3}', "[]", "\0"] * 20, strict=False):
        file.write_text(text)
    _, glances = tuned(region, monkeypatch)
    assert glances > 1
    assert tuned(region, monkeypatch)[1] == 1


def test_trials_of_another_machine_are_not_believed(region, monkeypatch):
    tuned(region, monkeypatch)
    kept = TrialStore(region[0], machine_from_spec("h200"))._path("source")
    assert kept != TrialStore(region[0], machine_from_spec("b200"))._path("source")


class Broken(Counted):
    """Fails when a kernel is loaded, or when it is called for the first time."""

    def __init__(self, generator, loads):
        super().__init__(generator)
        self.loads = loads

    def load(self, text):
        module = self.generator.load(text) if self.loads else self.refuse()
        vars(module)["region_0"] = self.refuse
        return module

    def refuse(self, *_):
        raise RuntimeError("out of memory")


@pytest.mark.parametrize("loads", [False, True])
def test_a_choice_that_fails_is_an_attempt_and_no_end(region, monkeypatch, loads):
    monkeypatch.setattr(Tuner, "_quick_time_us", lambda self, call, given: len(str(call(*given))) and 10.0)
    tuner = Tuner(
        Broken(FirstChoice.backend, loads), "cpu", machine_from_spec("h200"), use_torch_compile=False, budget_s=0.05
    )
    with torch.no_grad():
        found = tuner.tune(*region)
    assert found.kernel is None
    assert found.outcome.winner == "torch"
    failed = [one for one in found.outcome.attempts if one.name != "torch"]
    assert failed and all("out of memory" in one.reason for one in failed)


AT_FLOOR = Floor(time_us=20.0, limiter="DRAM", memory_us=20.0, compute_us=0.0, provenance="datasheet")
"""Above what `tuned` sees of torch."""


def fixed(monkeypatch, choices_us, clock="events"):
    """Every choice takes a time of its own, torch.compile the last, and torch 100 us, give or take a thousandth."""

    def fake_time_variants(variants, *_, **__):
        own = [name for name in variants if name != TORCH]
        middle = {**dict(zip(own, choices_us, strict=False)), TORCH: 100.0}
        around = {name: [middle[name] * (1 + (at * 7 % 15 - 7) / 1e4) for at in range(15)] for name in variants}
        timings = {name: timing(middle[name], clock, tuple(around[name])) for name in variants}
        return InterleavedTimings(timings, (True,) * 15)

    monkeypatch.setattr(tuning, "time_variants", fake_time_variants)


@pytest.mark.parametrize(
    ("choices_us", "own"), [((99.0, 200.0, 200.0), True), ((99.7, 99.8, 99.9), False), ((100.0, 101.0, 99.6), False)]
)
def test_a_kernel_has_to_be_surely_faster_than_torch_by_half_a_percent(region, monkeypatch, choices_us, own):
    fixed(monkeypatch, choices_us)
    found = tuned(region, monkeypatch)[0]
    assert (found.outcome.winner != TORCH) == own
    assert found.outcome.after_us == (99.0 if own else 100.0)


@pytest.mark.parametrize(("clock", "wins"), [("graph", False), ("events", True)])
def test_what_a_graph_hides_of_torch_compile_is_said_beside_its_time(region, monkeypatch, clock, wins):
    finalists = len(FirstChoice.backend.generate_configs(region[0])[: tuning.NUM_FINALISTS])
    fixed(monkeypatch, (90.0,) * finalists + (80.0,), clock)
    compiled = object()
    monkeypatch.setattr(torch, "compile", lambda *_, **__: compiled)
    monkeypatch.setattr(Tuner, "_quick_time_us", lambda self, call, *_: 44.0 if call is compiled else 12.0)
    found = Tuner(FirstChoice.backend, "cpu", machine_from_spec("h200")).tune(*region).outcome
    *_, last = found.attempts
    assert (found.winner == TORCH_COMPILE) == wins
    assert (last.name, last.time_us, "44 us" in last.reason) == (TORCH_COMPILE, 80.0, not wins)
    assert wins or TORCH_COMPILE not in found.winner_reason


def on_a_gpu(monkeypatch, call_us, alone_us):
    """A tuner whose kernels all take the host as long as `call_us`, and the device what `alone_us` says, in turn."""
    alone, timed = cycle(alone_us), []
    monkeypatch.setattr(Tuner, "_quick_time_us", lambda self, call, given: call_us)
    monkeypatch.setattr(tuning, "measure_in_graph_us", lambda call: next(alone))
    fixed(monkeypatch, (20.0, 20.0, 20.0))
    fake_time_variants = tuning.time_variants
    monkeypatch.setattr(
        tuning,
        "time_variants",
        lambda variants, *_, **__: timed.append([*variants][:-1]) or fake_time_variants(variants),
    )
    return Tuner(FirstChoice.backend, "cuda", machine_from_spec("h200"), use_torch_compile=False, budget_s=0.05), timed


@pytest.mark.parametrize("call_us", [9.0, 40.0])
@pytest.mark.parametrize(("alone_us", "count"), [((4.0, 3.0), 1), ((None,), 2), ((4.0, None), 2)])
def test_of_kernels_that_a_call_hides_the_devices_time_decides(region, monkeypatch, call_us, alone_us, count):
    tuner, timed = on_a_gpu(monkeypatch, call_us, alone_us)
    with torch.no_grad():
        found = tuner.tune(*region).outcome
    assert len(timed[0]) == count
    assert [one.device_time_us for one in found.attempts[:2]] == [*alone_us, None][:2]
    if count == 1:
        assert timed[0] == [found.attempts[1].name] == [found.winner]


def test_where_the_shortest_kernel_is_wrong_the_next_takes_its_place(region, monkeypatch):
    tuner, timed = on_a_gpu(monkeypatch, 9.0, (4.0, 3.0))
    answers = iter([SimpleNamespace(detail="off by 3"), None])
    monkeypatch.setattr(tuning, "find_mismatch", lambda *_: next(answers))
    with torch.no_grad():
        found = tuner.tune(*region).outcome
    first, second = found.attempts[:2]
    assert (second.accepted, second.reason, first.accepted) == (False, "off by 3", True)
    assert timed[0] == [first.name] == [found.winner]


def test_trials_without_the_devices_time_are_made_again(region, monkeypatch):
    with torch.no_grad():
        on_a_gpu(monkeypatch, 9.0, (None,))[0].tune(*region)
        second = on_a_gpu(monkeypatch, 9.0, (4.0, 3.0))[0]
        assert [one.device_time_us for one in second.tune(*region).outcome.attempts[:2]] == [4.0, 3.0]
        third = on_a_gpu(monkeypatch, 9.0, (1.0,))[0]
        assert [one.device_time_us for one in third.tune(*region).outcome.attempts[:2]] == [4.0, 3.0]
    assert third.notes()


def test_a_row_in_parts_costs_the_host_a_launch_more():
    tuner = Tuner(FirstChoice.backend, "cuda", machine_from_spec("h200"))
    whole, parts = (Attempt(name="a", config={"num_splits": count}, time_us=4.0) for count in (1, 8))
    assert tuner._cost_us(whole) == 4.0 < tuner._cost_us(parts)
    assert Tuner(FirstChoice.backend, "cpu", machine_from_spec("h200"))._cost_us(parts) == 4.0


def test_a_gain_that_is_not_sure_is_none(region, monkeypatch):
    fixed(monkeypatch, (98.0, 98.5, 98.7))
    monkeypatch.setattr(InterleavedTimings, "compare", lambda *_: SimpleNamespace(low=0.99, ratio=1.02))
    assert tuned(region, monkeypatch)[0].outcome.winner == TORCH


def test_what_runs_at_the_speed_of_a_copy_is_tried_where_the_datasheet_leaves_room(region, monkeypatch):
    monkeypatch.setattr(tuning, "floor", lambda *_, **__: AT_FLOOR)
    assert len(tuned(region, monkeypatch)[0].outcome.attempts) > 1
    monkeypatch.setattr(Tuner, "_quick_time_us", lambda self, call, given: 10.0)
    bare = msgspec.structs.replace(machine_from_spec("h200"), spec=None)
    tuner = Tuner(FirstChoice.backend, "cpu", bare, use_torch_compile=False, budget_s=0.05)
    with torch.no_grad():
        found = tuner.tune(*region)
    assert (found.kernel, found.outcome.attempts) == (None, ())
    assert "x its lower bound" in found.outcome.winner_reason
