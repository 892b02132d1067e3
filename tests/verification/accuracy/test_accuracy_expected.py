"""The golden: FP64 wherever the program allows it, and the reference's own answer where it does not."""

from __future__ import annotations

import dataclasses
import threading

import pytest
import torch
from torch import Tensor

from kernelwright.core.errors import ProblemError
from kernelwright.verification.accuracy.expected import FP64, NATIVE_PRECISION, compute_expected
from kernelwright.verification.accuracy.fp64_mode import FP64Mode


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def far(golden: Tensor, expected: Tensor) -> float:
    return ((golden - expected).abs().max() / expected.abs().max()).item()


def test_module_parameters_and_buffers_are_upcast() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.BatchNorm1d(32))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(16, 64)
    truth = compute_expected(model, model, ([x], {}))
    linear, norm = model
    y = x.double() @ linear.weight.double().T + linear.bias.double()
    expected = (y - y.mean(0)) / (y.var(0, correction=0) + norm.eps).sqrt()
    assert truth.golden_method == FP64 and truth.golden[0].dtype == torch.float64
    assert far(truth.golden[0], expected) < 1e-13
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.float().square().sum(-1),
        lambda x: x.to(torch.float32).square().sum(-1, dtype=torch.float32),
        lambda x: (x * torch.tensor(1.0)).square().sum(-1),
        lambda x: (torch.zeros(8, 1, dtype=torch.float32) + x.bfloat16().type_as(x)).square().sum(-1),
        lambda x: torch.empty_like(x).copy_(x).square().sum(-1),
    ],
)
def test_explicit_float32_steps_are_widened(program) -> None:
    x = torch.randn(8, 1000)
    truth = compute_expected(program, None, ([x], {}))
    assert truth.golden_method == FP64
    assert far(truth.golden[0], x.double().square().sum(-1)) < 1e-14


def test_closures_are_widened() -> None:
    weight = torch.randn(100, 10)
    x = torch.randn(4, 100)
    truth = compute_expected(lambda x: x @ weight, None, ([x], {}))
    assert far(truth.golden[0], x.double() @ weight.double()) < 1e-14


def small_rows() -> Tensor:
    return torch.randn(64, 512) * torch.exp2(torch.randint(-14, 1, (64, 1)).float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rms_norm_keeps_the_epsilon_of_its_own_precision(dtype) -> None:
    x = small_rows().to(dtype)
    norm = torch.nn.RMSNorm(512, dtype=dtype)
    truth = compute_expected(norm, norm, ([x], {}))
    wide = x.double()
    epsilon = torch.finfo(torch.float32).eps
    assert truth.golden_method == FP64
    assert far(truth.golden[0], wide * (wide.square().mean(-1, keepdim=True) + epsilon).rsqrt()) < 1e-13


def test_rms_norm_of_fp64_keeps_its_own() -> None:
    x = small_rows().double() * 2.0**-12
    truth = compute_expected(lambda x: torch.rms_norm(x, (512,)), None, ([x], {}))
    assert far(truth.golden[0], torch.rms_norm(x, (512,))) < 1e-14


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_a_program_asks_of_its_dtype_is_its_own(dtype) -> None:
    def norm(x: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + torch.finfo(x.dtype).eps)

    x = small_rows().to(dtype)
    truth = compute_expected(norm, None, ([x], {}))
    wide = x.double()
    assert truth.golden_method == FP64
    assert far(truth.golden[0], wide / (wide.square().mean(-1, keepdim=True) + torch.finfo(dtype).eps)) < 1e-13
    assert torch.finfo(torch.float64).eps == 2.0**-52


def test_a_program_that_chooses_by_its_dtype_makes_the_same_choice() -> None:
    def norm(x: Tensor) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + (1e-6 if x.dtype == torch.float32 else 1e-15)).rsqrt()

    x = small_rows()
    truth = compute_expected(norm, None, ([x], {}))
    wide = x.double()
    assert truth.golden_method == FP64
    assert far(truth.golden[0], wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()) < 1e-13


