"""Programs with graph breaks: the graphs between them run as kernels, and everything else as it is written."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiers import fast_where
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from broken_programs import OTHERS, PROGRAMS, X
from first_choice import FirstChoice, KernelsFirst, kernels_called, module_of, quick, replace_slow_steps, run

import kernelwright.compiler.pipeline as pipeline
from kernelwright.compiler.assembly.output_file import assemble_file
from kernelwright.compiler.budget import Budget
from kernelwright.compiler.in_memory import optimize_problem
from kernelwright.compiler.session import OptimizationSession
from kernelwright.core.optimization import OWN_KERNELS
from kernelwright.problems import Problem, load_problem

JUDGED = fast_where([list(PROGRAMS).index("branch")], list(PROGRAMS))
pytestmark = pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with quick():
        yield
    torch._dynamo.reset()


def session_of(target):
    session = OptimizationSession(load_problem(target), FirstChoice(), Budget(math.inf))
    session.make_plan()
    session.tune_regions()
    return session


def file_of(name, folder):
    """The file of a broken program as a module."""
    session = session_of(PROGRAMS[name].write(folder))
    return module_of(assemble_file(session.problem, [session.kernel_layer()], "A test."))


def pair_of(made, name):
    """The original program and the new one, with the same state."""
    if PROGRAMS[name].name:
        return made.work, made.ModelNew()
    old, new = made.Model(), made.ModelNew()
    new.load_state_dict(old.state_dict())
    return old, new


@pytest.mark.parametrize("name", JUDGED)
def test_the_file_of_a_broken_program_is_proved(name, tmp_path, monkeypatch, fork_server):
    replace_slow_steps(monkeypatch, pipeline, fork_server)
    found = pipeline.optimize_file(PROGRAMS[name].write(tmp_path), str(tmp_path / "made.py"))
    assert found.verdict.accepted, found.verdict.reason
    assert found.engine == OWN_KERNELS, found.notes
    (note,) = found.notes
    count = PROGRAMS[name].num_graphs
    assert note.startswith(
        f"the program is captured as {count} graph{'s' * (count > 1)} of torch.compile, not as a whole"
    )
    assert PROGRAMS[name].cause in note
    assert all(region.winner == "first" for region in found.regions)
    assert "import kernelwright" not in found.source
    assert "from kernelwright" not in found.source


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_run_and_results_are_those_of_the_program_on_every_path(name, tmp_path):
    old, new = pair_of(file_of(name, tmp_path), name)
    with torch.no_grad():
        assert run(new, X)[1], "no kernel ran"
        old(X)
        for other in OTHERS:
            if other.dtype == torch.float32 or PROGRAMS[name].name:
                torch.testing.assert_close(new(other), old(other))


def test_what_is_differentiated_runs_as_it_was(tmp_path):
    old, new = pair_of(file_of("branch", tmp_path), "branch")
    x = X.clone().requires_grad_()
    got, used = run(new, x)
    assert not used
    (gradient,) = torch.autograd.grad(got.sum(), x)
    torch.testing.assert_close(gradient, *torch.autograd.grad(old(x).sum(), x))
    assert run(new, X)[1], "no gradient is required"


def autocast(f):
    with torch.autocast("cpu", torch.bfloat16):
        return f(X)


FOLLOWED = {
    "jit.trace": lambda f: torch.jit.trace(lambda x: f(x) + 0, (X,), check_trace=False)(X),
    "torch.compile": lambda f: torch.compile(lambda x: f(x), backend="eager")(X),
    "autocast": autocast,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", FOLLOWED)
def test_what_follows_every_operator_sees_the_program_as_it_was(how, tmp_path):
    made = file_of("branch", tmp_path)
    new = made.ModelNew()
    with torch.no_grad():
        new(X)
        with kernels_called(new) as called:
            got = FOLLOWED[how](new)
        torch.testing.assert_close(got, FOLLOWED[how](made.work))
    assert not called


def test_more_paths_than_dynamo_compiles_run_as_they_are(tmp_path):
    old, new = pair_of(file_of("item", tmp_path), "item")
    with torch.no_grad(), torch._dynamo.config.patch(recompile_limit=2):
        for number in range(12):
            x = torch.randn(9, 16, generator=torch.Generator().manual_seed(number))
            torch.testing.assert_close(new(x), old(x))


def test_a_graph_that_changes_a_buffer_writes_it_back(tmp_path):
    old, new = pair_of(file_of("counter", tmp_path), "counter")
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(new(X), old(X))
    assert new.calls[0] == 3


def test_tensors_that_share_memory_are_not_written_by_kernels(tmp_path):
    text = """
