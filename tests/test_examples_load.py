"""Every example loads, every honest candidate is right on shapes of its own choosing, every wrong one is wrong."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelwright.problems import Problem, load_candidate, load_problem
from kernelwright.problems.problem import tensor_leaves

EXAMPLES = Path(__file__).parents[1] / "examples"
PROBLEMS = (
    "add_scale_bias_relu", "matmul", "tiny_chain", "decoder_block", "cross_entropy", "matvec", "cumsum", "softmax",
)  # fmt: skip
# Odd sizes; the problems' own are for the clock. Where none stands here, the parameters fix the shape.
SMALL = {
    "add_scale_bias_relu": lambda: [torch.randn(1003), torch.randn(1003), torch.rand(1), torch.randn(1)],
    "matmul": lambda: [torch.randn(96, 256), torch.randn(256, 64)],
    "tiny_chain": lambda: [torch.randn(301)],
    "cross_entropy": lambda: [3 * torch.randn(5, 4999), torch.randint(0, 4999, (5,))],
    "cumsum": lambda: [torch.randn(1111, 33)],
    "decoder_block": lambda: [torch.randn(1, 64, 1024), torch.randn(64, 32), torch.randn(64, 32)],
    "softmax": lambda: [10 * torch.randn(7, 1001)],
}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELWRIGHT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@functools.cache
def problem(name: str) -> Problem:
    return load_problem(str(EXAMPLES / f"{name}.py"))


def inputs(name: str, seed: int) -> list:
    if name not in SMALL:
        return problem(name).inputs("cpu", seed)[0]
    torch.manual_seed(seed)
    return SMALL[name]()


def distance(candidate: Path, seeds: tuple[int, ...] = (1,)) -> float:
    """The largest difference from the reference, in units of the reference's rms, over all outputs and seeds."""
    name = next(one for one in PROBLEMS if candidate.stem.startswith(one))
    loaded, worst = load_candidate(str(candidate), problem(name)), 0.0
    for seed in seeds:
        args = inputs(name, seed)
        with torch.no_grad():
            right, got = tensor_leaves(problem(name).program(*args)), tensor_leaves(loaded.program(*args))
        for a, b in zip(right, got, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            worst = max(worst, ((a - b).abs().max() / a.square().mean().sqrt()).item())
    return worst


@pytest.mark.parametrize("name", PROBLEMS)
def test_problem_loads_and_says_in_one_line_what_it_is(name):
    loaded = problem(name)
    assert loaded.name == name
    assert loaded.summary
    assert tensor_leaves(loaded.meta_inputs)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.cpp")), ids=lambda path: path.stem)
def test_cpp_candidate_is_right(path):
    assert distance(path) < 1e-5


@pytest.mark.parametrize("path", sorted((EXAMPLES / "wrong").glob("*.py")), ids=lambda path: path.stem)
def test_wrong_candidate_loads_and_is_wrong(path):
    # Two seeds: a stale result is right the first time.
    assert distance(path, seeds=(1, 2)) > 1e-4


def test_every_problem_has_a_wrong_candidate():
    stems = [path.stem for path in (EXAMPLES / "wrong").glob("*.py")]
    assert not [name for name in PROBLEMS if not any(stem.startswith(name) for stem in stems)]


@pytest.mark.parametrize("row", [[0.0, float("nan")], [0.0, float("inf")], [0.0, -float("inf")], [-float("inf")] * 2])
def test_softmax_cpp_has_the_references_non_finite_values(row):
    candidate, x = load_candidate(str(EXAMPLES / "softmax.cpp"), problem("softmax")), torch.tensor([row, [1.0, 2.0]])
    right, got = problem("softmax").program(x), candidate.program(x)
    assert torch.equal(right.isnan(), got.isnan())


def test_cross_entropy_cpp_takes_masked_logits():
    logits, target = torch.randn(2, 5000), torch.tensor([4000, 4999])
    logits[:, :3000] = -float("inf")
    candidate = load_candidate(str(EXAMPLES / "cross_entropy.cpp"), problem("cross_entropy"))
    torch.testing.assert_close(candidate.program(logits, target), problem("cross_entropy").program(logits, target))


@pytest.mark.exhaustive
def test_compiled_decoder_block_is_right():
    assert distance(EXAMPLES / "decoder_block_compile.py") < 1e-5


INTERPRETED = """
import sys
sys.path.insert(0, {here!r})
from test_examples_load import EXAMPLES, distance
for name in ("add_scale_bias_relu", "tiny_chain", "softmax", "cross_entropy", "cumsum"):
    print(name, distance(EXAMPLES / (name + "_triton.py")))
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_triton_candidates_are_right_in_the_interpreter():
    code, environment = INTERPRETED.format(here=str(Path(__file__).parent)), os.environ | {"TRITON_INTERPRET": "1"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    errors = dict(line.split() for line in run.stdout.splitlines())
    assert len(errors) == 5
    assert all(float(error) < 1e-5 for error in errors.values()), errors


@pytest.mark.slow
def test_train_takes_its_steps():
    command = [sys.executable, str(EXAMPLES / "train.py"), "--steps", "1"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("loss after 1 steps: ")


MODELS = sorted(path.stem for path in (EXAMPLES / "models").glob("*.py"))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_runs_and_repeats_itself(name):
    loaded = load_problem(str(EXAMPLES / "models" / f"{name}.py"))
    args, kwargs = loaded.inputs("cpu", 0)
    with torch.no_grad():
        first, second = (loaded.program(*args, **kwargs) for _ in range(2))
    assert first.isfinite().all()
    torch.testing.assert_close(first, second)
