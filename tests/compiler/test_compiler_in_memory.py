"""Live models with kernels of their own: they train as they did, share what they shared, and fall back."""

import copy
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import FirstChoice, KernelsFirst, kernels_called, optimised, quick, run

from kernelwright.compiler import in_memory, selection
from kernelwright.compiler.in_memory import optimize_problem
from kernelwright.compiler.program_variant import EAGER, Variant
from kernelwright.compiler.selection import ProgramSelector
from kernelwright.core.errors import KernelwrightError
from kernelwright.problems import Problem


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with quick():
        yield


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


X, Y, W, B = normal(9, 40), normal(9, 40, seed=1), normal(40, seed=2), normal(40, seed=3)
TARGETS = torch.arange(9) * 7 % 40


class Small(nn.Module):
    """Two regions with a matrix product between them."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(40), nn.Linear(40, 24)
        self.scale = nn.Parameter(normal(24))

    def forward(self, x):
        return torch.softmax(self.linear(F.gelu(self.norm(x) + 1)) * self.scale + 0.5, -1)


@pytest.fixture
def small():
    torch.manual_seed(0)
    return Small()


@pytest.fixture(scope="module")
def made_small():
    """A model and its optimised twin, for tests that change neither."""
    torch.manual_seed(0)
    model = Small()
    return model, optimised(model, X)


@dataclass(frozen=True)
class Scaled:
    """The layer of a program whose results are multiplied by a factor."""

    factor: int
    class_name: str = "Scaled"
    imports: str = ""

    def sections(self, problem):
        return ()

    def body(self, below):
        parameters, arguments = below.signature()
        return f"def forward({parameters}):\n    return {self.factor} * {below.call(arguments)}"


def scaled(factor, *others):
    """A selector that chooses a scaled program, then others."""

    class Chosen(KernelsFirst):
        def select(self):
            return [Variant("torch.compile", Scaled(factor)), *others], None

    return Chosen


def kernels_after(factor):
    """A selector that chooses a scaled program, then kernels."""

    class Chosen(KernelsFirst):
        def select(self):
            variants, rounds = super().select()
            return [Variant("torch.compile", Scaled(factor)), *variants], rounds

    return Chosen


@pytest.mark.parametrize(("factor", "whole"), [(1, "torch.compile"), (2, "")], ids=["right", "wrong"])
def test_the_whole_takes_the_place_of_kernels_only_where_it_is_right(small, factor, whole):
    with torch.no_grad():  # of what is trained only the kernels' gradients are proved
        made = optimize_problem(Problem.from_callable(small, X), FirstChoice(), 1, kernels_after(factor))
    assert made.optimization.verdict.accepted
    assert made.optimization.whole_program_winner == whole
    with torch.no_grad():
        got, used = run(made, X) if not whole else (made(X), False)
    assert used is not bool(whole)
    torch.testing.assert_close(got, small(X))


def test_the_program_as_it_was_takes_the_place_of_what_is_wrong(small):
    with torch.no_grad():
        made = optimize_problem(Problem.from_callable(small, X), FirstChoice(), 1, scaled(2, EAGER))
    assert made.optimization.verdict.accepted
    assert made.optimization.whole_program_winner == "torch"
    assert made.scale is small.scale
    torch.testing.assert_close(made(X), small(X))


def test_what_is_wrong_is_said(small):
    with torch.no_grad():
        made = optimize_problem(Problem.from_callable(small, X), FirstChoice(), 1, scaled(2, EAGER))
    assert any(note.startswith("torch.compile is not used: inaccurate, ") for note in made.optimization.notes)


@pytest.mark.parametrize("as_function", [False, True])
def test_what_nothing_is_right_for_runs_as_it_was(small, as_function):
    model = (lambda x: torch.softmax(x, -1)) if as_function else small
    with torch.no_grad():
        made = optimize_problem(Problem.from_callable(model, X), FirstChoice(), 1, scaled(2))
    verdict = made.optimization.verdict
    assert (verdict.accepted, verdict.reason.code) == (False, "inaccurate")
    assert [note.partition(",")[0] for note in made.optimization.notes] == ["torch.compile is not used: inaccurate"]
    assert type(made).__name__ != "ModelNew"
    torch.testing.assert_close(made(X), model(X))


def test_every_rejected_variant_is_noted(small):
    others = (Variant("torch", Scaled(3)), EAGER)
    with torch.no_grad():
        made = optimize_problem(Problem.from_callable(small, X), FirstChoice(), 1, scaled(2, *others))
    notes = [note.partition(",")[0] for note in made.optimization.notes]
    assert notes == ["torch.compile is not used: inaccurate", "torch is not used: inaccurate"]
    assert made.optimization.verdict.accepted


def test_the_best_of_the_variants_is_found_by_the_selector(small, monkeypatch):
    monkeypatch.setattr(ProgramSelector, "_time_us", lambda *_: 10.0)
    monkeypatch.setattr(selection, "FINAL_BUDGET_S", 0.01)
    with torch.no_grad():
        made = optimize_problem(Problem.from_callable(small, X), FirstChoice(), 1)
    assert made.optimization.verdict.accepted
    assert made.optimization.whole_program_winner in ("", "torch"), "torch.compile is not tried in memory"
    torch.testing.assert_close(made(X), small(X))


def gradients(program, inputs, weights=None):
    """Of a random mixture of all outputs, in the inputs that are floating; and whether kernels ran."""
    leaves = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
    outputs = program(*leaves)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    loss = sum((out * normal(*out.shape, seed=9)).sum() for out in outputs if out.requires_grad)
    return torch.autograd.grad(loss, [x for x in leaves if x.requires_grad] + list(weights or ()))


PROGRAMS = {
    "softmax": (lambda x: torch.softmax(x * 2, -1), X),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (40,), w, b), X, W, B),
    "gelu": (lambda x: F.gelu(x) * x, X),
    "loss": (lambda x, y: F.mse_loss(torch.tanh(x), y), X, Y),
    "whole numbers": (lambda x, t: F.cross_entropy(x * 2, t), X, TARGETS),
    "broadcast": (lambda x, w: torch.relu(x * w + 1).sum(-1), X, W),
    "whole output": (lambda x: (torch.tanh(x) * 2, (x * 2).argmax(-1)), X),
    "two outputs": (lambda x: (torch.softmax(x, -1), (x * x).sum(-1)), X),
    "half": (lambda x: F.silu(x) * 2, X.bfloat16()),
    "double": (lambda x: F.silu(x) * 2, X.double()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_eager(name):
    program, *inputs = PROGRAMS[name]
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    made = optimised(program, *leaves)
    for got, right in zip(gradients(made, inputs), gradients(program, inputs), strict=True):
        torch.testing.assert_close(got, right)
    assert run(made, *leaves)[1]


def test_one_of_two_outputs_may_go_unused():
    program = PROGRAMS["two outputs"][0]
    made = optimised(program, X.clone().requires_grad_())
    for at in (0, 1):
        for got, right in zip(
            gradients(lambda x, at=at: made(x)[at], [X]), gradients(lambda x, at=at: program(x)[at], [X]), strict=True
        ):
            torch.testing.assert_close(got, right)


def test_incoming_gradients_may_have_any_strides():
    program = PROGRAMS["softmax"][0]
    leaf, other = (X.clone().requires_grad_() for _ in range(2))
    made = optimised(program, leaf)
    for gradient in (normal(40, 9).t(), torch.ones(1, 1).expand(9, 40), normal(18, 80)[::2, ::2]):
        got = torch.autograd.grad(made(leaf), leaf, gradient)
        torch.testing.assert_close(got, torch.autograd.grad(program(other), other, gradient))


def test_a_second_derivative_is_refused():
    leaf = X.clone().requires_grad_()
    made = optimised(PROGRAMS["softmax"][0], leaf)
    (first,) = torch.autograd.grad((made(leaf) ** 2).sum(), leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_a_function_is_optimised_where_nobody_asks_for_gradients():
    program = PROGRAMS["softmax"][0]
    made = optimised(program, X)
    got, used = run(made, X)
    assert used
    torch.testing.assert_close(got, program(X))


def test_an_input_that_asks_for_its_gradient_later_gets_it(made_small):
    model, made = made_small
    for got, right in zip(gradients(made, [X]), gradients(model, [X]), strict=True):
        torch.testing.assert_close(got, right)


def test_a_model_trains_as_it_did(small):
    twin = copy.deepcopy(small)
    made = optimised(small, X)
    for model in (made, twin):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for step in range(3):
            optimizer.zero_grad()
            F.mse_loss(model(normal(9, 40, seed=step)), torch.ones(9, 24)).backward()
            optimizer.step()
    for got, right in zip(small.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(got, right)
    assert run(made, X)[1]


def test_parameters_are_shared_under_their_names(small):
    made = optimised(small, X)
    assert isinstance(made, Small)
    assert list(made.state_dict()) == list(small.state_dict())
    for (name, one), (same, other) in zip(made.named_parameters(), small.named_parameters(), strict=True):
        assert name == same
        assert one is other
    assert not any(parameter.grad is not None for parameter in small.parameters())
    made.load_state_dict(Small().state_dict())
    torch.testing.assert_close(made(X), small(X))


def test_a_frozen_parameter_stays_frozen(small):
    small.scale.requires_grad_(False)
    small.norm.weight.requires_grad_(False)
    made = optimised(small, X)
    asking = [parameter for parameter in small.parameters() if parameter.requires_grad]
    gradient = normal(9, 24)
    got = torch.autograd.grad(made(X), asking, gradient)
    for one, other in zip(got, torch.autograd.grad(small(X), asking, gradient), strict=True):
        torch.testing.assert_close(one, other)
    made(X).backward(gradient)
    assert small.scale.grad is None


def test_a_parameter_that_thaws_gets_its_gradient(small):
    small.scale.requires_grad_(False)
    made = optimised(small, X)
    small.scale.requires_grad_(True)
    gradient = normal(9, 24)
    right = torch.autograd.grad(small(X), small.scale, gradient)
    torch.testing.assert_close(torch.autograd.grad(made(X), small.scale, gradient), right)


def test_everything_else_falls_back_and_is_right(made_small):
    model, made = made_small
    assert run(made, X)[1]
    with torch.no_grad():
        assert run(made, X)[1]
    for x in (X[:5], normal(40, 9).t()):
        got, used = run(made, x)
        assert not used
        torch.testing.assert_close(got, model(x))
    with torch.autocast("cpu", torch.bfloat16):
        got, used = run(made, X)
        assert not used
        torch.testing.assert_close(got, model(X))


def test_another_precision_falls_back(small):
    made = optimised(small, X)
    made.to(torch.float64)
    got, used = run(made, X.double())
    assert not used
    assert got.dtype == torch.float64
    torch.testing.assert_close(got, small.double()(X.double()))


def test_torch_compile_sees_the_program_as_it_was(made_small):
    model, made = made_small
    torch._dynamo.reset()
    compiled = torch.compile(made, backend="eager", fullgraph=True)
    with kernels_called(made) as called:
        torch.testing.assert_close(compiled(X), model(X))
    assert not called


def test_a_copy_and_a_saved_one_are_models_too(made_small):
    model, made = made_small
    twin = copy.deepcopy(made)
    assert twin.scale is not model.scale
    torch.testing.assert_close(twin(X), model(X))


class Trained(nn.Module):
    """Acts otherwise in training: running statistics, and dropout."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.norm, self.dropout = nn.BatchNorm1d(40), nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(torch.relu(self.norm(x) * 2))