def test_a_program_that_chooses_by_the_size_of_its_elements_is_its_own_golden() -> None:
    """Not rounding, and nothing that a candidate may be off by."""

    def norm(x: Tensor) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + (1e-6 if x.element_size() == 4 else 1e-15)).rsqrt()

    truth = compute_expected(norm, None, ([small_rows()], {}))
    assert truth.golden_method == f"{NATIVE_PRECISION} (the FP64 run differs by more than rounding)"
    assert torch.equal(truth.golden[0], truth.reference[0].double())


def one_pass_variance(x: Tensor) -> Tensor:
    return x.square().mean(-1) - x.mean(-1).square()


NORMAL = torch.randn(64, 512, generator=torch.Generator().manual_seed(0))
UNLUCKY = torch.randn(64, 512, generator=torch.Generator().manual_seed(2))  # 0.53 of the variance is rounding


@pytest.mark.parametrize(
    ("program", "x"),
    [
        (one_pass_variance, 2048 + NORMAL),
        (one_pass_variance, 2048 + UNLUCKY),
        (lambda x: torch.log(1 + x), 5e-7 * NORMAL),
    ],
    ids=["one pass", "unlucky", "cancellation"],
)
def test_rounding_errors_of_any_size_leave_the_golden_in_fp64(program, x) -> None:
    """A better candidate must not be held to a reference that is 5 % off and more."""
    truth = compute_expected(program, None, ([x], {}))
    assert (truth.golden[0] - truth.reference[0].double()).norm() > 0.05 * truth.golden[0].norm()
    assert truth.golden_method == FP64


def test_a_program_that_cannot_run_in_fp64_is_its_own_golden() -> None:
    def bits(x: Tensor) -> Tensor:
        return (x.view(torch.int32) >> 16 << 16).view(torch.float32)

    x = torch.randn(100)
    truth = compute_expected(bits, None, ([x], {}))
    assert truth.golden_method.startswith(NATIVE_PRECISION)
    assert torch.equal(truth.golden[0], bits(x).double())


def test_random_programs_are_their_own_golden() -> None:
    truth = compute_expected(lambda x: x + torch.randn_like(x), None, ([torch.randn(1000)], {}))
    assert truth.golden_method.startswith(NATIVE_PRECISION)


def test_mutated_inputs_are_outputs() -> None:
    def step(x: Tensor, *, state: Tensor) -> Tensor:
        state.add_(x)
        return state.sum()

    x, state = torch.randn(5), torch.ones(5)
    truth = compute_expected(step, None, ([x], {"state": state}))
    assert truth.names == ["output", "input 1"] and truth.mutated_inputs == (1,)
    assert torch.equal(state, torch.ones(5)), "the caller's input was changed"
    assert torch.allclose(truth.golden[1], 1 + x.double(), rtol=1e-14)
    assert torch.equal(truth.inputs[1], state)


def test_changed_parameters_and_buffers_are_outputs() -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(5, 8, max_norm=1.0), torch.nn.Flatten(), torch.nn.BatchNorm1d(24))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    truth = compute_expected(model, model, ([torch.randint(0, 5, (7, 3))], {}))
    assert truth.names == [
        "output",
        "parameter 0.weight",
        "buffer 2.running_mean",
        "buffer 2.running_var",
        "buffer 2.num_batches_tracked",
    ]
    assert truth.golden[1].norm(dim=1).max() <= 1 + 1e-6
    assert torch.equal(truth.reference[4], torch.tensor(1))
    assert all(torch.equal(truth.initial_state[name], before[name]) for name in truth.initial_state)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_buffer_that_is_replaced_is_put_back_and_seen() -> None:
    class Cache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.zeros(0, 4))

        def forward(self, x: Tensor) -> Tensor:
            self.kept = torch.cat([self.kept, x])
            return self.kept

    model = Cache()
    truth = compute_expected(model, model, ([torch.randn(2, 4)], {}))
    assert truth.names == ["output", "buffer kept"] and truth.reference[1].shape == (2, 4)
    assert model.kept.shape == (0, 4)


