"""Dynamo graphs with kernels: forward, backward, graph breaks, changing shapes, no gradients."""

import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import quick

from kernelwright.compiler import dynamo_backend as backend_module
from kernelwright.compiler.dynamo_backend import compile_with_kernels as kernelwright


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with quick():
        yield


@pytest.fixture
def loaded(monkeypatch):
    """The texts of what the backend loads: kernels were made when there is one."""
    torch._dynamo.reset()
    texts, load = [], backend_module.load
    monkeypatch.setattr(backend_module, "load", lambda text: texts.append(text) or load(text))
    return texts


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


X, Y, W = normal(9, 40), normal(9, 40, seed=1), normal(40, seed=2)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.linear = nn.LayerNorm(40), nn.Linear(40, 24)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(self.norm(x) + 1)), -1)


def broken(x, w):
    x = torch.relu(x * w + 1)
    torch._dynamo.graph_break()
    return torch.softmax(x * 2, -1)


def by_value(x, w):
    x = torch.tanh(x) * w
    return x * 2 + 1 if x.sum() > 0 else torch.relu(x) - 1


def changing(x, y):
    x.mul_(2).add_(y)
    return torch.relu(x) + 1


FORWARD = {
    "one region": (lambda x, w: torch.softmax(x * w, -1), X, W),
    "dict": (lambda x: {"a": x * 2 + 1, "b": [x.sum(-1), x]}, X),
    "views": (lambda x: (x.t(), (x * 2 + 1)[:, 1:3].t()), X),
    "diagonals": (lambda x: torch.log_softmax(x, 0).diagonal() + torch.log_softmax(x, 1).diagonal(), X[:, :9]),
    "graph break": (broken, X, W),
    "a branch by value": (by_value, X, W),
    "a changed argument": (changing, X, Y),
    "constants": (lambda x: x * torch.tensor([1.0, 2.0] * 20) + torch.arange(40), X),
    "no tensors in": (lambda: torch.arange(40) * 2 + 1,),
    "nothing to do": (lambda x: x, X),
    "only torch": (lambda x: torch.sort(x).values, X),
    "numbers in": (lambda x, n, s: torch.relu(x * n + s), X, 3, 0.5),
    "a scalar tensor": (lambda x, s: torch.relu(x * s), X, torch.tensor(2.0)),
    "a tensor twice": (lambda x, y: torch.relu(x * y + 1), X, X),
    "no elements": (lambda x: torch.relu(x * 2 + 1), X[:0]),
    "half": (lambda x: torch.softmax(x * 2, -1), X.bfloat16()),
    "strided": (lambda x: torch.softmax(x * 2, -1), normal(40, 18).t()[::2]),
    "the file's words": (lambda KERNELS, self, torch_: torch.relu(KERNELS + self) * torch_, X, Y, W),
}


@pytest.mark.parametrize("name", FORWARD)
def test_forward_is_right(name, loaded):
    program, *args = FORWARD[name]
    compiled = torch.compile(program, backend=kernelwright)
    for seed in (0, 1):
        given = [x + seed if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in args]
        ours, theirs = ([x.clone() if isinstance(x, torch.Tensor) else x for x in given] for _ in range(2))
        torch.testing.assert_close(compiled(*ours), program(*theirs))
        torch.testing.assert_close(ours, theirs)
    assert loaded or name in ("nothing to do", "only torch", "no elements", "no tensors in", "constants")


def test_the_name_is_known_to_torch(loaded):
    torch.testing.assert_close(torch.compile(FORWARD["half"][0], backend="kernelwright")(X), (X * 2).softmax(-1))
    assert loaded


def trained(model, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(steps):
        optimizer.zero_grad()
        F.mse_loss(model(normal(9, 40, seed=step)), torch.ones(9, 24)).backward()
        optimizer.step()


def test_a_compiled_model_trains_as_it_did(loaded):
    model, other = Small(), Small()
    trained(torch.compile(model, backend=kernelwright))
    trained(other)
    assert len(loaded) == 2, "forward and backward"
    for got, right in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(got, right)


GRADIENTS = {
    "softmax": (lambda x: torch.softmax(x * 2, -1), X),
    "cross entropy": (lambda x, t: F.cross_entropy(x * 2, t), X, torch.arange(9) * 7 % 40),
    "graph break": (broken, X, W),
    "one of two": (lambda x: (torch.softmax(x, -1), (x * x).sum(-1))[0], X),
    "batch norm": (lambda x, w: F.relu(F.batch_norm(x, None, None, w, None, True)), X, W),
}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_eager(name, loaded):
    program, *args = GRADIENTS[name]
    found = []
    for which in (torch.compile(program, backend=kernelwright), program):
        leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in args]
        out = which(*leaves)
        seed = normal(*out.shape, seed=5) if out.dim() < 2 else normal(*out.shape[::-1], seed=5).t()
        out.backward(seed)
        found.append([x.grad for x in leaves])
    torch.testing.assert_close(*found)