def test_running_statistics_move_as_they_did():
    model, twin = Trained(), Trained()
    made = optimised(model, X)
    assert torch.equal(model.norm.running_mean, torch.zeros(40)), "optimising is no training step"
    for x in (X, Y):
        got, used = run(made, x)
        assert used
        torch.testing.assert_close(got, twin(x))
    torch.testing.assert_close(model.state_dict(), twin.state_dict())


def test_running_statistics_carry_no_gradients():
    model = Trained()
    made = optimised(model, X)
    made(X.clone().requires_grad_())
    assert not model.norm.running_mean.requires_grad


def test_training_and_evaluation_are_not_confused():
    model = Trained(0.5).eval()
    model.norm.running_mean.copy_(W)
    made, right = optimised(model, X), model(X)
    torch.testing.assert_close(made(X), right)
    made.train()
    got, used = run(made, X)
    assert not used
    assert (got == 0).float().mean() > (right == 0).float().mean(), "nothing was dropped"
    made.eval()
    assert run(made, X)[1]


def test_a_trained_model_can_be_evaluated():
    model = Trained()
    with torch.no_grad():
        made = optimised(model, X)
        model.norm.running_mean.copy_(W)
        made.eval()
        model.eval()
        torch.testing.assert_close(made(X), model(X))
    assert model.norm.num_batches_tracked.item() == 0


