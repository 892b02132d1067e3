"""Recommendations that are applied: who implements each, and what it does to the program and its inputs."""

import pytest
import torch

from kernelwright.core.diagnosis import Recommendation
from kernelwright.diagnosis.recommendations import BATCH_SIZE
from kernelwright.evidence import recommendation_check as check
from kernelwright.problems import Problem


def of_kind(kind):
    return Recommendation(kind=kind, action=kind, predicted_us=1.0)


def program(x, bias):
    return x * 2 + bias


X, BIAS, COUNT = torch.randn(1, 8), torch.randn(8), torch.arange(8)


@pytest.fixture(scope="module")
def problem():
    return Problem.from_callable(program, X, BIAS)


@pytest.mark.parametrize(
    ("device", "files", "expected"),
    [
        ("cpu", ["p.cpp", "p_compile.py", "p_triton.py"], "p.cpp"),
        ("cuda", ["p.cpp", "p_compile.py", "p_triton.py"], "p_triton.py"),
        ("cuda", ["p.cpp", "p_compile.py"], "p_compile.py"),
        ("cpu", ["p_triton.py"], check.COMPILER),
    ],
)
def test_a_fusion_is_a_candidate_next_to_the_problem_or_torch_compile(tmp_path, device, files, expected):
    for name in files:
        (tmp_path / name).touch()
    assert check.find_implementation(of_kind("fuse"), tmp_path / "p.py", device).endswith(expected)


def test_what_nothing_implements_is_not_applied(tmp_path):
    assert check.find_implementation(of_kind("split"), tmp_path / "p.py", "cpu") is None
    assert check.find_implementation(of_kind("stop"), tmp_path / "p.py", "cpu") is None
    assert check.find_implementation(of_kind("graph"), tmp_path / "p.py", "cuda") == "CUDA graph"


def test_a_narrower_dtype_narrows_fp32_tensors_alone(problem):
    run, (args, _), shared_by = check._apply_dtype(problem, program, ((X, COUNT), {}), "bfloat16", "cpu")
    assert [one.dtype for one in args] == [torch.bfloat16, torch.int64]
    assert (run, shared_by) == (program, 1)


def test_a_module_is_narrowed_in_a_copy(problem):
    layer = torch.nn.Linear(8, 8)
    narrowed, *_ = check._apply_dtype(problem, layer, ((X,), {}), "bfloat16", "cpu")
    assert (narrowed.weight.dtype, layer.weight.dtype) == (torch.bfloat16, torch.float32)


def test_a_batch_repeats_inputs_of_one_row_and_shares_the_time(problem):
    _, (args, _), shared_by = check._apply_batching(problem, program, ((X, BIAS), {}), "rows", "cpu")
    assert ([tuple(one.shape) for one in args], shared_by) == ([(BATCH_SIZE, 8), (8,)], BATCH_SIZE)


def test_programs_of_the_same_inputs_are_timed_interleaved(monkeypatch):
    timed = []

    def time_variants(programs, inputs, **options):
        timed.append(list(programs))
        timings = {name: type("Timing", (), {"time_us": 8.0 if name == "before" else 4.0}) for name in programs}
        return type("Result", (), {"timings": timings})

    monkeypatch.setattr(check, "time_variants", time_variants)
    inputs, others = ((X,), {}), ((X,), {})
    assert check._time_before_after(program, inputs, program, inputs, {}) == (8.0, 4.0)
    assert timed == [["before", "after"]]
    assert check._time_before_after(program, inputs, program, others, {}) == (8.0, 4.0)
    assert timed[1:] == [["before"], ["after"]]