def test_an_output_that_is_a_view_of_state_keeps_its_values() -> None:
    model = torch.nn.BatchNorm1d(3)

    def program(x: Tensor) -> Tensor:
        model(x)
        return model.running_mean

    assert (compute_expected(program, model, ([5 + torch.randn(40, 3)], {})).reference[0] > 0.4).all()


def test_outputs_that_cannot_be_compared_are_refused() -> None:
    @dataclasses.dataclass
    class Opaque:
        hidden: Tensor

    for one, name in ((Opaque, "Opaque"), (Tensor.numpy, "ndarray")):
        with pytest.raises(ProblemError, match=f"returns a {name}, which cannot be compared"):
            compute_expected(lambda x, one=one: (x, one(x)), None, ([torch.randn(3)], {}))


def test_sparse_outputs_are_judged_by_their_values() -> None:
    x = torch.randn(6, 6).relu()
    truth = compute_expected(lambda x: x.to_sparse(), None, ([x], {}))
    assert truth.golden_method == FP64 and torch.equal(truth.reference[0], x)


def test_outputs_of_every_kind() -> None:
    def program(x: Tensor) -> dict:
        return {"mean": x.mean().item(), "top": x.topk(2), "none": None, "mask": x > 0}

    truth = compute_expected(program, None, ([torch.randn(8)], {}))
    assert [t.dtype for t in truth.reference] == [torch.float32, torch.float32, torch.int64, torch.bool]
    assert all("output" in name for name in truth.names)


def test_programs_that_take_gradients_run() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        w = w.detach().requires_grad_()
        return torch.autograd.grad((x @ w).square().sum(), w)[0]

    x, w = torch.randn(4, 8), torch.randn(8, 3)
    truth = compute_expected(program, None, ([x, w], {}))
    wide = x.double()
    assert far(truth.golden[0], 2 * wide.T @ (wide @ w.double())) < 1e-13


def test_what_depends_on_the_default_dtype_is_of_fp64() -> None:
    def program(x: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        return x + torch.linspace(0, 1, 3), n / 3, n.sqrt(), torch.full((3,), 0.1) * n, torch.where(n > 1, 0.1, 0.2)

    truth = compute_expected(program, None, ([torch.randn(3), torch.tensor([1, 2, 7])], {}))
    n = torch.tensor([1.0, 2.0, 7.0]).double()
    assert truth.golden_method == FP64
    for got, exact in zip(truth.golden[1:4], (n / 3, n.sqrt(), 0.1 * n), strict=True):
        assert far(got, exact) < 1e-15


def test_other_threads_see_nothing_of_it() -> None:
    """A golden is made while others run: nothing of the whole process is changed meanwhile."""
    seen, inside, done = [], threading.Event(), threading.Event()

    def watch() -> None:
        inside.wait(10)
        seen.append((torch.get_default_dtype(), torch.randn(2).dtype, torch.finfo(torch.float64).eps))
        done.set()

    def program(x: Tensor) -> Tensor:
        inside.set()
        done.wait(10)
        return x + 1

    watcher = threading.Thread(target=watch)
    watcher.start()
    with FP64Mode(torch.float32):
        program(torch.randn(3))
    watcher.join()
    assert seen == [(torch.float32, torch.float32, 2.0**-52)]


def test_settings_come_back() -> None:
    compute_expected(lambda x: x + 1, None, ([torch.randn(3)], {}))
    assert torch.get_default_dtype() == torch.float32
    assert torch.backends.cudnn.allow_tf32
    before = torch.random.get_rng_state()
    compute_expected(torch.sin, None, ([torch.randn(3)], {}))
    torch.random.set_rng_state(before)