def test_an_unused_output_and_an_unused_input_do_no_harm(loaded):
    compiled = torch.compile(lambda x, y: (torch.tanh(x) * 2, torch.relu(y) + 1), backend=kernelwright)
    x, y = (z.clone().requires_grad_() for z in (X, Y))
    compiled(x, y)[0].sum().backward()
    torch.testing.assert_close(x.grad, 2 - 2 * torch.tanh(X) ** 2)
    assert y.grad is None or not y.grad.any()


def test_changing_shapes_are_right(loaded):
    model = Small()
    compiled = torch.compile(model, backend=kernelwright)
    for rows in (9, 4, 17, 1, 9):
        x = normal(rows, 40, seed=rows)
        torch.testing.assert_close(compiled(x), model(x))
    torch.testing.assert_close(compiled(X.bfloat16().float().t().contiguous().t()), model(X.bfloat16().float()))


def test_with_and_without_gradients(loaded):
    model = Small()
    compiled = torch.compile(model, backend=kernelwright)
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), model(X))
    assert len(loaded) == 1
    with torch.inference_mode():
        torch.testing.assert_close(compiled(X), model(X))
    assert compiled(X).requires_grad


def test_autocast_is_respected(loaded):
    model = Small()
    compiled = torch.compile(model, backend=kernelwright)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        got, right = compiled(X), model(X)
    assert got.dtype == right.dtype
    torch.testing.assert_close(got, right, atol=2e-2, rtol=2e-2)


def test_running_statistics_and_evaluation(loaded):
    model, other = nn.BatchNorm1d(40), nn.BatchNorm1d(40)
    compiled = torch.compile(model, backend=kernelwright)
    for x in (X, Y):
        torch.testing.assert_close(compiled(x), other(x))
    torch.testing.assert_close(model.state_dict(), other.state_dict())
    compiled.eval()
    other.eval()
    torch.testing.assert_close(compiled(X), other(X))
    torch.testing.assert_close(model.state_dict(), other.state_dict())


def test_random_numbers_are_torchs_own(loaded):
    def program(x):
        one = F.dropout(torch.relu(x * 2 + 1), 0.5)
        other = torch.rand_like(x)
        return other * 2 + 1, one * 3 - 1

    compiled = torch.compile(program, backend=kernelwright)
    torch.manual_seed(5)
    got = compiled(X)
    torch.manual_seed(5)
    torch.testing.assert_close(got, program(X))
    assert not torch.equal(compiled(X)[0], got[0])


def test_a_constant_that_is_returned_is_not_ours_to_keep(loaded):
    compiled = torch.compile(lambda x: (x * 2 + 1, torch.tensor([1.0, 2.0])), backend=kernelwright)
    compiled(X)[1].zero_()
    assert compiled(X)[1].tolist() == [1.0, 2.0]


def test_a_kernel_that_no_compiler_takes_is_left_to_torch_and_said(monkeypatch):
    def two(x):
        return torch.softmax(x @ x.T, -1), F.gelu(x) + 1

    load = backend_module.load

    def refuse(text):
        if "erf(" in text:
            raise RuntimeError("no such word")
        return load(text)

    torch._dynamo.reset()
    monkeypatch.setattr(backend_module, "load", refuse)
    with pytest.warns(UserWarning, match="1 of 2 kernels do not build: no such word"):
        got = torch.compile(two, backend=kernelwright, dynamic=False)(X)
    for one, right in zip(got, two(X), strict=True):
        torch.testing.assert_close(one, right)


def test_a_kernel_whose_first_answer_is_wrong_is_left_to_torch_and_said(monkeypatch):
    def two(x):
        return torch.softmax(x @ x.T, -1), F.gelu(x) + 1

    def wrong(text):
        made = load(text)
        softmax = made.region_0
        made.region_0 = lambda x: softmax(x) * 1.001
        return made

    torch._dynamo.reset()
    load = backend_module.load
    monkeypatch.setattr(backend_module, "load", wrong)
    compiled = torch.compile(two, backend=kernelwright, dynamic=False)
    with pytest.warns(UserWarning, match="kernel disabled, its first result was wrong"):
        torch.testing.assert_close(compiled(X), two(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(compiled(Y), two(Y))