def test_a_program_without_regions_stays_as_it_was():
    program = nn.Linear(40, 4)
    made = optimize_problem(Problem.from_callable(program, X), FirstChoice(), num_input_sets=1)
    assert made.optimization.verdict.accepted
    torch.testing.assert_close(made(X), program(X))


@pytest.mark.parametrize("trained", [False, True])
def test_what_cannot_be_captured_as_a_whole_says_why(trained):
    def by_value(x):
        return x * 2 if x.sum().item() > 0 else x

    x = X.clone().requires_grad_(trained)
    with torch.set_grad_enabled(trained):
        made = optimize_problem(Problem.from_callable(by_value, x), FirstChoice(), 1, KernelsFirst)
    record = made.optimization
    assert record.verdict.accepted, record.verdict.reason
    assert record.engine == ("torch" if trained else "kernels")
    (note,) = record.notes
    assert note.startswith("the program is not captured" if trained else "the program is captured as")
    for inputs in (X, -X):
        torch.testing.assert_close(made(inputs), by_value(inputs))


def test_a_function_without_a_signature_is_one_clear_error():
    with pytest.raises(KernelwrightError, match="tanh has no inspectable signature") as caught:
        in_memory.optimize_in_memory(torch.tanh, (X,), {})
    assert caught.value.next == "wrap it: lambda x: tanh(x)"


