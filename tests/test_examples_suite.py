"""Every problem of the suite loads, has inputs of the promised size, and gives finite numbers that FP64 agrees with."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch

from kernelwright.core.errors import ProblemError
from kernelwright.core.pytree import clone_inputs, tensor_leaves
from kernelwright.problems import Problem, load_problem
from kernelwright.problems.importing import import_file
from kernelwright.verification.accuracy.fp64_mode import FP64Mode, native_precision, widen

SUITE = Path(__file__).parents[1] / "examples" / "suite"
MODULES = {path.stem: import_file(path, ProblemError) for path in sorted(SUITE.glob("*.py"))}
NAMES = [f"{stem}:{name}" for stem, module in MODULES.items() for name in module.GPU_SCALE]
KIB, MIB = 2**10, 2**20
# Of a value, or of its output's root mean square where that is more.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@functools.cache
def problem(name: str) -> Problem:
    stem, function = name.split(":")
    return load_problem(f"{SUITE / stem}.py:{function}")


def input_bytes(name: str, scale: int) -> int:
    """What the inputs hold together, counted without any memory."""
    stem, function = name.split(":")
    with torch.device("meta"):
        return sum(tensor.nbytes for tensor in getattr(MODULES[stem], f"{function}_inputs")(scale))


def test_there_are_enough_and_each_has_its_inputs_and_its_scale():
    assert len(NAMES) >= 45
    assert len({name.split(":")[1] for name in NAMES}) == len(NAMES)
    for module in MODULES.values():
        with_inputs = [name.removesuffix("_inputs") for name in vars(module) if name.endswith("_inputs")]
        assert with_inputs == list(module.GPU_SCALE)
        assert all(vars(module)[name].__doc__ for name in with_inputs)


@pytest.mark.parametrize("name", NAMES)
def test_inputs_fit_a_laptop_and_fill_a_gpu(name):
    stem, function = name.split(":")
    here, there = input_bytes(name, 1), input_bytes(name, MODULES[stem].GPU_SCALE[function])
    assert 2 * KIB <= here <= 32 * MIB
    assert 64 * MIB <= there <= 1024 * MIB or there == here <= MIB


def test_most_are_larger_than_a_cache():
    large = [name for name in NAMES if input_bytes(name, 1) >= 4 * MIB]
    assert len(large) > len(NAMES) / 2


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_is_finite_and_that_of_fp64(name):
    args, _ = problem(name).inputs("cpu", 0)
    wide = [widen(tensor) for tensor in clone_inputs(args)]
    with torch.no_grad():
        got = tensor_leaves(problem(name).program(*args))
        with FP64Mode(native_precision(args)):
            right = tensor_leaves(problem(name).program(*wide))
    for one, other in zip(got, right, strict=True):
        assert one.shape == other.shape
        assert one.numel()
        if not one.dtype.is_floating_point:
            assert torch.equal(one, other)
            continue
        assert one.isfinite().all()
        size = torch.maximum(other.abs(), other.square().mean().sqrt())
        assert ((one.double() - other).abs() / size).max() <= TOLERANCE[one.dtype]