def work(x, y):
    if x.sum() > 1e9:
        x = x + 1
    y.mul_(2)
    return torch.relu(x) + y
"""
    path = tmp_path / "problem.py"
    path.write_text("import torch\n" + text + "\n\ndef get_inputs():\n    return [torch.randn(64), torch.randn(64)]\n")
    session = session_of(f"{path}:work")
    made = module_of(assemble_file(session.problem, [session.kernel_layer()], "A test."))
    new, both = made.ModelNew(), torch.randn(128)
    with torch.no_grad():
        assert run(new, torch.randn(64), torch.randn(64))[1]
        for start in (0, 32, 64):
            given, wanted = both.clone(), both.clone()
            expected = made.work(wanted[:64], wanted[start : start + 64])
            torch.testing.assert_close(new(given[:64], given[start : start + 64]), expected)
            torch.testing.assert_close(given, wanted)


def test_a_graph_that_is_repeated_is_tuned_once(tmp_path):
    session = session_of(PROGRAMS["blocks"].write(tmp_path))
    (graph,) = session.graphs
    assert len(session.tuned) == len(graph.plan.regions) == 2
    made = module_of(assemble_file(session.problem, [session.kernel_layer()], "A test."))
    with torch.no_grad():
        new = made.ModelNew()
        new(X)
        with kernels_called(new) as called:
            new(X)
    assert len(called) == 6


def test_equal_regions_of_two_graphs_are_tuned_once(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(
        "import torch\n\n\ndef work(x):\n    x = torch.tanh(x * 2 + 1)\n    if x.sort()[0][0, 0].item() > 2:\n"
        "        return x\n    return torch.tanh(x * 2 + 1)\n\n\n"
        "def get_inputs():\n    return [torch.randn(9, 16)]\n"
    )
    session = session_of(f"{path}:work")
    assert len(session.graphs) == 2
    assert session.graphs[1].plan.same_as
    assert max(outcome.num_occurrences for outcome in session.outcomes()) == 2
    made = module_of(assemble_file(session.problem, [session.kernel_layer()], "A test."))
    with torch.no_grad():
        torch.testing.assert_close(made.ModelNew()(X), made.work(X))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, x):
        y = torch.relu(x * self.scale) + 1
        return y * 2 if y.sum() > 0 else torch.tanh(y)


def test_a_model_in_memory_has_kernels_between_its_breaks():
    model = Scaled().requires_grad_(False)
    with torch.no_grad():
        made = optimize_problem(Problem.from_callable(model, X), FirstChoice(), 1, KernelsFirst)
    record = made.optimization
    assert record.verdict.accepted, record.verdict.reason
    assert record.engine == OWN_KERNELS
    model.scale.fill_(3.0)
    for x in (X, -X):
        got, used = run(made, x)
        assert used
        torch.testing.assert_close(got, model(x))


ALONE = """
import importlib.abc, sys, torch
class Nowhere(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "kernelwright":
            raise ImportError(name)
sys.meta_path.insert(0, Nowhere())
torch.set_num_threads(1)
import made
new, called = made.ModelNew(), []
for name, function in list(made.GRAPHS.items()):
    made.GRAPHS[name] = lambda *given, function=function: called.append(function) or function(*given)
with torch.no_grad():
    for x in (torch.ones(9, 16), -torch.ones(9, 16)):
        torch.testing.assert_close(new(x), made.work(x))
assert called and made.KERNELS
"""


def test_a_file_stands_alone(tmp_path):
    session = session_of(PROGRAMS["custom_op"].write(tmp_path))
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "made.py").write_text(assemble_file(session.problem, [session.kernel_layer()], "A test."))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ALONE],
        cwd=tmp_path / "alone",
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
