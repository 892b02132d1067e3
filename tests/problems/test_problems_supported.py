"""What cannot be optimised is one clear sentence: other than dense tensors, and objects that are no modules."""

import functools
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from kernelwright.core.errors import ProblemError
from kernelwright.core.pytree import register_types, tensor_leaves
from kernelwright.problems import Problem
from kernelwright.problems.supported import require_supported


def work(x, **others):
    return x * 2


class Plain:
    def __call__(self, x):
        return x * 2


class Subclass(torch.Tensor):
    pass


@dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor | None = None


def refuse(program, *args, **kwargs):
    with pytest.raises(ProblemError) as caught:
        require_supported(Problem.from_callable(program, *args, **kwargs), (list(args), kwargs))
    return caught.value.message


def test_dense_tensors_and_plain_values_are_supported():
    for program in (work, functools.partial(work), torch.relu, torch.nn.ReLU()):
        require_supported(Problem.from_callable(program, torch.ones(3)), ([torch.ones(3), 2.0, None, "a"], {}))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.eye(3).to_sparse(), "a tensor of layout sparse_coo"),
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "a nested tensor"),
        (torch.ones(3).as_subclass(Subclass), "a Subclass, a subclass of torch.Tensor"),
        (SimpleNamespace(x=torch.ones(3)), "a SimpleNamespace, whose tensors are not found"),
    ],
    ids=["sparse", "nested", "subclass", "object"],
)
def test_another_input_is_refused_by_its_name(value, message):
    with pytest.raises(ProblemError) as caught:
        require_supported(Problem.from_callable(work, torch.ones(3)), ([torch.ones(3)], {"options": {"a": [value]}}))
    assert caught.value.message == f"input options['a'][0] is {message}"


def test_a_sparse_buffer_is_refused_by_its_name():
    module = torch.nn.ReLU()
    module.register_buffer("graph", torch.eye(3).to_sparse())
    assert refuse(module, torch.ones(3)) == "buffer graph is a tensor of layout sparse_coo"


def test_an_object_that_is_no_module_is_refused():
    assert refuse(Plain(), torch.ones(3)) == "Plain is not an nn.Module"


def test_the_tensors_of_a_dataclass_are_found_once_it_is_registered():
    assert "Pair, whose tensors are not found" in refuse(work, Pair(torch.ones(3)))
    register_types([Pair, Plain, 3])
    assert len(tensor_leaves([Pair(torch.ones(3)), Pair(torch.ones(3), torch.ones(2))])) == 3
    require_supported(Problem.from_callable(work, torch.ones(3)), ([Pair(torch.ones(3))], {}))