def test_a_large_tensor_from_outside_is_an_input_of_a_graph():
    outside = normal(40, 50)

    def program(x):
        return torch.relu(x @ outside + 1)

    with torch.no_grad():
        made = optimised(program, X)
        got, used = run(made, X)
        assert used
        torch.testing.assert_close(got, program(X))
        outside.mul_(2)
        torch.testing.assert_close(made(X), program(X))


def test_a_large_tensor_of_a_model_is_no_parameter_and_an_input_of_a_graph():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = normal(9, 40, seed=5)

        def forward(self, x):
            return torch.relu(x * 2 + self.table)

    model = Positions()
    with torch.no_grad():
        made = optimised(model, X)
        got, used = run(made, X)
    assert used
    torch.testing.assert_close(got, model(X))


def test_what_another_mode_does_not_change_runs_as_kernels_in_both():
    made = optimised(nn.Sequential(nn.LayerNorm(40), nn.Softmax(-1)), X)
    with torch.no_grad():
        for mode in (True, False):
            assert run(made.train(mode), X)[1], mode


def test_a_single_layer_in_another_mode_is_not_passed_over():
    model = Trained(0.5).eval()
    made = optimised(model, X)
    made.dropout.train()
    assert (made(X) == 0).float().mean() > (model.eval()(X) == 0).float().mean()


@pytest.mark.parametrize("mode", [True, False])
def test_modes_that_are_mixed_are_each_their_own(mode):
    model = Trained().train(mode)
    model.norm.train(not mode)
    model.norm.running_mean.copy_(W)
    made = optimised(model, X)
    assert run(made, X)[1]
    for other in (True, False):
        right = copy.deepcopy(model).train(other)
        torch.testing.assert_close(made.train(other)(X), right(X))


def test_a_twin_has_hooks_of_its_own():
    model = Trained().eval()
    made = optimised(model, X)
    made.register_forward_hook(lambda *_: None)
    assert not model._forward_hooks
    assert made.norm is model.norm


def other_norm():
    norm = nn.LayerNorm(40)
    nn.init.constant_(norm.weight, 3.0)
    return norm


@pytest.mark.parametrize(
    "replace",
    [
        lambda model: model.load_state_dict({**model.state_dict(), "scale": torch.full((24,), 3.0)}, assign=True),
        lambda model: setattr(model, "scale", nn.Parameter(torch.full((24,), 3.0))),
        lambda model: setattr(model.norm, "weight", nn.Parameter(torch.full((40,), 3.0))),
        lambda model: setattr(model, "norm", other_norm()),
        lambda model: model.half().float().to(torch.float64).float(),
    ],
    ids=["assigned", "replaced", "replaced in a module", "module replaced", "converted"],
)
def test_what_is_replaced_in_the_model_is_seen(small, replace):
    made = optimised(small, X)
    before = made(X)
    replace(small)
    torch.testing.assert_close(made(X), small(X))
    assert made(X).shape == before.shape
