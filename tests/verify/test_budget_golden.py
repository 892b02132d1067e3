"""The golden: FP64 wherever the program allows it, and the reference's own answer where it does not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernelwright.verify.golden import FP64, OWN_PRECISION, right


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
    truth = right(model, model, ([x], {}))
    linear, norm = model
    y = x.double() @ linear.weight.double().T + linear.bias.double()
    expected = (y - y.mean(0)) / (y.var(0, correction=0) + norm.eps).sqrt()
    assert truth.how == FP64 and truth.golden[0].dtype == torch.float64
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
    truth = right(program, None, ([x], {}))
    assert truth.how == FP64
    assert far(truth.golden[0], x.double().square().sum(-1)) < 1e-14


def test_closures_are_widened() -> None:
    weight = torch.randn(100, 10)
    x = torch.randn(4, 100)
    truth = right(lambda x: x @ weight, None, ([x], {}))
    assert far(truth.golden[0], x.double() @ weight.double()) < 1e-14


def test_a_program_that_cannot_run_in_fp64_is_its_own_golden() -> None:
    def bits(x: Tensor) -> Tensor:
        return (x.view(torch.int32) >> 16 << 16).view(torch.float32)

    x = torch.randn(100)
    truth = right(bits, None, ([x], {}))
    assert truth.how.startswith(OWN_PRECISION)
    assert torch.equal(truth.golden[0], bits(x).double())


def test_random_programs_are_their_own_golden() -> None:
    truth = right(lambda x: x + torch.randn_like(x), None, ([torch.randn(1000)], {}))
    assert truth.how.startswith(OWN_PRECISION)


def test_mutated_inputs_are_outputs() -> None:
    def step(x: Tensor, *, state: Tensor) -> Tensor:
        state.add_(x)
        return state.sum()

    x, state = torch.randn(5), torch.ones(5)
    truth = right(step, None, ([x], {"state": state}))
    assert truth.names == ["output", "input 1"] and truth.mutated == (1,)
    assert torch.equal(state, torch.ones(5)), "the caller's input was changed"
    assert torch.allclose(truth.golden[1], 1 + x.double(), rtol=1e-14)
    assert torch.equal(truth.inputs[1], state)


def test_outputs_of_every_kind() -> None:
    def program(x: Tensor) -> dict:
        return {"mean": x.mean().item(), "top": x.topk(2), "none": None, "mask": x > 0}

    truth = right(program, None, ([torch.randn(8)], {}))
    assert [t.dtype for t in truth.reference] == [torch.float32, torch.float32, torch.int64, torch.bool]
    assert all("output" in name for name in truth.names)


def test_programs_that_take_gradients_run() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        w = w.detach().requires_grad_()
        return torch.autograd.grad((x @ w).square().sum(), w)[0]

    x, w = torch.randn(4, 8), torch.randn(8, 3)
    truth = right(program, None, ([x, w], {}))
    wide = x.double()
    assert far(truth.golden[0], 2 * wide.T @ (wide @ w.double())) < 1e-13


def test_settings_come_back() -> None:
    right(lambda x: x + 1, None, ([torch.randn(3)], {}))
    assert torch.get_default_dtype() == torch.float32
    assert torch.backends.cudnn.allow_tf32
    before = torch.random.get_rng_state()
    right(torch.sin, None, ([torch.randn(3)], {}))
    torch.random.set_rng_state(before)
