"""Benchmarks of machines that are not here: eager and torch candidates are predicted, others named in the notes."""

import pytest
import torch

from kernelwright.benchmark.predicted import predict_bench
from kernelwright.machines import machine_from_spec
from kernelwright.problems import Problem


def two_passes(x):
    return torch.relu(x + 1)


def four_passes(x):
    return torch.relu(x * 2 + 2) / 2


def numpy_arithmetic(x):
    return torch.from_numpy((x.numpy() + 1).clip(0))


@pytest.fixture(scope="module")
def problem():
    return Problem.from_callable(two_passes, torch.randn(2**20))


@pytest.fixture(scope="module")
def machine():
    return machine_from_spec("h200")


def test_torch_candidates_are_predicted_and_sorted_by_time(problem, machine):
    found = predict_bench(problem, machine, {"four": four_passes}, ["eager"], ())
    assert [variant.name for variant in found.variants] == ["eager", "four"]
    fast, slow = (variant.time_us for variant in found.variants)
    assert slow == pytest.approx(2 * fast, rel=0.3)
    assert all(variant.floor_us <= variant.time_us for variant in found.variants)
    assert (found.predicted, found.comparisons, found.notes) == (True, (), ())


def test_what_torch_does_not_dispatch_is_named_in_a_note(problem, machine):
    found = predict_bench(problem, machine, {"numpy": numpy_arithmetic}, ["eager", "compile"], ())
    assert [variant.name for variant in found.variants] == ["eager"]
    assert [note.partition(" is not predicted")[0] for note in found.notes] == ["numpy", "torch.compile"]


def test_without_baselines_only_candidates_are_predicted(problem, machine):
    assert [one.name for one in predict_bench(problem, machine, {"four": four_passes}, [], ()).variants] == ["four"]
