"""Programs of many kinds, one in each file of `kinds/`: `kw optimize` ends in a proved file or one clear sentence."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiers import fast_where

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import quick, replace_slow_steps

import kernelwright.compiler.pipeline as program
from kernelwright.compiler import staged_file
from kernelwright.core.errors import ProblemError
from kernelwright.core.optimization import OWN_KERNELS, TORCH

FOLDER = Path(__file__).parent / "kinds"
HELPERS = {"neighbour"}
KINDS = sorted({path.stem for path in FOLDER.glob("*.py")} - HELPERS)
LEFT_TO_TORCH = {
    "empty_tensors": "",
    "try_except": "the program is not captured, so that no region becomes a kernel: torch.export cannot capture it",
}
"""Kinds that torch runs, with the beginning of the note that says why."""
ONE_GRAPH, CONSTANT = (
    "the program is captured as 1 graph of torch.compile, not as a whole: ",
    "it captures a constant tensor",
)
IN_GRAPHS = {
    "attribute_changed": ONE_GRAPH + CONSTANT,
    "boolean_mask": ONE_GRAPH,
    "branch_on_values": "the program is captured as 2 graphs of torch.compile, not as a whole: data-dependent",
    "call_overridden": ONE_GRAPH + "the module has a __call__ of its own around its forward",
    "closure_over_module": ONE_GRAPH + CONSTANT,
    "default_tuple": ONE_GRAPH + "torch.export cannot capture it: Unsupported input type <class 'torch.dtype'>",
    "gradients_inside": "graph 2 stays with torch: it computes gradients",
    "nonzero": ONE_GRAPH,
    "numpy_inside": ONE_GRAPH + "torch.export cannot capture it",
}
"""Kinds whose graphs between breaks have kernels, with the beginning of the note that says what breaks them."""
ERRORS = {
    "loop_until_converged": "the original program is not verified within the budget of 6 s",
    "nested_tensor": "input 0 is a nested tensor",
    "plain_callable": "Model is not an nn.Module",
    "raises": "the program raised RuntimeError: mat1 and mat2 shapes cannot be multiplied (9x16 and 3x3)",
    "sparse_input": "input 0 is a tensor of layout sparse_coo",
    "sparse_matmul": "buffer adjacency is a tensor of layout sparse_coo",
    "tensor_subclass": "input 0 is a Named, a subclass of torch.Tensor",
}
UNEQUAL = {"result_of_counter": "the original program differs from itself"}
"""Kinds that eager torch itself does not repeat."""
PYTHON_ERROR = re.compile(r"\b(\w*Error|StopIteration|Exception|\w*SymNode)\b: ")
FAST = [
    "closure_over_module", "dataclass_output", "default_tuple", "lazy_modules", "linear_algebra", "nested_tensor",
    "nonzero", "result_of_counter",
]  # fmt: skip
STAND_ALONE = ["named_tuple_output", "dataclass_output", "lazy_modules", "linear_algebra", "variadic"]
ALONE = """
import sys, torch
torch.set_num_threads(1)
sys.path.insert(0, {folder!r})
from dataclasses import is_dataclass
import {name}_optimized as made
original, new = made.Model() if hasattr(made, "Model") else made.{name}, made.ModelNew()
for _ in range(2):
    inputs = made.get_inputs()
    args, kwargs = inputs if isinstance(inputs, tuple) else (inputs, {{}})
    if isinstance(original, torch.nn.Module):
        original(*args, **kwargs)  # lazy modules have weights then
        new.load_state_dict(original.state_dict())
    with torch.no_grad():
        wanted, got = original(*args, **kwargs), new(*args, **kwargs)
    torch.testing.assert_close(*(vars(one) if is_dataclass(one) else one for one in (got, wanted)))
assert not any(module.startswith("kernelwright") for module in sys.modules)
"""


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with quick():
        yield


@pytest.fixture
def swift(monkeypatch, fork_server):
    replace_slow_steps(monkeypatch, program, fork_server)
    return monkeypatch


def optimize(kind, folder, budget_s=60.0):
    return program.optimize_file(str(FOLDER / f"{kind}.py"), str(folder / f"{kind}_optimized.py"), budget_s=budget_s)


def fast(kinds):
    return fast_where([at for at, kind in enumerate(kinds) if kind in FAST], kinds)


@pytest.mark.filterwarnings("ignore")  # of the programs
@pytest.mark.parametrize("kind", fast([kind for kind in KINDS if kind not in ERRORS and kind not in UNEQUAL]))
def test_a_program_of_every_kind_becomes_a_proved_file(kind, tmp_path, swift):
    """Those in `STAND_ALONE` also run without the package."""
    found = optimize(kind, tmp_path)
    assert found.verdict.accepted, found.verdict.reason
    assert Path(found.output_file).read_text() == found.source
    expected = LEFT_TO_TORCH.get(kind)
    assert found.engine == (OWN_KERNELS if expected is None else TORCH), found.notes
    assert not any(PYTHON_ERROR.search(note) for note in found.notes), found.notes
    if expected := expected or IN_GRAPHS.get(kind):
        assert found.notes[0].startswith(expected)
    if kind in STAND_ALONE:
        run_alone(kind, tmp_path)


def run_alone(kind, folder):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = ALONE.format(folder=str(folder), name=kind)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", fast(list(ERRORS)))
def test_what_is_not_supported_is_one_clear_sentence(kind, tmp_path, swift):
    swift.setattr(staged_file, "ORIGINAL_TIMES", 1)
    with pytest.raises(ProblemError) as caught:
        optimize(kind, tmp_path, budget_s=6.0)
    assert caught.value.message == ERRORS[kind]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", fast(list(UNEQUAL)))
def test_a_program_that_differs_from_itself_is_said_to(kind, tmp_path, swift):
    found = optimize(kind, tmp_path)
    assert not found.verdict.accepted
    assert found.output_file == str(tmp_path / f"{kind}_optimized_rejected.py")
    assert found.notes[-1].startswith(UNEQUAL[kind])


def test_every_exception_is_a_kind():
    assert {*LEFT_TO_TORCH, *IN_GRAPHS, *ERRORS, *UNEQUAL, *FAST} <= set(KINDS)
    assert len(KINDS) >= 50
    assert torch.get_num_threads() == 1
