"""Models as model libraries write them: results of their own types, wrapped forwards, caches; and the budget."""

import functools
import inspect
import sys
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import FirstChoice, KernelsFirst, optimised, quick, run

import kernelwright
from kernelwright.compiler import in_memory
from kernelwright.compiler.in_memory import optimize_problem
from kernelwright.core.errors import ProblemError
from kernelwright.core.optimization import DEFAULT_BUDGET_S
from kernelwright.problems import Problem


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with quick(), torch.no_grad():
        yield


X = torch.randn(9, 40, generator=torch.Generator().manual_seed(0))


@dataclass
class Output:
    """As a model returns it: not all fields are always there."""

    probabilities: Tensor
    loss: Tensor | None = None
    hidden: tuple[Tensor, ...] | None = None


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


class Fields(OrderedDict):
    """A dict with attributes, known to pytree, as transformers' `ModelOutput`."""

    def __getattr__(self, name):
        return self[name]


pytree.register_pytree_node(
    Fields,
    lambda one: (list(one.values()), list(one)),
    lambda values, names: Fields(zip(names, values, strict=True)),
    serialized_type_name="test_compiler_result_types.Fields",
    flatten_with_keys_fn=lambda one: ([(pytree.MappingKey(key), value) for key, value in one.items()], list(one)),
)


class Model(nn.Module):
    """A softmax in a result of some type."""

    def __init__(self, make):
        super().__init__()
        self.scale, self.make = nn.Parameter(torch.full((40,), 2.0), requires_grad=False), make

    def forward(self, x, with_hidden=False):
        hidden = torch.relu(x * self.scale)
        return self.make(torch.softmax(hidden + 1, -1), hidden, with_hidden)


RESULTS = {
    "dataclass": lambda p, h, more: Output(p, hidden=(h,) if more else None),
    "dataclass in a dict": lambda p, h, more: {"output": Output(p), "others": [Output(h, h.sum())]},
    "named tuple": lambda p, h, more: Pair(p, h),
    "named tuple in a dataclass": lambda p, h, more: Output(p, hidden=Pair(h, h + 1)),
    "registered": lambda p, h, more: Fields(logits=p, hidden=(h, h + 1)),
}


@pytest.mark.parametrize("with_hidden", [False, True])
@pytest.mark.parametrize("make", [pytest.param(v, id=k) for k, v in RESULTS.items()])
def test_a_result_has_the_type_of_the_model(make, with_hidden):
    model = Model(make)
    got, used = run(optimised(model, X, with_hidden=with_hidden), X, with_hidden=with_hidden)
    right = model(X, with_hidden=with_hidden)
    assert used and type(got) is type(right)
    assert pytree.tree_structure(got) == pytree.tree_structure(right)
    torch.testing.assert_close(pytree.tree_leaves(got), pytree.tree_leaves(right))


def test_another_call_returns_what_the_model_returns():
    model = Model(RESULTS["dataclass"])
    got, used = run(optimised(model, X), X, with_hidden=True)
    assert not used
    torch.testing.assert_close(got.hidden[0], model(X, with_hidden=True).hidden[0])


def with_defaults(forward):
    """A wrapper that adds keyword arguments that it does not find, as transformers' do."""

    @functools.wraps(forward)
    def wrapper(self, *args, **kwargs):
        if kwargs.get("doubled") is None:
            kwargs["doubled"] = True
        return forward(self, *args, **kwargs)

    return wrapper


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_forward_hook(lambda module, args, result: result * 1)

    @with_defaults
    def forward(self, x, mask=None, doubled=None, **others):
        x = torch.softmax(x if mask is None else x * mask, -1)
        return x * 2 if doubled else x


@pytest.mark.parametrize("kwargs", [{}, {"mask": X > 0}, {"doubled": False}, {"mask": X > 0, "other": 3}])
def test_a_wrapped_forward_gets_its_keywords(kwargs):
    model = Wrapped()
    made = optimised(model, X, **kwargs)
    assert inspect.signature(made.forward).parameters.keys() == inspect.signature(model.forward).parameters.keys()
    got, used = run(made, X, **kwargs)
    assert used
    torch.testing.assert_close(got, model(X, **kwargs))
    torch.testing.assert_close(made(X, doubled=True), model(X, doubled=True))


class Cache:
    def __init__(self):
        self.rows = []


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, cache=None):
        self.calls += 1
        cache = cache or Cache()
        cache.rows.append(x * 2)
        return {"sum": torch.softmax(sum(cache.rows), -1), "cache": cache}


@pytest.mark.parametrize("kwargs", [{}, {"cache": Cache()}], ids=["returned", "given"])
def test_a_model_that_returns_its_cache_is_left_to_torch_with_a_note(kwargs):
    model = Cached()
    made = optimize_problem(Problem.from_callable(model, X, **kwargs), FirstChoice(), 1, KernelsFirst)
    record = made.optimization
    assert record.notes == ("the program is left to torch: its result has a Cache, which cannot be compared",)
    assert (record.whole_program_winner, record.verdict) == ("torch", None)
    assert model.calls == 0, "optimising is no call"
    first = made(X)
    torch.testing.assert_close(made(X, first["cache"])["sum"], torch.softmax(X * 4, -1))
    assert made.calls is model.calls and list(made.state_dict()) == ["calls"]


def test_a_model_that_raises_is_one_clear_error():
    with pytest.raises(ProblemError, match="raised ValueError: not today"):
        optimize_problem(
            Problem.from_callable(lambda x: (_ for _ in ()).throw(ValueError("not today")), X), FirstChoice()
        )


@pytest.mark.parametrize(("given", "total_s"), [({}, DEFAULT_BUDGET_S["cpu"]), ({"budget_s": 7.0}, 7.0)])
def test_the_budget_is_that_of_the_command_line(given, total_s, monkeypatch):
    budgets = []

    def optimize(problem, tuner, budget):
        budgets.append(budget.total_s)
        return problem.program

    monkeypatch.setattr(in_memory, "optimize_problem", optimize)
    monkeypatch.setattr(in_memory, "machine_here", lambda device: FirstChoice.machine)
    kernelwright.optimize(lambda x: x + 1, X, **given)
    assert budgets == [total_s]
