"""Forward functions: arguments and results of every kind, lines in the right order, and what falls back."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import optimised, quick, run

from kernelwright.core.pytree import tensor_leaves


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with quick(), torch.no_grad():
        yield


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, Y, W = normal(9, 40), normal(9, 40, seed=1), normal(40, seed=2)


def same(program, made, *args, kernels=True, **kwargs):
    """What both return for their own copies of some arguments, and what they leave in them, is the same."""
    ours, theirs = (pytree.tree_map_only(torch.Tensor, torch.clone, (args, kwargs)) for _ in range(2))
    got, used = run(made, *ours[0], **ours[1])
    torch.testing.assert_close(got, program(*theirs[0], **theirs[1]), equal_nan=True)
    torch.testing.assert_close(tensor_leaves(ours), tensor_leaves(theirs))
    assert used == kernels


# ---- arguments


def nested(x, more):
    return torch.relu(x + more["scale"][0]) * more["shift"]


def with_default(x, scale=2.0, *, shift=1.0):
    return torch.relu(x * scale + shift)


def several(x, *others, **named):
    return torch.relu(x + others[0] * others[1]) - named["w"] * named["b"]


def chosen(x, mask=None, double=False, times=1, kind="relu"):
    x = x * 2 if double else x + 1
    x = x if mask is None else x * mask
    return torch.relu(x) * times if kind == "relu" else torch.tanh(x)


def ordered(x, *, a, b):
    return torch.relu(x * a - b)


def of_list(values):
    total = values[0] * 2
    for value in values[1:]:
        total = total + value
    return total


def filled(x, fill):
    return torch.where(x > 0, x * 2, fill)


CALLS = {
    "nested": (nested, (X, {"scale": [Y], "shift": W}), {}),
    "keywords": (ordered, (X,), {"a": Y, "b": W}),
    "keywords in another order": (ordered, (X,), {"b": W, "a": Y}),
    "all by keyword": (nested, (), {"more": {"scale": [Y], "shift": W}, "x": X}),
    "defaults": (with_default, (X,), {}),
    "a default given": (with_default, (X, 3.0), {"shift": 2.0}),
    "stars": (several, (X, Y, W), {"w": W, "b": Y}),
    "none": (chosen, (X, None), {}),
    "a mask": (chosen, (X, Y > 0), {"double": True}),
    "a list": (of_list, ([X, Y, W],), {}),
    "a tuple": (of_list, ((X, Y),), {}),
    "an infinite number": (filled, (X, float("-inf")), {}),
    "a scalar tensor": (lambda x, s: torch.relu(x * s), (X, torch.tensor(3.0)), {}),
    "an unused tensor": (lambda x, y: torch.relu(x + 1), (X, Y), {}),
    "a tensor twice": (lambda x, y: torch.relu(x + y), (X, X), {}),
    "python's words": (lambda tensors, region_0, run: torch.relu(tensors + region_0) * run, (X, Y, W), {}),
    "the file's words": (
        lambda inputs_match, KERNELS, FAST_CHECKS: (inputs_match + KERNELS) * FAST_CHECKS,
        (X, Y, W),
        {},
    ),
}


def cases(table):
    return [pytest.param(*value, id=name) for name, value in table.items()]


@pytest.mark.parametrize(("program", "args", "kwargs"), cases(CALLS))
def test_arguments_of_every_kind_reach_the_kernels(program, args, kwargs):
    made = optimised(program, *args, **kwargs)
    same(program, made, *args, **kwargs)


OTHERWISE = {
    "another default": (with_default, (X,), {}, (X,), {"scale": 3.0}),
    "another keyword only": (with_default, (X,), {}, (X,), {"shift": 0.0}),
    "back to the default": (with_default, (X, 3.0), {}, (X,), {}),
    "a flag": (chosen, (X, None, False), {}, (X, None, True), {}),
    "a number": (chosen, (X, None, False, 3), {}, (X, None, False, 2), {}),
    "a text": (chosen, (X,), {"kind": "relu"}, (X,), {"kind": "tanh"}),
    "a tensor for none": (chosen, (X, None), {}, (X, Y > 0), {}),
    "none for a tensor": (chosen, (X, Y > 0), {}, (X, None), {}),
    "a number for a tensor": (lambda x, y: torch.relu(x + y), (X, W), {}, (X, 2.0), {}),
    "a tensor for a number": (chosen, (X, None, False, 3), {}, (X, None, False, W), {}),
    "a longer list": (of_list, ([X, Y],), {}, ([X, Y, W],), {}),
    "a shorter list": (of_list, ([X, Y, W],), {}, ([X, Y],), {}),
    "one more of the stars": (lambda *x: sum(x[1:], x[0]) * 2 + 1, (X, Y), {}, (X, Y, W), {}),
    "other keys": (lambda d: sum(d.values()) * 2 + 1, ({"a": X},), {}, ({"b": X},), {}),
    "more keys": (lambda d: sum(d.values()) * 2 + 1, ({"a": X},), {}, ({"a": X, "b": Y},), {}),
    "another shape": (nested, (X, {"scale": [Y], "shift": W}), {}, (X[:4], {"scale": [Y[:4]], "shift": W}), {}),
    "another dtype": (with_default, (X,), {}, (X.double(),), {}),
    "half": (with_default, (X,), {}, (X.half(),), {}),
    "whole numbers": (with_default, (X,), {}, (X.long(),), {}),
    "no elements": (with_default, (X,), {}, (X[:0],), {}),
}  # fmt: skip


@pytest.mark.parametrize(("program", "args", "kwargs", "others", "named"), cases(OTHERWISE))
def test_another_call_runs_as_it_always_did(program, args, kwargs, others, named):
    made = optimised(program, *args, **kwargs)
    same(program, made, *others, kernels=False, **named)


def test_other_strides_run_as_they_always_did():
    made = optimised(with_default, X)
    for x in (X.t().contiguous().t(), normal(18, 40)[::2], W.expand(9, 40)):
        got, used = run(made, x)
        torch.testing.assert_close(got, with_default(x))
        assert not used


def test_a_view_into_a_tensor_is_read_at_its_place():
    made = optimised(with_default, X)
    for start in (1, 3):
        x = normal(400)[start : start + 360].view(9, 40)
        got, used = run(made, x)
        torch.testing.assert_close(got, with_default(x))
        assert used


# ---- results

RESULTS = {
    "one in a tuple": lambda x: (x * 2 + 1,),
    "one in a list": lambda x: [x * 2 + 1],
    "several": lambda x: (torch.softmax(x, -1), x.sum(-1), x.amax(0)),
    "a dict": lambda x: {"all": x * 2 + 1, "some": {"first": x.sum(-1)}},
    "lists in tuples": lambda x: ([x * 2, (x + 1, x.sum())], x.tanh()),
    "itself": lambda x: (x, x * 2 + 1),
    "a view": lambda x: (x.t(), x[:, 1:3], x * 2 + 1),
    "the same twice": lambda x: (lambda y: (y, y))(x * 2 + 1),
    "none beside it": lambda x: (x * 2 + 1, None),
    "numbers beside it": lambda x: (x * 2 + 1, 3, 0.5, True),
    "a constant": lambda x: (x * 2 + 1, torch.ones(3)),
    "bool and whole": lambda x: (x > 0, (x * 3).long(), x.argmax(-1)),
    "torch's own tuple": lambda x: torch.max(x * 2 + 1, -1),
    "a constant like what nobody reads": lambda x: torch.cat((torch.zeros_like(x[:, :1].t().t()), x.softmax(1)), 1),
    "constants beside rows": lambda x: (x.softmax(1), torch.cat((torch.zeros_like(x), torch.ones_like(x)), 1)),
    "a constant's copy": lambda x: (x.softmax(1), torch.zeros_like(x).clone()),
}


@pytest.mark.parametrize("program", [pytest.param(v, id=k) for k, v in RESULTS.items()])
def test_results_of_every_kind(program):
    got, used = run(optimised(program, X), X)
    right = program(X)
    assert used
    assert type(got) is type(right)
    torch.testing.assert_close(got, right)
    for one, other in zip(pytree.tree_leaves(got), pytree.tree_leaves(right), strict=True):
        if isinstance(other, torch.Tensor):
            assert (one.dtype, one.stride()) == (other.dtype, other.stride())


# ---- what is between


def two_regions(x, w):
    hidden = torch.relu(x * 2 + 1)
    mixed = hidden @ w
    return torch.softmax(mixed + 1, -1) * 3


def sorted_between(x):
    values, places = torch.sort(torch.tanh(x) + x, dim=-1)
    return values * 2 + places, torch.cummax(values + 1, -1).values.sum(-1)


def constants(x):
    return torch.relu(x * torch.tensor([1.0, -2.0] * 20) + torch.tensor(0.5))


def branches(x, y):
    with torch.no_grad():
        shift = x.mean(-1, keepdim=True) + 1
    return torch.relu(y - shift) * 2


def low_precision(x, w):
    with torch.autocast("cpu", torch.bfloat16):
        return torch.relu(x @ w).float() * 2 + 1


def one_of_one(x, y):
    positive = torch.relu(x)
    return positive.amax(0) * 2 + 1, positive + y


def computed_twice(x, y, w, z):
    half = x * 0.5
    return (half * y).sum(0), (half * w * z).sum(1, keepdim=True)


BETWEEN = {
    "two regions": (two_regions, X, normal(40, 30)),
    "computed twice": (computed_twice, normal(2, 6), normal(2, 6), normal(6), normal(2, 6)),
    "sort": (sorted_between, X),
    "constants": (constants, X),
    "without gradients": (branches, X, Y),
    "autocast inside": (low_precision, X, normal(40, 30)),
    "views between": (lambda x: torch.softmax((x * 2).view(3, 3, 40).transpose(0, 1) + 1, -1).flatten(1) - 1, X),
    "a scalar turned": (lambda x: torch.relu(x.sum().flip(-1) * 2 + x), X),
    "one of one": (one_of_one, normal(1), normal(2, 1)),
    "padding": (lambda x: F.pad(torch.relu(x + 1), (1, 2)) * 2 + 1, X),
    "joined": (lambda x, y: torch.cat([x * 2 + 1, torch.tanh(y)], 1) * 3 + 1, X, Y),
    "convolution": (lambda x, w: F.gelu(F.conv1d(x[None], w, padding=1)) * 2, X, normal(4, 9, 3)),
    "attention": (lambda x: F.scaled_dot_product_attention(*[(x * 2 + 1)[None, None]] * 3) * 2 + 1, X),
}


@pytest.mark.parametrize("case", [pytest.param(v, id=k) for k, v in BETWEEN.items()])
def test_torch_operators_stand_between_regions(case):
    program, *args = case
    same(program, optimised(program, *args), *args)


def test_lines_are_in_order_and_let_go_of_what_nobody_needs():
    made = optimised(two_regions, X, normal(40, 30))
    body = made.optimization.source.rpartition("def forward(self")[2].splitlines()
    lines = [line.strip() for line in body if "region_" in line or "matmul" in line or "del " in line]
    assert [line.partition(" = ")[2].partition("(")[0] for line in lines if " = " in line] == [
        "region_0",
        "torch.ops.aten.matmul.default",
        "region_1",
    ]
    names = [line.partition(" = ")[0] for line in lines if " = " in line]
    assert [line for line in lines if line.startswith("del ")] == [f"del {names[0]}", f"del {names[1]}"]


# ---- what is changed


def changed(x, y):
    x.mul_(2).add_(y)
    return torch.relu(x) + 1


def changed_in_part(x):
    x[:, 1:3] = x[:, 1:3] * 2 + 1
    return torch.softmax(x, -1)


def step(mean, gradient, weight):
    mean.mul_(0.9).add_(gradient, alpha=0.1)
    return weight.add_(mean.square(), alpha=-0.5), mean


def read_elsewhere(x, y):
    before = (x * y).sum(-1)
    x.copy_(x.flip(0) * y)
    return before


def returned_apart(x, y):
    z = x * y + 1
    x.copy_(z)
    return z


def handed_on(x, y):
    y.copy_(x)
    return x.mul_(2)


def exchanged(x, y):
    z = x + 1
    x.copy_(y * 2)
    y.copy_(z)
    return x


CHANGED = {
    "whole": (changed, X, Y), "part": (changed_in_part, X), "filled": (lambda x: x.fill_(2) * x + 1, X),
    "step": (step, X, Y, normal(9, 40, seed=3)), "read_elsewhere": (read_elsewhere, X, Y),
    "returned_apart": (returned_apart, X, Y), "exchanged": (exchanged, X, Y), "handed_on": (handed_on, X, Y),
    "rows": (lambda x: x.copy_(torch.softmax(x, -1)), X),
    "transposed": (lambda x: x.copy_(x.t() * 2), X[:, :9].contiguous()),
}  # fmt: skip


@pytest.mark.parametrize("case", [pytest.param(v, id=k) for k, v in CHANGED.items()])
def test_arguments_that_the_program_changes_are_changed(case):
    program, *args = case
    same(program, optimised(program, *args), *args)


def test_what_is_changed_element_by_element_is_written_in_place():
    made = optimised(step, X, Y, normal(9, 40, seed=3))
    assert "copy_" not in made.optimization.source
    mean, weight = X.clone(), Y.clone()
    before = mean._version, weight._version
    result = made(mean, Y, weight)
    assert result[0] is weight and result[1] is mean, "what the program returns is its argument"
    assert mean._version > before[0] and weight._version > before[1], "autograd sees the change"


def test_pointers_to_one_tensor_do_not_promise_to_be_apart():
    source = optimised(step, X, Y, normal(9, 40, seed=3)).optimization.source
    signature = source.partition('extern "C" void region_0(')[2].partition(")")[0]
    assert "__restrict__ gradient" in signature
    assert "__restrict__ mean" not in signature and "__restrict__ weight" not in signature


@pytest.mark.parametrize("case", ["read_elsewhere", "rows", "transposed"])
def test_what_somebody_still_needs_is_copied(case):
    program, *args = CHANGED[case]
    assert ".copy_(" in optimised(program, *args).optimization.source


def test_an_argument_that_is_changed_and_given_twice_is_right():
    made = optimised(changed, X, Y)
    ours, theirs = X.clone(), X.clone()
    torch.testing.assert_close(made(ours, ours), changed(theirs, theirs))
    torch.testing.assert_close(ours, theirs)
